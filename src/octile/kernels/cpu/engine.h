// SPDX-License-Identifier: Apache-2.0
// An engine: the inner loops of one instruction set behind plain function pointers. gemm.cpp cuts the work, engines do it.
//
// A tile is `rows` activations times `panels` blocks of 16 columns over a range of K. Each output element has one chain of
// additions (two in the fp32 engines: even and odd k, added at the end) in ascending k, whatever the tile, the split of K
// into passes or the thread; so a row's bits depend on nothing but the row and the weight.
#pragma once

#include <octile/types.hpp>

#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/packed_weight.h"

#include <cstdint>

namespace octile::cpu {

inline constexpr int kMaxPanels = static_cast<int>(kGroupPanels);

// Where a tile's results go. Pointers are those of the tile's first row and column.
struct OutputTile {
  void* y = nullptr;
  std::int64_t y_row_stride = 0;  // Elements.
  DType dtype = DType::bf16;
  const float* scales_w = nullptr;  // [panels * 16]: padded by the weight.
  const float* scales_x = nullptr;  // [rows]
  const float* bias = nullptr;      // [columns], or nullptr.
  std::int64_t columns = 0;         // Valid ones, 1 <= columns <= panels * 16.
};

// Where a tile's weights come from.
enum class Decode {
  in_registers,  // Each tile decodes packed codes as it goes.
  ahead,         // A pass decodes them into scratch before its tiles run.
  first_tile,    // The first tile of a strip decodes them in registers and keeps them in scratch for the others.
};

// What one tile does with its weights.
enum class TileKind { fused, keeping, decoded };
inline constexpr int kTileKinds = 3;

struct TileArgs {
  int panels = 1;
  int rows = 1;
  // Activations of the row block: [k / activation_k][row][activation_k] values.
  const std::uint8_t* activations = nullptr;
  // Weights of the panels. Fused and keeping: packed codes, a step of 4 k every `step_bytes`. Decoded: [k pair][panel]
  // [16 n][2 k], and `keep` is where a keeping tile leaves them in that order.
  const std::uint8_t* weights = nullptr;
  std::int64_t step_bytes = 0;
  std::int64_t steps = 0;  // Of 4 k.
  std::uint8_t* keep = nullptr;
  // Fused and keeping: the codes this many bytes ahead are prefetched. Decoded: every step prefetches the line at `prefetch`
  // and moves on by `prefetch_bytes`.
  const std::uint8_t* prefetch = nullptr;
  std::int64_t prefetch_bytes = 0;
  // Partial sums between passes over K, in the engine's own order: [row][panel][partial_floats]. The first pass does not
  // load them; the last one writes the output instead.
  float* partial = nullptr;
  bool first_pass = true;
  bool last_pass = true;
  OutputTile output;
};

using TileFunction = void (*)(const TileArgs& args);

// Decodes `steps` steps of `panels` blocks into [k pair][panel][16 n][2 k], prefetching `prefetch_bytes` ahead.
using DecodeFunction = void (*)(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
                                std::int64_t prefetch_bytes, std::uint8_t* decoded);

// Rows of activations to e4m3 values. Each engine uses the fastest that its instruction set has.
struct QuantizeOps {
  // Largest magnitude of bf16, fp16 or fp32 elements, or NaN where one of them is not finite.
  float (*row_amax)(const void* x, DType dtype, std::int64_t count) noexcept;
  // values[i] = x[offset + i] / scale (or * reciprocal), rounded to the e4m3 grid as float_to_e4m3_saturate does.
  void (*round_to_grid)(const void* x, DType dtype, std::int64_t offset, std::int64_t count, float scale, Division division,
                        float* values) noexcept;
};

struct Engine {
  const char* name;
  Isa isa;  // Of its quantiser: generic or avx2.
  const QuantizeOps* quantize;
  int max_rows[kMaxPanels];     // Rows of a tile by panels - 1; 0: no such tile.
  std::int64_t value_bytes;     // Of an activation or a decoded weight: 2 (bf16) or 4 (fp32).
  std::int64_t activation_k;    // Values of one row side by side in a tile of activations: a divisor of kPaddingK.
  std::int64_t partial_floats;  // Of one row and panel: 16, or 32 where even and odd k are summed apart.
  float activation_factor;      // Power of 2 on activations that makes up for one in the decoded weights.
  // For the cost model, cycles a block of 64 codes: to decode it, and to multiply it with one row.
  double decode_cycles;
  double row_cycles;
  // The largest M at which decoding in every tile beats keeping what the first tile decoded, measured on Zen 4.
  std::int64_t decode_each_up_to_m;
  int decoded_panels;  // The best width of tiles over decoded weights.
  DecodeFunction decode;
  // Precondition: 1 <= rows <= max_rows[panels - 1].
  TileFunction (*tile)(TileKind kind, int panels, int rows) noexcept;
  // Called by a thread around the tiles of one unit; nullptr: nothing to do.
  void (*begin_unit)() noexcept = nullptr;
  void (*end_unit)() noexcept = nullptr;
};

// nullptr where this build is for another architecture.
const Engine* reference_engine() noexcept;
const Engine* avx2_engine() noexcept;
const Engine* avx512_fma_engine() noexcept;
const Engine* avx512_dot_engine() noexcept;
const Engine* amx_engine() noexcept;

}  // namespace octile::cpu
