// SPDX-License-Identifier: Apache-2.0
// liboctile_cutlass.so: the C interface over the compiled tiles.
//
// OCTILE_CUTLASS_PTX is the compute capability whose PTX the library holds, OCTILE_CUTLASS_SOURCE_HASH a hash of the
// component's sources; nvcc lists the ones whose machine code it makes in __CUDA_ARCH_LIST__.
#include "tile.h"

#include <cutlass/version.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace octile::cutlass_component {
namespace {

// Codes up to 99 are ours; a CUDA error is kCudaErrors + its number.
enum Code {
  kOk = 0,
  kNoSuchConfig = 1,
  kTooSmallStruct = 2,
  kUnknownOutput = 3,
  kEmpty = 4,
  kTooLarge = 5,
  kUnalignedK = 6,
  kUnalignedRows = 7,
  kMissingPointer = 8,
  kNotPrecise = 9,
  kCudaErrors = 100,
};

constexpr std::int64_t kAlignmentBytes = 16;
// Coordinates are 32-bit and reach a tile beyond the last row.
constexpr std::int64_t kLargest = INT32_MAX - 1024;
constexpr std::int64_t kMostBlocksAlongN = 65535;

template <int... index>
std::array<const TileKernel*, sizeof...(index)> all_kernels(std::integer_sequence<int, index...>) {
  return {&tile_kernel<index>()...};
}

const std::array<const TileKernel*, kTileCount>& kernels() {
  static const auto all = all_kernels(std::make_integer_sequence<int, kTileCount>());
  return all;
}

bool exists(std::int32_t index) { return index >= 0 && index < kTileCount; }

int code_of(cudaError_t error) { return error == cudaSuccess ? kOk : kCudaErrors + static_cast<int>(error); }

bool aligned(const void* pointer, std::int64_t stride, std::int64_t rows) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kAlignmentBytes == 0 && (rows == 1 || stride % kAlignmentBytes == 0);
}

const OctileCutlassConfig* config(std::int32_t index) {
  return exists(index) ? &kernels()[static_cast<std::size_t>(index)]->config : nullptr;
}

int kernels_for(std::int32_t capability) {
  constexpr std::array kNative = {__CUDA_ARCH_LIST__};  // 890, 1200
  if (std::find(kNative.begin(), kNative.end(), 10 * capability) != kNative.end()) {
    return OCTILE_CUTLASS_NATIVE_KERNELS;
  }
  return capability >= OCTILE_CUTLASS_PTX ? OCTILE_CUTLASS_PTX_KERNELS : OCTILE_CUTLASS_NO_KERNELS;
}

int prepare(std::int32_t index, std::int32_t precise) {
  if (!exists(index)) {
    return kNoSuchConfig;
  }
  if (precise != 0 && config(index)->precise == 0) {
    return kNotPrecise;
  }
  return code_of(kernels()[static_cast<std::size_t>(index)]->prepare(precise != 0));
}

int can_run(std::int32_t index, const OctileCutlassProduct* product) {
  if (!exists(index)) {
    return kNoSuchConfig;
  }
  if (product == nullptr || product->struct_bytes < sizeof(OctileCutlassProduct)) {
    return kTooSmallStruct;
  }
  const OctileCutlassProduct& p = *product;
  if (p.out < OCTILE_CUTLASS_BF16 || p.out > OCTILE_CUTLASS_FP32) {
    return kUnknownOutput;
  }
  if (p.precise != 0 && config(index)->precise == 0) {
    return kNotPrecise;
  }
  if (p.m < 1 || p.n < 1 || p.k < 1) {
    return kEmpty;
  }
  const std::int64_t blocks_n = (p.n + config(index)->tile_n - 1) / config(index)->tile_n;
  if (p.m > kLargest || p.n > kLargest || p.k > kLargest || blocks_n > kMostBlocksAlongN) {
    return kTooLarge;
  }
  if (p.k % kAlignmentBytes != 0) {
    return kUnalignedK;
  }
  return aligned(p.x, p.x_stride, p.m) && aligned(p.w, p.w_stride, p.n) ? kOk : kUnalignedRows;
}

std::int64_t workspace_bytes(std::int32_t index, const OctileCutlassProduct* product) {
  return can_run(index, product) == kOk ? 0 : -1;
}

int run(std::int32_t index, const OctileCutlassProduct* product, void* /*workspace*/, void* stream) {
  if (const int refused = can_run(index, product); refused != kOk) {
    return refused;
  }
  if (product->x == nullptr || product->w == nullptr || product->y == nullptr || product->scales_x == nullptr ||
      product->scales_w == nullptr) {
    return kMissingPointer;
  }
  return code_of(kernels()[static_cast<std::size_t>(index)]->run(*product, static_cast<cudaStream_t>(stream)));
}

const char* error_text(int code) {
  switch (code) {
    case kOk:
      return "done";
    case kNoSuchConfig:
      return "there is no kernel of that number";
    case kTooSmallStruct:
      return "the product's struct is smaller than this component's";
    case kUnknownOutput:
      return "unknown output type";
    case kEmpty:
      return "M, N and K must be at least 1";
    case kTooLarge:
      return "a dimension is too large: M, N and K below 2^31 - 1024, at most 65535 blocks along N";
    case kUnalignedK:
      return "K must be a multiple of 16";
    case kUnalignedRows:
      return "rows of codes must start at multiples of 16 bytes";
    case kMissingPointer:
      return "a pointer to codes, scales or output is null";
    case kNotPrecise:
      return "this kernel has no precise accumulation mode";
    default:
      return code > kCudaErrors ? cudaGetErrorString(static_cast<cudaError_t>(code - kCudaErrors)) : "unknown error code";
  }
}

}  // namespace
}  // namespace octile::cutlass_component

#define OCTILE_TEXT_OF(value) #value
#define OCTILE_TEXT(value) OCTILE_TEXT_OF(value)

extern "C" __attribute__((visibility("default"))) const OctileCutlassApi* octile_cutlass_api() {
  namespace component = octile::cutlass_component;
  static const OctileCutlassApi api = {
      OCTILE_CUTLASS_ABI,
      sizeof(OctileCutlassApi),
      OCTILE_TEXT(CUTLASS_MAJOR) "." OCTILE_TEXT(CUTLASS_MINOR) "." OCTILE_TEXT(CUTLASS_PATCH),
      OCTILE_CUTLASS_SOURCE_HASH,
      component::kTileCount,
      component::config,
      component::kernels_for,
      component::prepare,
      component::can_run,
      component::workspace_bytes,
      component::run,
      component::error_text,
  };
  return &api;
}
