// SPDX-License-Identifier: Apache-2.0
// Properties of every GPU family on shapes, types, strides and launch modes that RapidCheck draws and, where one does not
// hold, shrinks. Few kernels serve all shapes. Skipped without a GPU; the seed is fresh each run and printed on failure;
// RC_PARAMS="seed=..." repeats it, RC_PARAMS="max_success=1000" tries more.
#include "kernels/cuda/family_under_test.h"
#include "octile/core/float_formats.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "support/gpu_linear.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace octile::cuda {
namespace {

using test::DeviceLinear;
using test::LinearCase;

constexpr std::int64_t kLargest = 600;

// One linear on the device and the kernel that it is called with.
struct Ready {
  LinearCase linear_case;
  std::unique_ptr<DeviceLinear> linear;
  std::unique_ptr<Kernel> kernel;

  // y's bytes with padding and guards.
  std::vector<unsigned char> run() const {
    if (!linear->run(*kernel)) {
      RC_FAIL("the call failed");
    }
    return linear->bytes();
  }
  std::int64_t row_bytes() const { return (linear_case.n + linear_case.y_padding) * size_of(linear_case.out_dtype); }
  // Where row `row` of y begins in run()'s bytes: the guards before and behind are equal.
  std::int64_t row_begins(std::int64_t row) const {
    const auto all = static_cast<std::int64_t>(linear->bytes().size());
    return (all - linear_case.m * row_bytes()) / 2 + row * row_bytes();
  }
};

// The configs of a family's cases, each in every launch mode that it has.
std::vector<TileConfig> configs_of(const FamilyUnderTest& tested) {
  std::vector<TileConfig> all;
  for (const TileConfig& config : tested.few()) {
    if (tested.family().is_vendor()) {
      all.push_back(config);
      continue;
    }
    for (const Pdl mode : {Pdl::off, Pdl::consume, Pdl::full}) {
      all.push_back(config);
      all.back().set("PDL", static_cast<std::int64_t>(mode));
    }
  }
  return all;
}

// Problems of every kind that is drawn, for kernels of which a shape of whole slabs stands for all.
std::vector<Problem> problems_of(const FamilyUnderTest& tested) {
  std::vector<Problem> all;
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
      for (const bool bias : {false, true}) {
        Problem& problem = all.emplace_back();
        problem.n = problem.k = 640;
        problem.out_dtype = out;
        problem.bias = bias;
        problem.accumulate = accumulate;
        problem.layout = tested.layout;
      }
    }
  }
  return all;
}

TEST(CudaPropertyCases, OfEachKindTwoConfigsOfOurOwnAreLegalOnAnH200InEveryMode) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  for (const FamilyUnderTest& tested : families_and_layouts_under_test()) {
    if (tested.family().is_vendor()) {
      continue;
    }
    for (const Problem& problem : problems_of(tested)) {
      const auto legal = std::ranges::count_if(configs_of(tested), [&](const TileConfig& config) {
        return tested.family().check(device, problem, config).has_value();
      });
      EXPECT_GE(legal, 2 * 3) << tested.name << ' ' << to_string(problem.accumulate) << ' ' << to_string(problem.out_dtype);
    }
  }
}

class CudaProperties : public FamilyTest {
 protected:
  void SetUp() override {
    FamilyTest::SetUp();
    if (IsSkipped() || family().is_vendor()) {
      return;
    }
    // Compiled by all cores, ahead.
    std::vector<WarmupItem> items;
    for (const Problem& problem : problems_of(GetParam())) {
      for (const TileConfig& config : configs_of(GetParam())) {
        if (family().check(device(), problem, config)) {
          items.push_back({&family(), problem, config});
        }
      }
    }
    for (const Error& error : warm_up(device(), items, {}).failures) {
      ADD_FAILURE() << error.message;
    }
  }

