// SPDX-License-Identifier: Apache-2.0
// The floor that no linear beats: a kernel that reads the weight once and does nothing else.
#include "octile/kernels/cuda/stream_floor.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/cuda_weight.h"

#include <utility>

namespace octile::cuda {
namespace {

// The kernel's parameter, as in stream_floor.cuh.
struct StreamFloorParams {
  CUdeviceptr data;
  CUdeviceptr sink;
  std::int64_t bytes;
  std::uint32_t chunk_bytes;
  std::uint32_t stages;
};
static_assert(sizeof(StreamFloorParams) == 32);

// sm_90 and newer: one block a multiprocessor with a ring of 12 x 16 KiB copies in flight, 4.6 TB/s on an H200. Older: 8
// blocks of 256 threads with 4 loads of 16 bytes each.
constexpr std::uint32_t kChunkBytes = 16 << 10;
constexpr std::uint32_t kStages = 12;
constexpr unsigned kRingThreads = 32;
constexpr unsigned kLoadThreads = 256;
constexpr unsigned kLoadBlocks = 8;
constexpr unsigned kRingBytes = kStages * (kChunkBytes + 8);

class StreamFloorKernel final : public Kernel {
 public:
  StreamFloorKernel(LoadedKernel kernel, bool has_bulk_copies, unsigned sm_count) noexcept : kernel_(std::move(kernel)) {
    shape_.grid = {has_bulk_copies ? sm_count : sm_count * kLoadBlocks, 1, 1};
    shape_.block = {has_bulk_copies ? kRingThreads : kLoadThreads, 1, 1};
    shape_.dynamic_shared_bytes = has_bulk_copies ? kRingBytes : 0;
  }

  std::int64_t workspace_bytes(std::int64_t /*m*/) const noexcept override {
    return std::int64_t{shape_.grid[0]} * static_cast<std::int64_t>(sizeof(std::uint32_t));
  }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    auto ours = as_cuda_weight(weight, kernel_.context());
    if (!ours) {
      return ours.error();
    }
    if (args.workspace_bytes < workspace_bytes(0)) {
      return make_error(ErrorCode::invalid_argument, "the stream floor needs a workspace of {} bytes, got {}",
                        workspace_bytes(0), args.workspace_bytes);
    }
    const CurrentContext current(kernel_.context());
    if (auto made = current.made(); !made) {
      return made.error();
    }
    const StreamFloorParams params = {(*ours)->codes(), to_device_pointer(args.workspace),
                                      (*ours)->n_padded() * (*ours)->k_padded(), kChunkBytes, kStages};
    return launch_with(kernel_, shape_, static_cast<CUstream>(args.stream), params);
  }

 private:
  LoadedKernel kernel_;
  LaunchShape shape_;
};

}  // namespace

Expected<std::unique_ptr<Kernel>> prepare_stream_floor_kernel(const DeviceContext& context) {
  // "sm_89" < "sm_90" as text; three digits come after two.
  const bool has_bulk_copies = context.info.arch.size() > 5 || context.info.arch >= "sm_90";
  auto kernel = compile_and_load(context, {"", "stream_floor.cuh", {"UNROLL=4"}, "octile_stream_floor"},
                                 has_bulk_copies ? kRingBytes : 0);
  if (!kernel) {
    return kernel.error();
  }
  return std::unique_ptr<Kernel>(std::make_unique<StreamFloorKernel>(std::move(*kernel), has_bulk_copies,
                                                                     static_cast<unsigned>(context.info.sm_count)));
}

}  // namespace octile::cuda
