// SPDX-License-Identifier: Apache-2.0
// The weight layout "slab64": where its bytes lie, and the kernels that bring codes into it and back (slab64.cuh).
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cuda_module.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octile::cuda {

inline constexpr std::string_view kSlab64 = "slab64";
inline constexpr std::int64_t kSlabChannels = 64;
inline constexpr std::int64_t kSlabChunk = 128;  // Bytes of K in a tile.

// Errors (invalid_argument): N is no multiple of 64 or K none of 128. The message says what came.
Expected<void> check_slab64_shape(std::int64_t n, std::int64_t k);

// Where the code of `channel` at `column` of K lies.
constexpr std::int64_t slab64_offset(std::int64_t channel, std::int64_t column, std::int64_t k) noexcept {
  constexpr std::int64_t kVector = 16;
  constexpr std::int64_t kSwizzledRows = 8;
  const std::int64_t row = channel % kSlabChannels;
  const std::int64_t vector = (column % kSlabChunk / kVector) ^ (row % kSwizzledRows);
  return channel / kSlabChannels * kSlabChannels * k + column / kSlabChunk * kSlabChannels * kSlabChunk + row * kSlabChunk +
         vector * kVector + column % kVector;
}

// A request of the copy engine: `rows` channels (16, 32 or 64) that begin at a multiple of them, `chunks` (1..8) of K.
struct SlabBox {
  int rows = 64;
  int chunks = 1;
};
// The boxes that a weight keeps a map for, as the kernels ask for them: of 16 rows one chunk, of more rows 1 to 8.
inline constexpr int kMostSlabChunks = 8;
inline constexpr std::size_t kSlabBoxes = 1 + 2 * kMostSlabChunks;
constexpr SlabBox slab_box(std::size_t index) noexcept {
  const int place = static_cast<int>(index);
  return place == 0 ? SlabBox{16, 1} : SlabBox{place <= kMostSlabChunks ? 32 : 64, (place - 1) % kMostSlabChunks + 1};
}
// Of the box, in that order. Precondition: it is one of them.
constexpr std::size_t slab_box_index(const SlabBox& box) noexcept {
  return box.rows == 16 ? 0 : static_cast<std::size_t>((box.rows == 32 ? 0 : kMostSlabChunks) + box.chunks);
}

// Slow: compile (or take from the cache) and load.
Expected<LoadedKernel> load_rows_to_slabs(const DeviceContext& context);
Expected<LoadedKernel> load_slabs_to_rows(const DeviceContext& context);

// Codes [n, k] as rows, with `stride` bytes between them, and the same as slabs, in memory of one device.
struct SlabCodes {
  CUdeviceptr rows = 0;
  std::int64_t stride = 0;
  CUdeviceptr slabs = 0;
  std::int64_t n = 0;  // A shape that check_slab64_shape() has passed.
  std::int64_t k = 0;
};
// Enqueues `kernel`, one of the two above. The device's context must be current.
Expected<void> permute_slabs(const LoadedKernel& kernel, const SlabCodes& codes, CUstream stream);

}  // namespace octile::cuda
