// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what the copy engine of sm_90 and newer needs to know of a matrix.
#pragma once

#include "octile/kernels/cuda/driver.h"

#include <cstdint>

namespace octile::cuda {

// CUtensorMap: passed to a kernel by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
  std::uint64_t opaque[16];
};

// cuTensorMapEncodeTiled of the driver at hand, for one device.
struct TensorMapEncoder {
  using Function = CUresult(TensorMap* map, int type, std::uint32_t rank, void* base, const std::uint64_t* sizes,
                            const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* element_strides,
                            int interleave, int swizzle, int l2_promotion, int fill);
  const DeviceContext* context = nullptr;
  Function* encode = nullptr;
};
// Errors (unavailable) where the driver is older than CUDA 12.0 and has none.
Expected<TensorMapEncoder> find_tensor_map_encoder(const DeviceContext& context);

// Bytes [rows, width] with `stride` bytes between rows, read in boxes of box_rows x 128 bytes that land in shared memory in
// the 128-byte swizzle; zeros beyond. `base` and `stride` are multiples of 16; box_rows <= 256. Host work only.
Expected<void> encode_rows(const TensorMapEncoder& encoder, CUdeviceptr base, std::int64_t rows, std::int64_t width,
                           std::int64_t stride, int box_rows, TensorMap& map);

// A weight [n, k] in layout "slab64" at `base` as lines of 1024 bytes [n / 64 slabs, k / 128 tiles, 8 lines of 8 channels],
// read in boxes of `box_rows` / 8 lines x `box_chunks` tiles that land in shared memory one behind the other, as they are;
// zeros beyond the last tile and slab.
Expected<void> encode_slabs(const TensorMapEncoder& encoder, CUdeviceptr base, std::int64_t n, std::int64_t k, int box_rows,
                            int box_chunks, TensorMap& map);

// encode_rows(), or what it gave this thread for the same matrix lately: an engine calls with the same few buffers.
Expected<void> encode_rows_once(const TensorMapEncoder& encoder, CUdeviceptr base, std::int64_t rows, std::int64_t width,
                                std::int64_t stride, int box_rows, TensorMap& map);

}  // namespace octile::cuda
