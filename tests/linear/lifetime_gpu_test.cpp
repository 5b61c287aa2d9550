// SPDX-License-Identifier: Apache-2.0
// Lives of linears on a GPU: thousands made and destroyed, destroyed beside others that run and behind their own calls.
// Skipped without a GPU that cuBLASLt's row-wise mode and our own kernels serve.
#include "cuda_table.h"
#include "hopper_linears.h"
#include "layer.h"
#include "octile/kernels/cuda/module_store.h"
#include "support/gpu.h"
#include "support/process_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace octile {
namespace {

using test::bytes_of;
using test::CudaTable;
using test::DeviceBytes;
using test::prepared_linear;
using test::Stream;
using test::Weights;

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); }

// One shape on the GPU: random weights, and rows of x for every call.
class Layer {
 public:
  Layer(std::int64_t n, std::int64_t k, std::int64_t max_m)
      : table(n, k),
        max_m_(max_m),
        weights_(n, k),
        x_(test::as_bytes(test::normals(max_m * k, 1.0F), DType::bf16)),
        trace_(__FILE__, __LINE__, test::seed_text()) {
    table.device = test::gpu().context->info;
  }

  std::int64_t y_bytes(std::int64_t m) const { return m * weights_.n * size_of(DType::bf16); }
  // A failure of the test where there is none.
  std::optional<Fp8Weight> weight() const { return packed(weights_.source()); }
  // The same shape, of codes that are NaN: whoever reads them has NaN in every output.
  std::optional<Fp8Weight> weight_of_nan() const {
    const std::vector<std::uint8_t> codes(weights_.codes.size(), 0x7F);
    WeightSource source = weights_.source();
    source.codes = codes.data();
    return packed(source);
  }
  DeviceBytes workspace(const Fp8Linear& linear) const {
    return DeviceBytes(std::max<std::int64_t>(linear.workspace_bytes(max_m_), 256));
  }
  // Fills `y` with NaN before what is enqueued on `stream` next.
  static void poison(const DeviceBytes& y, const Stream& stream) {
    EXPECT_EQ(Stream::driver().memset_d8_async(y.pointer(), 0xFF, static_cast<std::size_t>(y.bytes()), stream.stream),
              cuda::CUDA_SUCCESS);
  }
  // The first `m` rows, into `y` from `y_offset` on.
  void run(const Fp8Linear& linear, std::int64_t m, const DeviceBytes& y, std::int64_t y_offset,
           const DeviceBytes& workspace, cuda::CUstream stream) const {
    const std::int64_t n = weights_.n;
    const std::int64_t k = weights_.k;
    const auto ran = linear.run({x_.data(), DType::bf16, m, k, k, 1},
                                {static_cast<unsigned char*>(y.data()) + y_offset, DType::bf16, m, n, n, 1},
                                workspace.data(), workspace.bytes(), stream);
    EXPECT_TRUE(ran) << ran.error().message;
  }

  CudaTable table;

 private:
  std::optional<Fp8Weight> packed(const WeightSource& source) const { return test::packed_weight(source, table.options()); }

  std::int64_t max_m_;
  Weights weights_;
  DeviceBytes x_;
  testing::ScopedTrace trace_;
};

using LifetimeOnGpu = test::HopperLinears;

// Made, prepared, run with a few M and destroyed, again and again. M = 1 and 16 are a tile of ours, 48 is the vendor's,
// which every fourth life has: its preparation is the dearer one.
class Cycles {
 public:
  Cycles() : layer_(128, 256, kMaxM), y_(layer_.y_bytes(kRows)) {
    layer_.table.write(
        {layer_.table.heuristic_entry("hopper_decode", 1, kLastOfTile), test::baseline_entry(kLastOfTile + 1, kMaxM)});
  }

