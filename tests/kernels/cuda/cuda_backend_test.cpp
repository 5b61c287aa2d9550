// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: quiet and quick without a GPU; memory, contexts, graphs on one.
#include "octile/kernels/cuda/cuda_backend.h"

#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/cutlass_family.h"
#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/cuda/module_store.h"
#include "support/gpu_linear.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <thread>

namespace octile::cuda {
namespace {

using test::DeviceLinear;
using test::LinearCase;

TEST(CudaBackend, HasDevicesOrAReasonWhyNot) {
  EXPECT_EQ(cuda_backend().devices().empty(), !no_device_reason().empty()) << no_device_reason();
  EXPECT_EQ(cuda_backend().kind(), DeviceKind::cuda);
}

TEST(CudaBackend, EveryFamilyNamesALayoutThatPackKnowsAndAHash) {
  for (const KernelFamily* family : cuda_backend().families()) {
    EXPECT_EQ(family->layout(), kRowMajor) << family->name();
    EXPECT_GE(family->source_hash().size(), 32U) << family->name();
  }
}

TEST(CudaBackend, ADeviceThatIsNotThereIsRefused) {
  DeviceInfo absent;
  absent.id = "cuda:977";
  absent.kind = DeviceKind::cuda;
  absent.index = 977;
  absent.arch = "sm_90";
  const auto buffer = cuda_backend().allocate(absent, 16);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::unavailable) << buffer.error().message;
  EXPECT_FALSE(cuda_backend().prepare_stream_floor(absent));
  EXPECT_FALSE(cuda_backend().make_sequence(absent, {}));
}

TEST(CudaBackend, StatesTheMemoryThatItsPartsTakeAtMost) {
  for (const char* arch : {"sm_80", "sm_89", "sm_90", "sm_120"}) {
    DeviceInfo device;
    device.kind = DeviceKind::cuda;
    device.arch = arch;
    const std::int64_t vendor_bytes = cuda_backend().baseline(device, {}) == nullptr ? 0 : kVendorResidentBytes;
    EXPECT_EQ(cuda_backend().overhead_bytes(device), kModuleBudgetBytes + vendor_bytes) << arch;
  }
  EXPECT_LT(kModuleBudgetBytes + kVendorResidentBytes, std::int64_t{64} << 20);
}

TEST(CudaBackend, EveryVendorIsThereOrSaysWhyNot) {
  DeviceInfo ada;
  ada.kind = DeviceKind::cuda;
  ada.arch = "sm_89";
  for (const VendorStatus& vendor : cuda_backend().vendors(ada)) {
    EXPECT_EQ(vendor.available, vendor.reason.empty()) << vendor.name << ": " << vendor.reason;
    EXPECT_TRUE(!vendor.available || !vendor.version.empty()) << vendor.name;
  }
  // There is no other vendor of row-wise products on sm_89.
  const bool has_cutlass = cutlass_family().available(ada).has_value();
  EXPECT_EQ(cuda_backend().baseline(ada, Problem{}), has_cutlass ? &cutlass_family() : nullptr);
}

class CudaOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_backend().devices().empty()) {
      GTEST_SKIP() << "no GPU: " << no_device_reason();
    }
    device_ = cuda_backend().devices().front();
  }
  DeviceInfo device_;
};