  // `codes_too`: not raw rows alone.
  static Ready draw(bool codes_too) {
    const auto dimension = [] { return *rc::gen::inRange<std::int64_t>(1, kLargest + 1); };
    Ready ready;
    LinearCase& drawn = ready.linear_case;
    // Few tokens are the common case, and cheap to check.
    drawn.m = *rc::gen::weightedOneOf<std::int64_t>(
        {{8, rc::gen::inRange<std::int64_t>(1, 40)}, {1, rc::gen::inRange<std::int64_t>(40, kLargest + 1)}});
    drawn.n = dimension();
    drawn.k = dimension();
    Problem problem;
    problem.layout = GetParam().layout;
    if (problem.layout == WeightLayout::slab64) {
      drawn.n = round_up(drawn.n, kSlabChannels);
      drawn.k = round_up(drawn.k, kSlabChunk);
    }
    drawn.out_dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
    drawn.bias = *rc::gen::arbitrary<bool>();
    drawn.codes = codes_too && *rc::gen::arbitrary<bool>();
    drawn.x_dtype = *rc::gen::element(DType::bf16, DType::fp16);
    drawn.x_padding = *rc::gen::inRange<std::int64_t>(0, 33);
    drawn.y_padding = *rc::gen::inRange<std::int64_t>(0, 9);
    drawn.rows_behind = *rc::gen::inRange<std::int64_t>(0, 3);
    drawn.accumulate = *rc::gen::element(Accumulate::fast, Accumulate::precise);
    const KernelFamily& tested = GetParam().family();
    ready.linear = std::make_unique<DeviceLinear>(cuda_backend(), device(), drawn, std::string(tested.layout_for(problem)));
    if (!ready.linear->ready()) {
      RC_FAIL(drawn.to_string());
    }
    problem = ready.linear->problem();
    problem.layout = GetParam().layout;
    std::vector<TileConfig> legal = configs_of(GetParam());
    std::erase_if(legal, [&](const TileConfig& config) { return !tested.check(device(), problem, config); });
    RC_PRE(!legal.empty());
    const TileConfig config = legal[*rc::gen::inRange<std::size_t>(0, legal.size())];
    RC_LOG() << drawn.to_string() << ' ' << config.to_json() << '\n';
    RC_TAG(to_string(drawn.out_dtype));
    auto kernel = tested.prepare(device(), problem, config, drawn.m);
    if (!kernel) {
      RC_FAIL(kernel.error().message);
    }
    ready.kernel = std::move(*kernel);
    return ready;
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaProperties, testing::ValuesIn(families_and_layouts_under_test()), name_of);

TEST_P(CudaProperties, EveryShapeTypeAndModeIsTheReferenceAndRepeatsItsBits) {
  EXPECT_TRUE(rc::check([] {
    const Ready ready = draw(true);
    const std::vector<unsigned char> first = ready.run();
    if (const std::string problem = ready.linear->verdict(); !problem.empty()) {
      RC_FAIL(problem);
    }
    // Behind each other without a wait between them, as in a chain.
    RC_ASSERT(ready.linear->poison_output());
    for (int i = 0; i < 3; ++i) {
      RC_ASSERT(ready.kernel->run(ready.linear->weight(), ready.linear->arguments()).has_value());
    }
    RC_ASSERT(ready.linear->download_output());
    RC_ASSERT(ready.linear->bytes() == first);
  }));
}

TEST_P(CudaProperties, SomeOfTheRowsHaveTheirBitsAndWriteNoOthers) {
  if (family().is_vendor()) {
    GTEST_SKIP() << "the library's own choice is another kernel for another M";
  }
  EXPECT_TRUE(rc::check([] {
    const Ready ready = draw(true);
    std::vector<unsigned char> wanted = ready.run();
    const std::int64_t first = *rc::gen::inRange<std::int64_t>(0, ready.linear_case.m);
    const std::int64_t count = *rc::gen::inRange<std::int64_t>(1, ready.linear_case.m - first + 1);
    LaunchArgs args = ready.linear->arguments();
    ConstMatrixView& x = args.activation.x;
    x.data = static_cast<const unsigned char*>(x.data) + first * x.row_stride * size_of(x.dtype);
    args.activation.scales = args.activation.scales == nullptr ? nullptr : args.activation.scales + first;
    args.y.data = static_cast<unsigned char*>(args.y.data) + first * ready.row_bytes();
    x.rows = args.y.rows = count;
    RC_ASSERT(ready.linear->poison_output());
    RC_ASSERT(ready.kernel->run(ready.linear->weight(), args).has_value());
    RC_ASSERT(ready.linear->download_output());
    // All that is poisoned is 0xFF.
    std::fill(wanted.begin(), wanted.begin() + ready.row_begins(first), std::uint8_t{0xFF});
    std::fill(wanted.begin() + ready.row_begins(first + count), wanted.end(), std::uint8_t{0xFF});
    RC_ASSERT(ready.linear->bytes() == wanted);
  }));
}

TEST_P(CudaProperties, ARowThatIsNotFiniteGivesNaNAndChangesNoOther) {
  EXPECT_TRUE(rc::check([] {
    const Ready ready = draw(false);
    std::vector<unsigned char> clean = ready.run();
    const std::int64_t row = *rc::gen::inRange<std::int64_t>(0, ready.linear_case.m);
    const std::int64_t column = *rc::gen::inRange<std::int64_t>(0, ready.linear_case.k);
    const float wrong = *rc::gen::element(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                          -std::numeric_limits<float>::infinity());
    const ConstMatrixView x = ready.linear->arguments().activation.x;
    const std::vector<unsigned char> bytes = test::as_bytes({wrong}, x.dtype);
    const auto size = static_cast<std::int64_t>(bytes.size());
    RC_ASSERT(upload_bytes(*test::gpu().context,
                           to_device_pointer(x.data) + static_cast<CUdeviceptr>((row * x.row_stride + column) * size),
                           bytes.data(), size)
                  .has_value());
    std::vector<unsigned char> came = ready.run();
    const DType out = ready.linear_case.out_dtype;
    for (std::int64_t i = 0; i < ready.linear_case.n; ++i) {
      RC_ASSERT(std::isnan(load_as_float(came.data() + ready.row_begins(row), out, i)));
    }
    for (std::vector<unsigned char>* y : {&clean, &came}) {
      std::fill(y->begin() + ready.row_begins(row), y->begin() + ready.row_begins(row + 1), std::uint8_t{0});
    }
    RC_ASSERT(came == clean);
  }));
}

}  // namespace
}  // namespace octile::cuda
