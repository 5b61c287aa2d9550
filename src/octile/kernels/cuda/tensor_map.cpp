// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cuda/tensor_map.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/library_search.h"

#include <array>
#include <cstddef>

namespace octile::cuda {
namespace {

// Values of CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill.
constexpr int kTypeUint8 = 0;
constexpr int kTypeUint32 = 2;
constexpr int kInterleaveNone = 0;
constexpr int kSwizzleNone = 0;
constexpr int kSwizzle128 = 3;
constexpr int kPromotion256 = 3;
constexpr int kFillZeros = 0;
constexpr std::uint32_t kBoxBytes = 128;

}  // namespace

Expected<TensorMapEncoder> find_tensor_map_encoder(const DeviceContext& context) {
  const Driver& driver = *context.driver;
  const auto library = open_library_file(driver.path);
  if (!library) {
    return library.error();
  }
  void* const symbol = find_symbol(*library, "cuTensorMapEncodeTiled");
  if (symbol == nullptr) {
    return make_error(ErrorCode::unavailable, "{} has no cuTensorMapEncodeTiled: want a driver of CUDA 12.0 or newer",
                      driver.path);
  }
  return TensorMapEncoder{&context, reinterpret_cast<TensorMapEncoder::Function*>(symbol)};
}

Expected<void> encode_rows(const TensorMapEncoder& encoder, CUdeviceptr base, std::int64_t rows, std::int64_t width,
                           std::int64_t stride, int box_rows, TensorMap& map) {
  const std::uint64_t sizes[] = {static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(rows)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride)};
  const std::uint32_t box[] = {kBoxBytes, static_cast<std::uint32_t>(box_rows)};
  const std::uint32_t element_strides[] = {1, 1};
  const CUresult result = encoder.encode(&map, kTypeUint8, 2, to_pointer(base), sizes, strides, box, element_strides,
                                         kInterleaveNone, kSwizzle128, kPromotion256, kFillZeros);
  if (result != CUDA_SUCCESS) {
    return device_error(*encoder.context, result,
                        format("cuTensorMapEncodeTiled([{}, {}] bytes at {:#x}, row stride {}, boxes of {} rows)", rows,
                               width, base, stride, box_rows));
  }
  return {};
}

Expected<void> encode_slabs(const TensorMapEncoder& encoder, CUdeviceptr base, std::int64_t n, std::int64_t k, int box_rows,
                            int box_chunks, TensorMap& map) {
  constexpr std::uint32_t kLineWords = 256;  // The most of a box along one dimension.
  constexpr std::uint64_t kLineBytes = 1024;
  constexpr std::uint64_t kLinesOfTile = 8;
  constexpr std::int64_t kSlabRows = 64;
  constexpr std::int64_t kChunkBytes = 128;
  const std::uint64_t sizes[] = {kLineWords, kLinesOfTile, static_cast<std::uint64_t>(k / kChunkBytes),
                                 static_cast<std::uint64_t>(n / kSlabRows)};
  const std::uint64_t strides[] = {kLineBytes, kLinesOfTile * kLineBytes, static_cast<std::uint64_t>(kSlabRows * k)};
  const std::uint32_t box[] = {kLineWords, static_cast<std::uint32_t>(box_rows / 8), static_cast<std::uint32_t>(box_chunks),
                               1};
  const std::uint32_t element_strides[] = {1, 1, 1, 1};
  const CUresult result = encoder.encode(&map, kTypeUint32, 4, to_pointer(base), sizes, strides, box, element_strides,
                                         kInterleaveNone, kSwizzleNone, kPromotion256, kFillZeros);
  if (result != CUDA_SUCCESS) {
    return device_error(*encoder.context, result,
                        format("cuTensorMapEncodeTiled([{}, {}] codes in slabs at {:#x}, boxes of {} rows and {} chunks)", n,
                               k, base, box_rows, box_chunks));
  }
  return {};
}

Expected<void> encode_rows_once(const TensorMapEncoder& encoder, CUdeviceptr base, std::int64_t rows, std::int64_t width,
                                std::int64_t stride, int box_rows, TensorMap& map) {
  struct Known {
    CUdeviceptr base = 0;
    std::int64_t rows = 0;
    std::int64_t width = 0;
    std::int64_t stride = 0;
    int box_rows = 0;
    TensorMap map = {};
  };
  constexpr std::size_t kKnown = 8;
  // A map says nothing that these five values do not, so that one whose memory was freed and given out again is still right.
  thread_local std::array<Known, kKnown> known = {};
  thread_local std::size_t next = 0;
  for (const Known& one : known) {
    if (one.base == base && one.rows == rows && one.width == width && one.stride == stride && one.box_rows == box_rows) {
      map = one.map;
      return {};
    }
  }
  Known made = {base, rows, width, stride, box_rows, {}};
  if (auto ok = encode_rows(encoder, base, rows, width, stride, box_rows, made.map); !ok) {
    return ok;
  }
  known[next] = made;
  next = (next + 1) % kKnown;
  map = made.map;
  return {};
}

}  // namespace octile::cuda
