// SPDX-License-Identifier: Apache-2.0
// The epilogue as a tree of CUTLASS 2.x visitors:
//
//   store(round(((acc * scales_w[n]) * scales_x[m]) + bias[n]))
//
// in fp32 and in this order (numerics.md), one rounding at the end. Products and sum come from CUTLASS; the leaves are ours,
// since CUTLASS's loads and stores ask for rows and vectors at multiples of 16 bytes, and a caller's bias and y have no such
// alignment. The output type is chosen at run time, which makes one kernel of three.
//
// Each thread of a step holds `kVector` neighbouring channels of a token; coordinates come from the thread map's partition
// of an identity tensor, as in CUTLASS's own visitors.
#pragma once

#include "octile/kernels/cuda/cutlass_abi.h"

// The visitors' header needs what this one includes.
#include <cutlass/gemm/kernel/default_gemm_universal_with_visitor.h>

#include <cutlass/epilogue/threadblock/fusion/visitors.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace octile::cutlass_component {

namespace visitors = cutlass::epilogue::threadblock;

// Channels a thread handles at once: 16 bytes of accumulators.
inline constexpr int kVector = 4;

// What our leaves have in common: no shared memory, no workspace, arguments that are their parameters.
template <class Arguments_>
struct Leaf : visitors::VisitorImpl2x<> {
  struct SharedStorage {};
  using Arguments = Arguments_;
  using Params = Arguments;

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(const ProblemShape&, const Arguments& arguments, void*) {
    return arguments;
  }
  template <class ProblemShape>
  static size_t get_workspace_size(const ProblemShape&, const Arguments&) {
    return 0;
  }

  CUTLASS_HOST_DEVICE Leaf() {}
  CUTLASS_HOST_DEVICE Leaf(const Params& params, const SharedStorage&) : params_ptr(&params) {}

  const Params* params_ptr = nullptr;

  // (vector element, column, row, step) -> (m, n, batch) of one thread.
  template <class ThreadMap, class ProblemShape>
  CUTLASS_DEVICE static auto coordinates(cutlass::gemm::GemmCoord tile_offset, int thread_idx, ProblemShape problem_shape) {
    const auto identity = cute::make_identity_tensor(problem_shape);
    return cute::group_modes<3, 6>(ThreadMap::partition(identity, thread_idx, tile_offset));
  }
};

// A vector over the channels. Where there is none, `absent` stands for each element.
struct ChannelArguments {
  const float* values = nullptr;
  float absent = 0.0f;
};

template <class ThreadMap>
struct ChannelVector : Leaf<ChannelArguments> {
  using Leaf<ChannelArguments>::Leaf;

  template <class Coordinates>
  struct Callbacks : visitors::EmptyCallbacks {
    static constexpr int kColumns = ThreadMap::Iterations::kColumn;

    CUTLASS_DEVICE Callbacks(Coordinates where, int channels, const ChannelArguments* arguments)
        : where(where), channels(channels), arguments(arguments) {}

    // A thread's channels are the same in every row and step: read once.
    CUTLASS_DEVICE void begin_epilogue() {
      CUTLASS_PRAGMA_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) {
          const int n = cute::get<1>(where(i, column, 0, 0));
          values[column][i] = arguments->values != nullptr && n < channels ? arguments->values[n] : arguments->absent;
        }
      }
    }

    template <class Accumulator, int size>
    CUTLASS_DEVICE auto visit(int, int, int column, int, const cutlass::Array<Accumulator, size>&) {
      static_assert(size == kVector);
      return values[column];
    }

    Coordinates where;
    int channels;
    const ChannelArguments* arguments;
    cutlass::Array<float, kVector> values[kColumns];
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile_offset, int thread_idx, ProblemShape problem_shape) {
    auto where = coordinates<ThreadMap>(tile_offset, thread_idx, problem_shape);
    return Callbacks<decltype(where)>(where, cute::get<1>(problem_shape), params_ptr);
  }
};

// A vector over the tokens.
struct TokenArguments {
  const float* values = nullptr;
};

template <class ThreadMap>
struct TokenVector : Leaf<TokenArguments> {
  using Leaf<TokenArguments>::Leaf;

  template <class Coordinates>
  struct Callbacks : visitors::EmptyCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates where, int tokens, const TokenArguments* arguments)
        : where(where), tokens(tokens), arguments(arguments) {}

    template <class Accumulator, int size>
    CUTLASS_DEVICE auto visit(int step, int row, int, int, const cutlass::Array<Accumulator, size>&) {
      const int m = cute::get<0>(where(0, 0, row, step));
      cutlass::Array<float, size> result;
      result.fill(m < tokens ? arguments->values[m] : 0.0f);
      return result;
    }

    Coordinates where;
    int tokens;
    const TokenArguments* arguments;
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile_offset, int thread_idx, ProblemShape problem_shape) {
    auto where = coordinates<ThreadMap>(tile_offset, thread_idx, problem_shape);
    return Callbacks<decltype(where)>(where, cute::get<0>(problem_shape), params_ptr);
  }
};

