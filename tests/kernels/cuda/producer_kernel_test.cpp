// SPDX-License-Identifier: Apache-2.0
// How producers are laid out and launched, on a fake driver whose kernels do nothing, and what NVRTC makes of their source
// for every architecture. Needs no GPU.
#include "octile/kernels/cuda/producer_kernel.h"

#include "fake_device.h"
#include "octile/core/env.h"
#include "octile/kernels/cuda/nvrtc.h"
#include "octile/kernels/cuda/product_call.h"
#include "octile/kernels/known_devices.h"
#include "support/producer_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

using test::ProducerOperands;
using test::ProducerShape;
using testing::HasSubstr;

constexpr ProducerKind kKinds[] = {ProducerKind::rms_norm, ProducerKind::swiglu};
constexpr const char* kDevices[] = {"NVIDIA_L40S", "NVIDIA_H200", "NVIDIA_GeForce_RTX_5090"};

ProducerSpec spec_of(ProducerKind kind, DType dtype, std::int64_t k) {
  ProducerSpec spec;
  spec.kind = kind;
  spec.dtype = dtype;
  spec.k = k;
  return spec;
}

TEST(ProducerLayouts, KeepEveryAlignedRowUpToThirtyTwoThousandElements) {
  for (const char* name : kDevices) {
    for (const ProducerKind kind : kKinds) {
      for (std::int64_t k = 8; k <= 32768; k += 8) {
        const ProducerLayouts layouts = producer_layouts(*known_device(name), kind, k);
        for (const ProducerLayout& layout : {layouts.few, layouts.many}) {
          ASSERT_TRUE(layout.keeps(k)) << name << " " << to_string(kind) << " K=" << k << ": " << layout.threads
                                       << " threads, " << layout.cluster << " blocks, " << layout.kept << " kept";
          ASSERT_LE(layout.kept, 8U);
          ASSERT_LE(layout.threads, 512U);
          ASSERT_EQ(layout.threads % 32, 0U);
          if (kind == ProducerKind::rms_norm) {
            ASSERT_EQ(512U % (layout.threads * layout.cluster), 0U);
          }
        }
        ASSERT_EQ(layouts.any.kept, 0U);
        ASSERT_EQ(layouts.many.cluster, 1U);
      }
    }
  }
}

TEST(ProducerLayouts, KeepNoRowThatEndsWithinAVectorOrIsLonger) {
  const ProducerLayout layout{512, 1, 2};
  EXPECT_TRUE(layout.keeps(8192));
  EXPECT_FALSE(layout.keeps(8200));
  EXPECT_FALSE(layout.keeps(8190));
}

TEST(ProducerCodes, LetTheProductStartEarlyInModeConsumeToo) {
  DeviceCodes codes;
  codes.behind_producer = true;
  EXPECT_TRUE(product_starts_early(Pdl::full, codes));
  EXPECT_TRUE(product_starts_early(Pdl::consume, codes));
  EXPECT_FALSE(product_starts_early(Pdl::off, codes));
}

// Skips where there is no compiler.
class ProducerSources : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto api = nvrtc(); !api) {
      GTEST_SKIP() << api.error().message;
    }
  }
  env::ScopedOverride cache_{"OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins"};
};

