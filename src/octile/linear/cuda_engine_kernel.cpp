// SPDX-License-Identifier: Apache-2.0
// An engine's registered baseline on a GPU: our quantiser's codes and scales go to the engine's function, on the call's
// stream.
#include "octile/linear/cuda_engine_kernel.h"

#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/linear/engine_kernel.h"
#include "octile/quant/quantize.h"

#include <utility>

namespace octile {

namespace {

using cuda::CUdeviceptr;

class CudaEngineKernel final : public Kernel {
 public:
  CudaEngineKernel(std::shared_ptr<const EngineBaseline> engine, const cuda::DeviceContext& context, const Problem& problem,
                   cuda::QuantiseKernel quantise)
      : engine_(std::move(engine)), context_(&context), problem_(problem), quantise_(std::move(quantise)) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override {
    return compact_bytes(m) + quantise_.workspace_bytes(m);
  }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    if (args.activation.x.rows == 0) {
      return {};
    }
    // The engine's function finds the device's context current, too.
    const cuda::CurrentContext current(*context_);
    if (auto made = current.made(); !made) {
      return made.error();
    }
    const auto codes = contiguous_codes(args);
    if (!codes) {
      return codes.error();
    }
    return call_engine(*engine_, problem_, weight, args, cuda::to_pointer(codes->codes),
                       static_cast<const float*>(cuda::to_pointer(codes->scales)));
  }

 private:
  // The engine wants rows of K bytes. Our quantiser's are padded to multiples of 16: where that makes a difference a compact
  // copy goes first into the workspace. A copy of a caller's codes finds room in either part.
  std::int64_t compact_bytes(std::int64_t m) const noexcept {
    return cuda::codes_stride(problem_.k) == problem_.k ? 0 : cuda::round_up(m * problem_.k, 256);
  }

  // The device's context is current.
  Expected<cuda::DeviceCodes> contiguous_codes(const LaunchArgs& args) const {
    const Activation& activation = args.activation;
    const std::int64_t m = activation.x.rows;
    auto* const stream = static_cast<cuda::CUstream>(args.stream);
    cuda::DeviceCodes codes;
    if (activation.scales != nullptr) {
      if (auto ok = check_codes_view(activation.x, problem_.k); !ok) {
        return ok.error();
      }
      codes.codes = cuda::to_device_pointer(activation.x.data);
      codes.scales = cuda::to_device_pointer(activation.scales);
      codes.stride = activation.x.row_stride;
    } else {
      const CUdeviceptr behind = cuda::to_device_pointer(args.workspace) + static_cast<CUdeviceptr>(compact_bytes(m));
      auto quantised = quantise_.run(activation, cuda::to_pointer(behind), stream, false);
      if (!quantised) {
        return quantised;
      }
      codes = *quantised;
    }
    if (codes.stride == problem_.k || m == 1) {
      return codes;
    }
    const CUdeviceptr compact = cuda::to_device_pointer(args.workspace);
    if (const cuda::CUresult result =
            cuda::copy_rows_async(*context_->driver, compact, problem_.k, codes.codes, codes.stride, problem_.k, m, stream);
        result != cuda::CUDA_SUCCESS) {
      return cuda::device_error(*context_, result, "copying the rows of the codes");
    }
    codes.codes = compact;
    codes.stride = problem_.k;
    return codes;
  }

  std::shared_ptr<const EngineBaseline> engine_;
  const cuda::DeviceContext* context_;
  Problem problem_;
  cuda::QuantiseKernel quantise_;
};

}  // namespace

Expected<std::unique_ptr<Kernel>> make_cuda_engine_kernel(std::shared_ptr<const EngineBaseline> engine,
                                                          const cuda::DeviceContext& context, const Problem& problem) {
  auto quantise = cuda::QuantiseKernel::prepare(context, problem.k);
  if (!quantise) {
    return quantise.error();
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<CudaEngineKernel>(std::move(engine), context, problem, std::move(*quantise)));
}

}  // namespace octile