// The root: rounds to the output type and stores what lies inside y.
struct StoreArguments {
  void* y = nullptr;
  int64_t y_stride = 0;  // Elements.
  int32_t out = OCTILE_CUTLASS_BF16;
  int32_t aligned = 0;  // Whether kVector neighbours of every row can be stored at once.
};

template <class ThreadMap>
struct StoreRounded : Leaf<StoreArguments> {
  using Leaf<StoreArguments>::Leaf;

  template <class Coordinates>
  struct Callbacks : visitors::EmptyCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates where, int tokens, int channels, const StoreArguments* arguments)
        : where(where), tokens(tokens), channels(channels), arguments(arguments) {}

    template <class Accumulator, int size>
    CUTLASS_DEVICE auto visit(int step, int row, int column, int, const cutlass::Array<Accumulator, size>&,
                              const cutlass::Array<float, size>& values) {
      const int m = cute::get<0>(where(0, column, row, step));
      const int n = cute::get<1>(where(0, column, row, step));
      if (m < tokens && n < channels) {
        const int64_t at = m * arguments->y_stride + n;
        if (arguments->out == OCTILE_CUTLASS_BF16) {
          store<uint2>(static_cast<__nv_bfloat16*>(arguments->y) + at, n, values,
                       [](float value) { return __float2bfloat16_rn(value); });
        } else if (arguments->out == OCTILE_CUTLASS_FP16) {
          store<uint2>(static_cast<__half*>(arguments->y) + at, n, values,
                       [](float value) { return __float2half_rn(value); });
        } else {
          store<uint4>(static_cast<float*>(arguments->y) + at, n, values, [](float value) { return value; });
        }
      }
      return values;
    }

    // `Vector` is as wide as kVector outputs.
    template <class Vector, class Out, int size, class Round>
    CUTLASS_DEVICE void store(Out* to, int n, const cutlass::Array<float, size>& values, Round round) {
      static_assert(sizeof(Vector) == kVector * sizeof(Out) && size == kVector);
      alignas(Vector) Out rounded[kVector];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVector; ++i) {
        rounded[i] = round(values[i]);
      }
      if (arguments->aligned != 0 && n + kVector <= channels) {
        *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(rounded);
        return;
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVector; ++i) {
        if (n + i < channels) {
          to[i] = rounded[i];
        }
      }
    }

    Coordinates where;
    int tokens;
    int channels;
    const StoreArguments* arguments;
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile_offset, int thread_idx, ProblemShape problem_shape) {
    auto where = coordinates<ThreadMap>(tile_offset, thread_idx, problem_shape);
    return Callbacks<decltype(where)>(where, cute::get<0>(problem_shape), cute::get<1>(problem_shape), params_ptr);
  }
};

template <template <class> class Operation, class... Children>
using Compute =
    visitors::Sm80EVT<visitors::VisitorCompute<Operation, float, float, cutlass::FloatRoundStyle::round_to_nearest>,
                      Children...>;

template <class ThreadMap>
struct Epilogue {
  using TimesWeightScale = Compute<cutlass::multiplies, visitors::VisitorAccFetch, ChannelVector<ThreadMap>>;
  using TimesTokenScale = Compute<cutlass::multiplies, TimesWeightScale, TokenVector<ThreadMap>>;
  using PlusBias = Compute<cutlass::plus, TimesTokenScale, ChannelVector<ThreadMap>>;
  using Tree = visitors::Sm80EVT<StoreRounded<ThreadMap>, PlusBias>;

  static typename Tree::Arguments arguments(const OctileCutlassProduct& product) {
    const int64_t element_bytes = product.out == OCTILE_CUTLASS_FP32 ? 4 : 2;
    const bool aligned = reinterpret_cast<uintptr_t>(product.y) % (kVector * element_bytes) == 0 &&
                         (product.m == 1 || product.y_stride % kVector == 0);
    const ChannelArguments scales_w = {product.scales_w, 0.0f};
    const TokenArguments scales_x = {product.scales_x};
    // Adding -0 changes no value and no sign of zero.
    const ChannelArguments bias = {product.bias, -0.0f};
    const StoreArguments store = {product.y, product.y_stride, product.out, aligned ? 1 : 0};
    return {{{{{}, scales_w, {}}, scales_x, {}}, bias, {}}, store};
  }
};

}  // namespace octile::cutlass_component