TEST_F(ProducerSources, CompileForEveryArchitectureWithoutSpills) {
  std::vector<CompileRequest> requests;
  for (const char* name : kDevices) {
    const DeviceInfo device = *known_device(name);
    for (const ProducerKind kind : kKinds) {
      for (const auto& [dtype, k] : {std::pair{DType::bf16, 4096},
                                     {DType::bf16, 12288},
                                     {DType::fp16, 5120},
                                     {DType::fp16, 16384},
                                     {DType::bf16, 32768}}) {
        const ProducerSpec spec = spec_of(kind, dtype, k);
        const ProducerLayouts layouts = producer_layouts(device, kind, k);
        for (const ProducerLayout& layout : {layouts.few, layouts.many, layouts.any}) {
          requests.push_back(producer_request(spec, layout));
          requests.back().arch = compile_arch(device.arch);
        }
      }
    }
  }
  const auto results = compile_all(requests, 2);
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::string text = requests[i].arch + " " + requests[i].kernel;
    for (const std::string& define : requests[i].defines) {
      text += " " + define;
    }
    ASSERT_TRUE(results[i]) << text << ": " << results[i].error().message;
    EXPECT_EQ(results[i]->spill_store_bytes + results[i]->spill_load_bytes + results[i]->stack_bytes, 0) << text;
    EXPECT_LE(results[i]->registers, 128) << text;
    EXPECT_GT(results[i]->registers, 8) << text;
  }
}

// Where `text` stands in `ptx` for the first time.
std::size_t place(const std::string& ptx, const char* text) { return ptx.find(text); }

TEST_F(ProducerSources, TouchNothingButGammaBeforeTheWait) {
  for (const ProducerKind kind : kKinds) {
    for (const unsigned kept : {0U, 1U, 8U}) {
      CompileRequest request = producer_request(spec_of(kind, DType::bf16, 4096), {512, 1, kept});
      request.arch = "sm_90a";
      const auto ptx = compile_to_ptx(request);
      ASSERT_TRUE(ptx) << ptx.error().message;
      const std::size_t wait = place(*ptx, "griddepcontrol.wait");
      ASSERT_NE(wait, std::string::npos);
      EXPECT_LT(place(*ptx, "griddepcontrol.launch_dependents"), wait);
      EXPECT_GT(place(*ptx, "ld.relaxed.gpu.global"), wait);
      EXPECT_GT(place(*ptx, "st.global"), wait);
      ASSERT_NE(place(*ptx, "ld.relaxed.gpu.global"), std::string::npos);
      ASSERT_NE(place(*ptx, "st.global"), std::string::npos);
      // Every other read of global memory is gamma's: whole vectors, RMSNorm alone.
      for (std::size_t at = ptx->find("ld.global"); at != std::string::npos; at = ptx->find("ld.global", at + 1)) {
        EXPECT_EQ(ptx->compare(at, 19, "ld.global.nc.v4.u32"), 0) << ptx->substr(at, 60);
        EXPECT_EQ(kind, ProducerKind::rms_norm);
      }
      if (kind == ProducerKind::rms_norm && kept == 1) {
        EXPECT_LT(place(*ptx, "ld.global.nc.v4.u32"), wait) << "gamma is read ahead";
      }
    }
  }
}

class ProducerLaunches : public FakeDriverTest {
 protected:
  void SetUp() override {
    if (const auto api = nvrtc(); !api) {
      GTEST_SKIP() << api.error().message;
    }
    FakeDriverTest::SetUp();
    open();
  }

  // The launches of one call with `m` rows of k elements on device `index`.
  std::vector<fake::Launch> launches(int index, ProducerKind kind, Pdl pdl, std::int64_t m, std::int64_t k = 4096) {
    const ProducerOperands operands(ProducerShape{.kind = kind, .m = 1, .k = k});
    ProducerSpec spec = operands.spec();
    spec.pdl = pdl;
    const auto producer = prepare_producer(*contexts_[index], spec);
    EXPECT_TRUE(producer) << producer.error().message;
    void* const memory = memory_.data();
    ProducerCall call;
    const std::int64_t cols = kind == ProducerKind::swiglu ? 2 * k : k;
    call.x = {memory, DType::bf16, m, cols, cols, 1};
    call.out = {memory, DType::e4m3, m, k, k, 1};
    call.scales = static_cast<float*>(memory);
    state_->launches.clear();
    const auto ran = (*producer)->run(call);
    EXPECT_TRUE(ran) << ran.error().message;
    EXPECT_TRUE(state_->current.empty()) << "the caller's context is current again";
    return state_->launches;
  }
  static bool has(const fake::Launch& launch, CUlaunchAttributeID id) {
    return std::ranges::any_of(launch.attributes, [id](const CUlaunchAttribute& attribute) { return attribute.id == id; });
  }