TEST_F(CudaOnGpu, BytesComeBackAsTheyWent) {
  SCOPED_TRACE(test::seed_text());
  const auto sent = test::random_codes(100'003);
  auto buffer = cuda_backend().allocate(device_, static_cast<std::int64_t>(sent.size()));
  ASSERT_TRUE(buffer) << buffer.error().message;
  ASSERT_TRUE(cuda_backend().upload(device_, (*buffer)->data(), sent.data(), static_cast<std::int64_t>(sent.size())));
  std::vector<std::uint8_t> came(sent.size());
  ASSERT_TRUE(cuda_backend().download(device_, came.data(), (*buffer)->data(), static_cast<std::int64_t>(came.size())));
  EXPECT_EQ(sent, came);
}

TEST_F(CudaOnGpu, TooLargeAnAllocationSaysWhatIsFree) {
  const auto buffer = cuda_backend().allocate(device_, device_.memory_bytes * 4);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(buffer.error().message.find("bytes are free"), std::string::npos) << buffer.error().message;
}

TEST_F(CudaOnGpu, TheCallersContextStaysCurrent) {
  const auto* api = *driver();
  CUcontext before = nullptr;
  ASSERT_EQ(api->ctx_get_current(&before), CUDA_SUCCESS);
  auto buffer = cuda_backend().allocate(device_, 1024);
  ASSERT_TRUE(buffer);
  CUcontext after = nullptr;
  ASSERT_EQ(api->ctx_get_current(&after), CUDA_SUCCESS);
  EXPECT_EQ(before, after);
}

TEST_F(CudaOnGpu, PackedRowsAreZeroBeyondNAndK) {
  SCOPED_TRACE(test::seed_text());
  const std::int64_t n = 21;
  const std::int64_t k = 37;
  const auto codes = test::random_codes(n * k);
  const float scale = 0.5F;
  WeightSource source;
  source.n = n;
  source.k = k;
  source.codes = codes.data();
  source.scales = &scale;
  source.scale_dtype = DType::fp32;
  source.scale_count = 1;
  auto packed = cuda_backend().pack(device_, kRowMajor, source);
  ASSERT_TRUE(packed) << packed.error().message;
  const auto& weight = dynamic_cast<const CudaWeight&>(**packed);
  EXPECT_EQ(weight.n_padded(), 32);
  EXPECT_EQ(weight.k_padded(), 48);
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(32 * 48));
  ASSERT_TRUE(cuda_backend().download(device_, rows.data(), to_pointer(weight.codes()), 32 * 48));
  std::vector<float> scales(32);
  ASSERT_TRUE(cuda_backend().download(device_, scales.data(), to_pointer(weight.scales()), 32 * 4));
  for (std::int64_t row = 0; row < 32; ++row) {
    EXPECT_EQ(scales[static_cast<std::size_t>(row)], row < n ? scale : 0.0F) << row;
    for (std::int64_t col = 0; col < 48; ++col) {
      const int wanted = row < n && col < k ? codes[static_cast<std::size_t>(row * k + col)] : 0;
      ASSERT_EQ(rows[static_cast<std::size_t>(row * 48 + col)], wanted) << row << ", " << col;
    }
  }
}

TEST_F(CudaOnGpu, ASequenceRunsItsCallsAndTimesThem) {
  SCOPED_TRACE(test::seed_text());
  const LinearCase linear_case = {.m = 16, .n = 4096, .k = 4096};
  DeviceLinear linear(cuda_backend(), device_, linear_case, kRowMajor);
  ASSERT_TRUE(linear.ready());
  auto floor = cuda_backend().prepare_stream_floor(device_);
  ASSERT_TRUE(floor) << floor.error().message;
  auto workspace = cuda_backend().allocate(device_, (*floor)->workspace_bytes(0));
  ASSERT_TRUE(workspace);
  LaunchArgs args = linear.arguments();
  args.workspace = (*workspace)->data();
  args.workspace_bytes = (*workspace)->bytes();
  const TimedCall call = [&](void* stream) {
    args.stream = stream;
    return (*floor)->run(linear.weight(), args);
  };
  auto sequence = cuda_backend().make_sequence(device_, std::vector<TimedCall>(20, call));
  ASSERT_TRUE(sequence) << sequence.error().message;
  const auto time = (*sequence)->time_us();
  ASSERT_TRUE(time) << time.error().message;
  EXPECT_GT(*time, 0.0);
}

TEST_F(CudaOnGpu, ACallThatFailsFailsTheSequenceAndNothingElse) {
  const TimedCall bad = [](void*) -> Expected<void> { return Error{ErrorCode::failed, "on purpose"}; };
  const auto sequence = cuda_backend().make_sequence(device_, {bad});
  ASSERT_FALSE(sequence);
  EXPECT_EQ(sequence.error().message, "on purpose");
  EXPECT_TRUE(cuda_backend().allocate(device_, 64));
}

TEST_F(CudaOnGpu, SeveralThreadsRunDistinctLinearsAtOnce) {
  if (!cublaslt_family().available(device_)) {
    GTEST_SKIP() << "cuBLASLt's row-wise mode does not serve " << device_.name;
  }
  SCOPED_TRACE(test::seed_text());
  std::vector<std::unique_ptr<DeviceLinear>> linears;
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (int i = 0; i < 4; ++i) {
    const LinearCase linear_case = {.m = 8 + i, .n = 256 + 16 * i, .k = 1024};
    linears.push_back(std::make_unique<DeviceLinear>(cuda_backend(), device_, linear_case, kRowMajor));
    ASSERT_TRUE(linears.back()->ready());
    auto kernel = cublaslt_family().prepare(device_, linears.back()->problem(), {}, linear_case.m);
    ASSERT_TRUE(kernel) << kernel.error().message;
    kernels.push_back(std::move(*kernel));
  }
  std::vector<std::string> verdicts(linears.size(), "not run");
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < linears.size(); ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 20; ++round) {
          verdicts[i] = linears[i]->run(*kernels[i]) ? linears[i]->verdict() : "failed";
          if (!verdicts[i].empty()) {
            return;
          }
        }
      });
    }
  }
  for (const std::string& verdict : verdicts) {
    EXPECT_EQ(verdict, "");
  }
}

}  // namespace
}  // namespace octile::cuda
