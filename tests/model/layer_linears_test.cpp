// SPDX-License-Identifier: Apache-2.0
// Which rows and columns a rank's linears are made of.
#include "octile/model/layer_linears.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace octile {
namespace {

using ::testing::HasSubstr;

// Qwen3-8B.
constexpr ModelFigures kFigures{4096, 12288, 32, 8, 128};

// "q_proj[512+256] k_proj[...]: the rows of each part.
std::string rows_of(const LinearPlan& plan) {
  std::string text;
  for (const LinearPart& part : plan.parts) {
    text += text.empty() ? "" : " ";
    text += part.module.substr(part.module.find('.') + 1);
    for (const Range& rows : part.rows) {
      text += "[" + std::to_string(rows.first) + "+" + std::to_string(rows.count) + "]";
    }
  }
  return text;
}

std::vector<LinearPlan> plan(std::int64_t tp, std::int64_t rank, const LayerLayout& layout = {},
                             const ModelFigures& figures = kFigures) {
  const auto planned = plan_layer(figures, tp, rank, layout);
  EXPECT_TRUE(planned) << planned.error().message;
  return planned ? *planned : std::vector<LinearPlan>(7);
}

TEST(LayerLinears, OneRankHasEverything) {
  const auto linears = plan(1, 0);
  ASSERT_EQ(linears.size(), 4U);
  EXPECT_EQ(rows_of(linears[0]), "q_proj[0+4096] k_proj[0+1024] v_proj[0+1024]");
  EXPECT_EQ(rows_of(linears[2]), "gate_proj[0+12288] up_proj[0+12288]");
  EXPECT_EQ(linears[3].parts[0].columns.count, 12288);
}

TEST(LayerLinears, ShapesAreThoseThatAreTuned) {
  for (const std::int64_t tp : {1, 2, 4, 8, 16, 32}) {
    const auto shapes = linear_shapes(kFigures, tp);
    ASSERT_TRUE(shapes) << shapes.error().message;
    for (const std::int64_t rank : {std::int64_t{0}, tp - 1}) {
      const auto linears = plan(tp, rank);
      ASSERT_EQ(linears.size(), shapes->size());
      for (std::size_t i = 0; i < linears.size(); ++i) {
        EXPECT_EQ(linears[i].kind, (*shapes)[i].name);
        EXPECT_EQ(linears[i].n, (*shapes)[i].n) << tp;
        EXPECT_EQ(linears[i].k, (*shapes)[i].k) << tp;
      }
    }
  }
}

TEST(LayerLinears, ARankHasItsHeadsOfEachPart) {
  const auto linears = plan(4, 3);
  EXPECT_EQ(rows_of(linears[0]), "q_proj[3072+1024] k_proj[768+256] v_proj[768+256]");
  EXPECT_EQ(rows_of(linears[1]), "o_proj[0+4096]");
  EXPECT_EQ(linears[1].parts[0].columns.first, 3072);
  EXPECT_EQ(linears[1].parts[0].columns.count, 1024);
  EXPECT_TRUE(linears[1].row_parallel);
  EXPECT_EQ(rows_of(linears[2]), "gate_proj[9216+3072] up_proj[9216+3072]");
  EXPECT_EQ(linears[3].parts[0].columns.first, 9216);
}

TEST(LayerLinears, NeighboursShareAKeyValueHeadWhereThereAreMoreRanksThanHeads) {
  // 8 heads on 16 ranks: ranks 0 and 1 have head 0, ranks 14 and 15 head 7.
  EXPECT_EQ(rows_of(plan(16, 0)[0]), "q_proj[0+256] k_proj[0+128] v_proj[0+128]");
  EXPECT_EQ(rows_of(plan(16, 1)[0]), "q_proj[256+256] k_proj[0+128] v_proj[0+128]");
  EXPECT_EQ(rows_of(plan(16, 15)[0]), "q_proj[3840+256] k_proj[896+128] v_proj[896+128]");
}

// A query head must meet the key/value head of its group on its rank.
TEST(LayerLinears, EveryQueryHeadIsWithItsKeyValueHead) {
  const std::int64_t group = kFigures.num_attention_heads / kFigures.num_key_value_heads;
  for (const std::int64_t tp : {1, 2, 4, 8, 16, 32}) {
    for (std::int64_t rank = 0; rank < tp; ++rank) {
      const auto qkv = plan(tp, rank)[0];
      const Range q = qkv.parts[0].rows[0];
      for (const LinearPart* part : {&qkv.parts[1], &qkv.parts[2]}) {
        const Range kv = part->rows[0];
        for (std::int64_t head = q.first / 128; head < (q.first + q.count) / 128; ++head) {
          EXPECT_GE(head / group, kv.first / 128) << tp << " " << rank;
          EXPECT_LT(head / group, (kv.first + kv.count) / 128) << tp << " " << rank;
        }
      }
    }
  }
}

TEST(LayerLinears, TheRanksTogetherHaveEachRowAndColumnOnce) {
  for (const std::int64_t tp : {2, 8}) {
    std::map<std::string, std::int64_t> next;  // Of each module: where the next rank must go on.
    for (std::int64_t rank = 0; rank < tp; ++rank) {
      for (const LinearPlan& linear : plan(tp, rank)) {
        for (const LinearPart& part : linear.parts) {
          const Range range = linear.row_parallel ? part.columns : part.rows[0];
          EXPECT_EQ(range.first, next[part.module]) << part.module;
          next[part.module] += range.count;
          EXPECT_EQ(rank == tp - 1, next[part.module] == (linear.row_parallel ? part.stored_k : part.stored_n));
        }
      }
    }
  }
}

TEST(LayerLinears, StoredFusedWeightsAreDividedSectionBySection) {
  const auto linears = plan(4, 1, {.stored_qkv = true, .stored_gate_up = true});
  EXPECT_EQ(rows_of(linears[0]), "qkv_proj[1024+1024][4352+256][5376+256]");
  EXPECT_EQ(linears[0].parts[0].stored_n, 6144);
  EXPECT_EQ(rows_of(linears[2]), "gate_up_proj[3072+3072][15360+3072]");
  EXPECT_EQ(linears[2].n, 6144);
}

TEST(LayerLinears, WithoutFusingEachWeightIsALinear) {
  const auto linears = plan(2, 1, {.fuse = false});
  std::string kinds;
  for (const LinearPlan& linear : linears) {
    kinds += linear.kind + " " + linear.module + "; ";
  }
  EXPECT_EQ(kinds,
            "q self_attn.q_proj; k self_attn.k_proj; v self_attn.v_proj; o self_attn.o_proj; gate mlp.gate_proj; up "
            "mlp.up_proj; down mlp.down_proj; ");
  EXPECT_EQ(rows_of(linears[1]), "k_proj[512+512]");
  // What is stored as one is one.
  EXPECT_EQ(plan(1, 0, {.stored_qkv = true, .fuse = false})[0].kind, "qkv");
}

TEST(LayerLinears, RanksThatAreNoneAndShapesThatDoNotDivideAreRefused) {
  const auto message = [](std::int64_t tp, std::int64_t rank) {
    const auto planned = plan_layer(kFigures, tp, rank, {});
    return planned ? "planned" : planned.error().message;
  };
  EXPECT_THAT(message(2, 2), HasSubstr("rank: wanted an integer from 0 to 1, got 2"));
  EXPECT_THAT(message(2, -1), HasSubstr("got -1"));
  EXPECT_THAT(message(0, 0), HasSubstr("wanted an integer from 1"));
  EXPECT_THAT(message(5, 0), HasSubstr("32 attention heads do not divide by 5 ranks"));
}

}  // namespace
}  // namespace octile