  alignas(256) std::array<unsigned char, 256> memory_ = {};  // Stands for every matrix: the fake's kernels touch none.
  env::ScopedOverride cache_{"OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins"};
};

TEST_F(ProducerLaunches, StartEarlyInModeFullAloneAndOnlyWhereTheDeviceCan) {
  for (const ProducerKind kind : kKinds) {
    for (const Pdl pdl : {Pdl::off, Pdl::consume, Pdl::full}) {
      for (const int index : {0, 1}) {  // An H200 and an L40S.
        const auto made = launches(index, kind, pdl, 3);
        ASSERT_EQ(made.size(), 1U) << "one kernel, and nothing else";
        EXPECT_EQ(has(made[0], CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION), pdl == Pdl::full && index == 0)
            << to_string(kind) << " " << to_string(pdl) << " device " << index;
      }
    }
  }
}

TEST_F(ProducerLaunches, ARowHasABlockOrAClusterOfThem) {
  for (const std::int64_t m : {1, 5, 1000}) {
    const auto norm = launches(0, ProducerKind::rms_norm, Pdl::full, m);
    ASSERT_EQ(norm.size(), 1U);
    EXPECT_EQ(norm[0].config.gridDimX, m);
    const auto swiglu = launches(0, ProducerKind::swiglu, Pdl::full, m, 12288);
    ASSERT_EQ(swiglu.size(), 1U);
    EXPECT_EQ(swiglu[0].config.gridDimX, m < 264 ? 8 * m : m);
    EXPECT_EQ(has(swiglu[0], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION), m < 264);
    const auto on_l40s = launches(1, ProducerKind::swiglu, Pdl::full, m, 12288);
    EXPECT_EQ(on_l40s[0].config.gridDimX, m);
    EXPECT_FALSE(has(on_l40s[0], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
  }
}

TEST_F(ProducerLaunches, NoRowsLaunchNothing) {
  EXPECT_TRUE(launches(0, ProducerKind::rms_norm, Pdl::full, 0).empty());
  EXPECT_TRUE(launches(0, ProducerKind::swiglu, Pdl::full, 0).empty());
}

TEST_F(ProducerLaunches, GammaIsOnTheDeviceAsLongAsTheProducerLives) {
  const ProducerOperands operands(ProducerShape{.k = 100});
  const std::size_t before = state_->allocated;
  {
    const auto producer = prepare_producer(*contexts_[0], operands.spec());
    ASSERT_TRUE(producer) << producer.error().message;
    EXPECT_GT(state_->allocated, before);
    EXPECT_GT(state_->modules, 0);
  }
  EXPECT_EQ(state_->allocated, before);
  EXPECT_EQ(state_->modules, 0);
}

TEST_F(ProducerLaunches, MoreRowsThanAGridTakesAreRefused) {
  const ProducerOperands operands(ProducerShape{.kind = ProducerKind::swiglu, .k = 12288});
  const auto producer = prepare_producer(*contexts_[0], operands.spec());
  ASSERT_TRUE(producer) << producer.error().message;
  void* const memory = memory_.data();
  ProducerCall call;
  call.x = {memory, DType::bf16, std::int64_t{1} << 31, 24576, 24576, 1};
  call.out = {memory, DType::e4m3, std::int64_t{1} << 31, 12288, 12288, 1};
  call.scales = static_cast<float*>(memory);
  const auto ran = (*producer)->run(call);
  ASSERT_FALSE(ran);
  EXPECT_THAT(ran.error().message, testing::AllOf(HasSubstr("2147483647"), HasSubstr("2147483648")));
  EXPECT_TRUE(state_->launches.empty());
}

}  // namespace
}  // namespace octile::cuda
