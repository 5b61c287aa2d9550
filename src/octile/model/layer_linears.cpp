// SPDX-License-Identifier: Apache-2.0
// Heads and rows of a rank.
#include "octile/model/layer_linears.h"

#include "octile/core/format.h"

#include <algorithm>
#include <utility>

namespace octile {
namespace {

// One of the logical weights of a fused linear: its name, its rows in all and those of the rank.
struct Section {
  const char* kind;    // "q"
  const char* module;  // "self_attn.q_proj"
  std::int64_t stored_n;
  Range rows;
};

LinearPlan finish(LinearPlan plan) {
  for (const LinearPart& part : plan.parts) {
    for (const Range& rows : part.rows) {
      plan.n += rows.count;
    }
    plan.k = part.columns.count;
  }
  return plan;
}

// Linears of `sections` [*, k]: one of a stored weight that holds them all, one of several weights, or one each.
void add_column_parallel(std::vector<LinearPlan>& linears, const char* kind, const char* fused_module,
                         const std::vector<Section>& sections, std::int64_t k, bool stored_fused, bool fuse) {
  if (stored_fused) {
    LinearPart part{fused_module, 0, k, {}, {0, k}};
    for (const Section& section : sections) {
      part.rows.push_back({part.stored_n + section.rows.first, section.rows.count});
      part.stored_n += section.stored_n;
    }
    linears.push_back(finish({.module = fused_module, .kind = kind, .parts = {std::move(part)}}));
    return;
  }
  LinearPlan fused{.module = fused_module, .kind = kind, .parts = {}};
  for (const Section& section : sections) {
    LinearPart part{section.module, section.stored_n, k, {section.rows}, {0, k}};
    if (fuse) {
      fused.parts.push_back(std::move(part));
    } else {
      linears.push_back(finish({.module = section.module, .kind = section.kind, .parts = {std::move(part)}}));
    }
  }
  if (fuse) {
    linears.push_back(finish(std::move(fused)));
  }
}

LinearPlan row_parallel(const char* kind, const char* module, std::int64_t n, std::int64_t k, Range columns) {
  return finish({.module = module, .kind = kind, .row_parallel = true, .parts = {{module, n, k, {{0, n}}, columns}}});
}

}  // namespace

Expected<std::vector<LinearPlan>> plan_layer(const ModelFigures& figures, std::int64_t tp, std::int64_t rank,
                                             const LayerLayout& layout) {
  if (const auto shapes = linear_shapes(figures, tp); !shapes) {
    return shapes.error();
  }
  if (rank < 0 || rank >= tp) {
    return make_error(ErrorCode::invalid_argument, "rank: wanted an integer from 0 to {}, got {}", tp - 1, rank);
  }
  const std::int64_t hidden = figures.hidden_size;
  const std::int64_t q = figures.num_attention_heads * figures.head_dim;
  const std::int64_t kv = figures.num_key_value_heads * figures.head_dim;
  const std::int64_t intermediate = figures.intermediate_size;
  const Range rank_q{rank * (q / tp), q / tp};
  // Fewer key/value heads than ranks: neighbours share one.
  const bool shared = figures.num_key_value_heads < tp;
  const std::int64_t rank_kv_rows = shared ? figures.head_dim : kv / tp;
  const std::int64_t kv_place = shared ? rank / (tp / figures.num_key_value_heads) : rank;
  const Range rank_kv{kv_place * rank_kv_rows, rank_kv_rows};
  const Range rank_intermediate{rank * (intermediate / tp), intermediate / tp};

  std::vector<LinearPlan> linears;
  add_column_parallel(
      linears, "qkv", "self_attn.qkv_proj",
      {{"q", "self_attn.q_proj", q, rank_q}, {"k", "self_attn.k_proj", kv, rank_kv}, {"v", "self_attn.v_proj", kv, rank_kv}},
      hidden, layout.stored_qkv, layout.fuse);
  linears.push_back(row_parallel("o", "self_attn.o_proj", hidden, q, rank_q));
  add_column_parallel(
      linears, "gate_up", "mlp.gate_up_proj",
      {{"gate", "mlp.gate_proj", intermediate, rank_intermediate}, {"up", "mlp.up_proj", intermediate, rank_intermediate}},
      hidden, layout.stored_gate_up, layout.fuse);
  linears.push_back(row_parallel("down", "mlp.down_proj", hidden, intermediate, rank_intermediate));
  return linears;
}

}  // namespace octile