  const Layer& layer() const { return layer_; }
  // One life, whose outputs have the bits of the first one's; that one is `with_vendor`.
  void one(bool with_vendor) {
    const auto weight = layer_.weight();
    ASSERT_TRUE(weight);
    const auto linear = prepared_linear(*weight, with_vendor ? kMaxM : kLastOfTile);
    ASSERT_TRUE(linear);
    if (wanted_.empty()) {
      ASSERT_EQ(linear->explain(1).kernel, "hopper_decode") << linear->explain(1).reason;
      ASSERT_EQ(linear->explain(kMaxM).kernel, "cublaslt") << linear->explain(kMaxM).reason;
      workspace_ = std::make_unique<DeviceBytes>(layer_.workspace(*linear).bytes());
    }
    y_.fill(0xFF);
    std::int64_t first = 0;
    for (const std::int64_t m : {1, 16, 48}) {
      if (m > kLastOfTile && !with_vendor) {
        break;
      }
      layer_.run(*linear, m, y_, layer_.y_bytes(first), *workspace_, nullptr);
      first += m;
    }
    std::vector<unsigned char> came = bytes_of(y_);
    if (wanted_.empty()) {
      wanted_ = std::move(came);
    } else {
      ASSERT_TRUE(std::equal(came.begin(), came.begin() + layer_.y_bytes(first), wanted_.begin()));
    }
  }

  // `count` cycles after `warm` of them; the growth of the process and of the device's memory is printed and checked.
  void expect_no_growth(int warm, int count) {
    const auto cycles = [&](int of) {
      for (int i = 0; i < of && !testing::Test::HasFatalFailure(); ++i) {
        one(i % 4 == 0);
      }
    };
    cycles(warm);
    const std::int64_t resident_before = test::resident_bytes();
    const std::int64_t free_before = test::free_device_bytes();
    const auto begin = Clock::now();
    cycles(count);
    const std::int64_t resident = test::resident_bytes() - resident_before;
    const std::int64_t device = free_before - test::free_device_bytes();
    std::printf("%d cycles of %.3f ms: the process grew by %lld bytes, the device's memory in use by %lld\n", count,
                ms_since(begin) / count, static_cast<long long>(resident), static_cast<long long>(device));
    if (!test::kSanitized) {
      EXPECT_LT(resident, kMostResident);
    }
    EXPECT_LE(device, kMostOnDevice);
  }

 private:
  static constexpr std::int64_t kMaxM = 64;
  static constexpr std::int64_t kLastOfTile = 16;
  static constexpr std::int64_t kRows = 1 + 16 + 48;
  // 10,000 times 512 bytes would be 5 MB, 1000 copies of a kernel's code of at least 10 KB 10 MB. Below lies what the driver
  // takes for its own lists, which grow by pages.
  static constexpr std::int64_t kMostResident = 4'000'000;
  // The driver takes memory from the device by 2 MiB, and one such piece may have been about to be taken. The smallest
  // allocation that it makes for us, 512 bytes, left behind 10,000 times would be three of them.
  static constexpr std::int64_t kMostOnDevice = std::int64_t{2} << 20;

  Layer layer_;
  DeviceBytes y_;
  std::unique_ptr<DeviceBytes> workspace_;
  std::vector<unsigned char> wanted_;
};

constexpr int kFew = test::kSanitized ? 30 : 300;

