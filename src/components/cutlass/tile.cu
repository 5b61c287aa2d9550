// SPDX-License-Identifier: Apache-2.0
// One tile of the component: CUTLASS's 2.x GEMM on e4m3 (mma.sync m16n8k32, cp.async, up to 99 KiB of shared memory).
// Compiled once for each line of tiles.def, with OCTILE_CUTLASS_TILE_INDEX as its number.
//
// Activations are A [M, K], row-major; weights [N, K], row-major, are B [K, N], column-major. Launched without CUTLASS's
// device adapter, which asks the device for its attributes on a thread's first call: run() only fills the parameters and
// launches.
#include "epilogue.cuh"
#include "tile.h"

#include <cutlass/gemm/kernel/default_gemm_universal_with_visitor.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

namespace octile::cutlass_component {
namespace {

constexpr Tile kTile = kTiles[OCTILE_CUTLASS_TILE_INDEX];

using Element = cutlass::float_e4m3_t;
using BlockShape = cutlass::gemm::GemmShape<kTile.m, kTile.n, kTile.k>;
using WarpShape = cutlass::gemm::GemmShape<kTile.warp_m, kTile.warp_n, kTile.warp_k>;
using InstructionShape = cutlass::gemm::GemmShape<16, 8, 32>;
using ThreadMap = visitors::OutputTileThreadLayout<BlockShape, WarpShape, float, kVector, 1>;
using Tree = typename Epilogue<ThreadMap>::Tree;

constexpr int kAlignment = 16;  // Elements of 1 byte: cp.async of 16 bytes.
// Blocks that follow each other take neighbouring channels of the same tokens, 8 wide.
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;

// CUTLASS's words for the modes: OpMultiplyAdd adds the matrix unit's sums up in registers after every tile_k elements.
template <bool precise>
using Operator =
    cutlass::platform::conditional_t<precise, cutlass::arch::OpMultiplyAdd, cutlass::arch::OpMultiplyAddFastAccum>;

template <bool precise>
using GemmKernel = typename cutlass::gemm::kernel::DefaultGemmWithVisitor<
    Element, cutlass::layout::RowMajor, cutlass::ComplexTransform::kNone, kAlignment,     //
    Element, cutlass::layout::ColumnMajor, cutlass::ComplexTransform::kNone, kAlignment,  //
    float, cutlass::layout::RowMajor, kVector, float, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm89, BlockShape,
    WarpShape, InstructionShape, Tree, Swizzle, kTile.stages, Operator<precise>, 1>::GemmKernel;

template <bool precise>
constexpr int kSharedBytes = static_cast<int>(sizeof(typename GemmKernel<precise>::SharedStorage));

constexpr int kLargestSharedBytes = 99 * 1024;  // A block's limit on sm_89 and sm_120.
static_assert(kSharedBytes<false> <= kLargestSharedBytes);

// The precise mode keeps two sums an element in registers: a warp tile of 64 x 64 spills hundreds of bytes a thread.
constexpr bool kHasPrecise = kTile.warp_m * kTile.warp_n <= 64 * 32;

template <bool precise>
cudaError_t prepare_mode() {
  const auto kernel = &cutlass::Kernel2<GemmKernel<precise>>;
  // Asking for attributes loads a kernel that would else be loaded at its first launch.
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<precise>);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // Else the thread remembers it, and a later launch of any tile would be called failed.
  }
  return error;
}

template <bool precise>
cudaError_t run_mode(const OctileCutlassProduct& product, cudaStream_t stream) {
  using Kernel = GemmKernel<precise>;
  const cutlass::gemm::GemmCoord shape(static_cast<int>(product.m), static_cast<int>(product.n),
                                       static_cast<int>(product.k));
  // C is never read and D is stored by the tree: both stay empty.
  const typename Kernel::Arguments arguments(cutlass::gemm::GemmUniversalMode::kGemm, shape, 1,
                                             Epilogue<ThreadMap>::arguments(product), product.x, product.w, nullptr, nullptr,
                                             0, 0, 0, 0, product.x_stride, product.w_stride, 0, 0);
  // K is not split, so neither the number of multiprocessors nor the occupancy is looked at.
  const typename Kernel::Params params(arguments, 1, 1);
  cudaGetLastError();  // What others left behind on this thread is not this launch's.
  cutlass::Kernel2<Kernel><<<params.get_grid_dims(), dim3(Kernel::kThreadCount), kSharedBytes<precise>, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t prepare(bool precise) {
  if constexpr (kHasPrecise) {
    if (precise) {
      return prepare_mode<true>();
    }
  }
  return precise ? cudaErrorInvalidValue : prepare_mode<false>();
}

cudaError_t run(const OctileCutlassProduct& product, cudaStream_t stream) {
  if constexpr (kHasPrecise) {
    if (product.precise != 0) {
      return run_mode<true>(product, stream);
    }
  }
  return product.precise != 0 ? cudaErrorInvalidValue : run_mode<false>(product, stream);
}

}  // namespace

template <>
const TileKernel& tile_kernel<OCTILE_CUTLASS_TILE_INDEX>() {
  static const TileKernel kernel = {
      {sizeof(OctileCutlassConfig), kTile.m, kTile.n, kTile.k, kTile.warp_m, kTile.warp_n, kTile.warp_k, kTile.stages,
       GemmKernel<false>::kThreadCount, kSharedBytes<false>, kHasPrecise ? 1 : 0},
      prepare,
      run};
  return kernel;
}

}  // namespace octile::cutlass_component
