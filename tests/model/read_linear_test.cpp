// SPDX-License-Identifier: Apache-2.0
// Values that no weight may have, named by their place.
#include "octile/model/checkpoint_linear.h"

#include "support/tiny_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace octile {
namespace {

using test::ScaleShape;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kK = "model.layers.0.self_attn.k_proj";

std::string problem_of(const test::TinyCheckpoint& checkpoint, const CheckpointOptions& options = {}) {
  const test::TemporaryDirectory directory;
  return test::load_problem(checkpoint, directory, options);
}

TEST(ReadLinear, ANaNCodeIsNamedByItsTensorRowAndColumn) {
  for (const CheckpointMemory memory : {CheckpointMemory::map, CheckpointMemory::read}) {
    CheckpointOptions options;
    options.memory = memory;
    for (const char code : {'\x7F', '\xFF'}) {
      test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
      stored.tensor("model.layers.1.self_attn.v_proj.weight").bytes[43] = code;  // Row 5 of 8 columns, column 3.
      EXPECT_THAT(
          problem_of(stored, options),
          AllOf(HasSubstr("tensor \"model.layers.1.self_attn.v_proj.weight\""), HasSubstr("model.safetensors"),
                HasSubstr(code == '\x7F' ? "NaN (code 7F) in row 5, column 3" : "NaN (code FF) in row 5, column 3")));
      // A rank that does not have the row does not mind it; the one that does names the stored row.
      options.tp = 2;
      EXPECT_THAT(problem_of(stored, options), HasSubstr("loaded"));
      options.rank = 1;
      EXPECT_THAT(problem_of(stored, options), HasSubstr("in row 5, column 3"));
      stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
      stored.tensor("model.layers.1.mlp.down_proj.weight").bytes[95] = code;  // The last of [8, 12].
      EXPECT_THAT(problem_of(stored, options), HasSubstr("in row 7, column 11"));
      options.tp = 1;
      options.rank = 0;
    }
  }
}

TEST(ReadLinear, AScaleThatIsNoScaleIsNamed) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), infinity, -infinity, -0.5F}) {
    test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
    std::string& bytes = stored.tensor("model.layers.1.mlp.up_proj.weight_scale").bytes;
    std::memcpy(bytes.data() + 28, &bad, sizeof(bad));
    EXPECT_THAT(problem_of(stored), AllOf(HasSubstr("tensor \"model.layers.1.mlp.up_proj.weight_scale\""),
                                          HasSubstr("row 7: wanted a finite scale > 0, got")));
  }
  // 0 for a row of zeros alone.
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  std::memset(stored.tensor(std::string(kK) + ".weight_scale").bytes.data(), 0, 4);
  std::string& codes = stored.tensor(std::string(kK) + ".weight").bytes;
  codes[0] = '\x08';
  EXPECT_THAT(problem_of(stored), AllOf(HasSubstr("qkv_proj: weight scale 16"), HasSubstr("not all 0")));
  std::memset(codes.data(), 0, 8);
  EXPECT_EQ(problem_of(stored), "loaded");
}

}  // namespace
}  // namespace octile