TEST_F(LifetimeOnGpu, TenThousandCyclesBesideOneThatStaysTakeNoMemoryAway) {
  Cycles cycles;
  // It keeps the kernels loaded, which would otherwise be most of a cycle.
  const auto weight = cycles.layer().weight();
  ASSERT_TRUE(weight);
  const auto staying = prepared_linear(*weight, 64);
  ASSERT_TRUE(staying);
  cycles.expect_no_growth(kFew, test::kSanitized ? 300 : 10'000);
}

TEST_F(LifetimeOnGpu, AThousandCyclesThatLoadTheirKernelsLeaveNoneLoaded) {
  const std::int64_t loaded = cuda::loaded_module_bytes(*test::gpu().context);
  Cycles cycles;
  cycles.expect_no_growth(kFew, test::kSanitized ? 100 : 1000);
  EXPECT_EQ(cuda::loaded_module_bytes(*test::gpu().context), loaded);
}

// Linears of the same weight, the weight's own handle and its last name are gone while another thread goes on calling one on
// a stream of its own: it keeps what it needs.
TEST_F(LifetimeOnGpu, OthersAreDestroyedWhileOneRunsOnAnotherThreadAndStream) {
  constexpr std::int64_t kMaxM = 64;
  Layer layer(512, 1024, kMaxM);
  layer.table.write({layer.table.heuristic_entry("hopper_decode", 1, 16), test::baseline_entry(17, kMaxM)});
  auto weight = layer.weight();
  ASSERT_TRUE(weight);
  auto serving = prepared_linear(*weight, kMaxM);
  ASSERT_TRUE(serving);
  const auto outputs_of = [&](const Fp8Linear& linear, const DeviceBytes& workspace, const Stream& stream) {
    const DeviceBytes y(layer.y_bytes(1 + kMaxM));
    Layer::poison(y, stream);
    layer.run(linear, 1, y, 0, workspace, stream.stream);
    layer.run(linear, kMaxM, y, layer.y_bytes(1), workspace, stream.stream);
    stream.synchronize();
    return bytes_of(y);
  };
  std::vector<unsigned char> wanted;
  {
    const Stream stream(cuda::CU_STREAM_NON_BLOCKING);
    wanted = outputs_of(*serving, layer.workspace(*serving), stream);
  }
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::atomic<int> calls{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, mine = *serving] {
      const Stream stream(cuda::CU_STREAM_NON_BLOCKING);
      const DeviceBytes workspace = layer.workspace(mine);
      while (!ends) {
        wrong += outputs_of(mine, workspace, stream) == wanted ? 0 : 1;
        ++calls;
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(prepared_linear(*weight, kMaxM));
  }
  weight.reset();
  serving.reset();
  const auto in_its_place = layer.weight_of_nan();
  for (const int seen = calls; calls < seen + 20 && !HasFailure();) {
    std::this_thread::yield();
  }
  ends = true;
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

// The last copy of a linear goes, on the thread that called it, while its calls are still waiting on the stream: they run
// with the weight and the kernels that they were enqueued with. What takes the place of the weight at once would show as
// NaN.
TEST_F(LifetimeOnGpu, CallsThatAreEnqueuedWhenTheirLinearIsDestroyedAreStillRight) {
  constexpr std::int64_t kM = 2048;  // Some 80 us of the GPU a call, a tenth of it on the host.
  constexpr int kCalls = 24;
  for (const char* kernel : {"hopper_wgmma", "cublaslt"}) {
    SCOPED_TRACE(kernel);
    Layer layer(4096, 4096, kM);
    layer.table.write(
        {std::string(kernel) == "cublaslt" ? test::baseline_entry(1, kM) : layer.table.heuristic_entry(kernel, 1, kM)});
    auto weight = layer.weight();
    ASSERT_TRUE(weight);
    auto linear = prepared_linear(*weight, kM);
    ASSERT_TRUE(linear);
    ASSERT_EQ(linear->explain(kM).kernel, kernel) << linear->explain(kM).reason;
    const Stream stream(cuda::CU_STREAM_NON_BLOCKING);
    const DeviceBytes workspace = layer.workspace(*linear);
    const DeviceBytes y((kCalls + 1) * layer.y_bytes(kM));
    Layer::poison(y, stream);
    layer.run(*linear, kM, y, 0, workspace, stream.stream);
    stream.synchronize();

    const auto begin = Clock::now();
    double enqueued_ms = 0.0;
    double destroyed_ms = 0.0;
    std::jthread caller([&, mine = linear]() mutable {
      for (int i = 1; i <= kCalls; ++i) {
        layer.run(*mine, kM, y, i * layer.y_bytes(kM), workspace, stream.stream);
      }
      enqueued_ms = ms_since(begin);
      mine.reset();
      destroyed_ms = ms_since(begin);
    });
    linear.reset();
    weight.reset();
    caller.join();
    const auto in_its_place = layer.weight_of_nan();
    stream.synchronize();
    std::printf(
        "%s: %d calls were enqueued after %.2f ms, their linear was gone after %.2f ms, all had ended after %.2f ms\n",
        kernel, kCalls, enqueued_ms, destroyed_ms, ms_since(begin));
    const std::vector<unsigned char> all = bytes_of(y);
    const std::int64_t step = layer.y_bytes(kM);
    for (int i = 1; i <= kCalls; ++i) {
      ASSERT_TRUE(std::equal(all.begin(), all.begin() + step, all.begin() + i * step)) << "call " << i;
    }
  }
}

}  // namespace
}  // namespace octile
