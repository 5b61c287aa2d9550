// SPDX-License-Identifier: Apache-2.0
// The engine's weight, the calls of its function, and its kernel on a CPU: codes of the activations go first into the
// workspace, their scales behind them.
#include "octile/linear/engine_kernel.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "octile/linear/choose.h"
#include "octile/linear/cuda_engine_kernel.h"
#include "octile/quant/quantize.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace octile {

namespace {

constexpr std::int64_t kAlignment = 64;

constexpr std::int64_t align_up(std::int64_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class EngineWeight final : public PackedWeight {
 public:
  EngineWeight(std::int64_t n, std::int64_t k, std::unique_ptr<DeviceBuffer> codes,
               std::unique_ptr<DeviceBuffer> scales) noexcept
      : n_(n), k_(k), codes_(std::move(codes)), scales_(std::move(scales)) {}

  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override { return codes_->bytes() + scales_->bytes(); }
  std::string_view layout() const noexcept override { return kEngineLayout; }
  const void* codes() const noexcept { return codes_->data(); }
  const float* scales() const noexcept { return static_cast<const float*>(scales_->data()); }

 private:
  std::int64_t n_;
  std::int64_t k_;
  std::unique_ptr<DeviceBuffer> codes_;
  std::unique_ptr<DeviceBuffer> scales_;
};

class CpuEngineKernel final : public Kernel {
 public:
  CpuEngineKernel(std::shared_ptr<const EngineBaseline> engine, const Problem& problem)
      : engine_(std::move(engine)), problem_(problem) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override {
    return align_up(m * problem_.k) + align_up(m * static_cast<std::int64_t>(sizeof(float)));
  }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    const ConstMatrixView& x = args.activation.x;
    const bool contiguous = x.row_stride == problem_.k || x.rows == 1;
    if (args.activation.scales != nullptr && contiguous) {
      return call_engine(*engine_, problem_, weight, args, x.data, args.activation.scales);
    }
    auto* codes = static_cast<std::uint8_t*>(args.workspace);
    auto* scales = reinterpret_cast<float*>(codes + align_up(x.rows * problem_.k));
    quantise(args.activation, codes, scales);
    return call_engine(*engine_, problem_, weight, args, codes,
                       args.activation.scales != nullptr ? args.activation.scales : scales);
  }

 private:
  void quantise(const Activation& activation, std::uint8_t* codes, float* scales) const {
    const ConstMatrixView& x = activation.x;
    const auto fill_row = [&](std::int64_t row) {
      const auto* source = static_cast<const std::uint8_t*>(x.data) + row * x.row_stride * size_of(x.dtype);
      std::uint8_t* target = codes + row * problem_.k;
      if (activation.scales != nullptr) {
        std::memcpy(target, source, static_cast<std::size_t>(problem_.k));
      } else if (activation.static_scale > 0.0F) {
        scales[row] = quantize_row_static(source, x.dtype, problem_.k, target, activation.static_scale);
      } else {
        scales[row] = quantize_row(source, x.dtype, problem_.k, target, activation.quantize);
      }
    };
    cpu::ThreadPool& pool = cpu::ThreadPool::instance();
    const int parts = static_cast<int>(std::min<std::int64_t>(x.rows, pool.size()));
    pool.run(parts, [&](int part) {
      for (std::int64_t row = x.rows * part / parts; row < x.rows * (part + 1) / parts; ++row) {
        fill_row(row);
      }
    });
  }

  std::shared_ptr<const EngineBaseline> engine_;
  Problem problem_;
};

}  // namespace

Expected<std::shared_ptr<PackedWeight>> pack_for_engine(const Backend& backend, const DeviceInfo& device,
                                                        const WeightSource& source) {
  auto codes = backend.allocate(device, source.n * source.k);
  if (!codes) {
    return codes.error();
  }
  const auto scale_bytes = source.n * static_cast<std::int64_t>(sizeof(float));
  auto scales = backend.allocate(device, scale_bytes);
  if (!scales) {
    return scales.error();
  }
  const void* contiguous = source.codes;
  std::vector<std::uint8_t> compact;
  if (source.row_stride != source.k) {
    compact.resize(static_cast<std::size_t>(source.n * source.k));
    for (std::int64_t row = 0; row < source.n; ++row) {
      std::memcpy(compact.data() + row * source.k, static_cast<const std::uint8_t*>(source.codes) + row * source.row_stride,
                  static_cast<std::size_t>(source.k));
    }
    contiguous = compact.data();
  }
  if (auto ok = backend.upload(device, (*codes)->data(), contiguous, source.n * source.k); !ok) {
    return ok.error();
  }
  if (auto ok = backend.upload(device, (*scales)->data(), source.scales, scale_bytes); !ok) {
    return ok.error();
  }
  return std::shared_ptr<PackedWeight>(
      std::make_shared<EngineWeight>(source.n, source.k, std::move(*codes), std::move(*scales)));
}

Expected<void> call_engine(const EngineBaseline& engine, const Problem& problem, const PackedWeight& weight,
                           const LaunchArgs& args, const void* codes, const float* scales) {
  const auto& packed = static_cast<const EngineWeight&>(weight);
  BaselineCall call;
  call.m = args.activation.x.rows;
  call.n = problem.n;
  call.k = problem.k;
  call.codes_x = codes;
  call.scales_x = scales;
  call.weight_codes = packed.codes();
  call.weight_scales = packed.scales();
  call.bias = args.bias;
  call.y = args.y.data;
  call.y_row_stride = args.y.row_stride;
  call.out_dtype = problem.out_dtype;
  call.stream = args.stream;
  if (const int status = engine.call(call); status != 0) {
    return make_error(ErrorCode::failed, "the baseline {} returned {} for M = {}, N = {}, K = {}", engine.name, status,
                      call.m, call.n, call.k);
  }
  return {};
}

Expected<std::unique_ptr<Kernel>> make_engine_kernel(std::shared_ptr<const EngineBaseline> engine, const DeviceInfo& device,
                                                     const Problem& problem) {
  if (device.kind == DeviceKind::cpu) {
    return std::unique_ptr<Kernel>(std::make_unique<CpuEngineKernel>(std::move(engine), problem));
  }
  const auto context = cuda::device_context(device.index);
  if (!context) {
    return context.error();
  }
  return make_cuda_engine_kernel(std::move(engine), **context, problem);
}

}  // namespace octile
