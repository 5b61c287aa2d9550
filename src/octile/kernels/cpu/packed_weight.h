// SPDX-License-Identifier: Apache-2.0
// The one weight layout of every CPU family, "cpu_packed": e4m3 codes, permuted so that a decoder needs two byte look-ups
// and two interleaves, and streams memory in one direction.
//
//   N is padded to 16 and K to 32 with zero codes. A group is 64 columns (the last one 16, 32, 48 or 64) and lies in one
//   piece of K * columns bytes; it is a sequence of steps of 4 k; a step holds one block of 64 bytes for each 16 columns:
//
//     group:  | k 0..3: block n 0..15 | block n 16..31 | .. 32..47 | .. 48..63 | k 4..7: ... | ... | k K-4..K-1: ... |
//     block:  byte j * 16 + h * 8 + i * 2 + kk  holds  n = 4 j + i (j < 4, i < 4), k = 2 h + kk (h < 2, kk < 2)
//
//   Interleaving the low (high) 8 bytes of each 16-byte lane with anything gives [16 n][2 k] 16-bit words of k pair 0 (1):
//   the operand order of VDPBF16PS and of an AMX tile row.
//
// A channel with a NaN code gets the scale NaN and code 0 in place of it, so decoders need no NaN path: the accumulator
// stays finite and the epilogue's product with the scale is NaN.
#pragma once

#include "octile/kernels/cpu/host_memory.h"
#include "octile/kernels/family.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace octile::cpu {

inline constexpr std::int64_t kPanelColumns = 16;  // Columns of a block.
inline constexpr std::int64_t kGroupPanels = 4;    // Blocks side by side in a group.
inline constexpr std::int64_t kGroupColumns = kPanelColumns * kGroupPanels;
inline constexpr std::int64_t kStepK = 4;  // k of a block.
inline constexpr std::int64_t kBlockBytes = kPanelColumns * kStepK;
inline constexpr std::int64_t kPaddingK = 32;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

class CpuPackedWeight final : public PackedWeight {
 public:
  CpuPackedWeight(std::int64_t n, std::int64_t k, HostMemory memory) noexcept;

  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override { return memory_.bytes(); }
  std::string_view layout() const noexcept override;
  std::span<const std::byte> host_bytes() const noexcept override {
    return {reinterpret_cast<const std::byte*>(codes_), static_cast<std::size_t>(padded_n_ * padded_k_)};
  }

  std::int64_t padded_k() const noexcept { return padded_k_; }
  std::int64_t panels() const noexcept { return padded_n_ / kPanelColumns; }
  std::int64_t groups() const noexcept { return (panels() + kGroupPanels - 1) / kGroupPanels; }
  // Blocks side by side in a group: 4 but for the last.
  std::int64_t panels_of_group(std::int64_t group) const noexcept;
  const std::uint8_t* group(std::int64_t group) const noexcept { return codes_ + group * kGroupColumns * padded_k_; }
  const float* scales() const noexcept { return scales_; }  // [N padded to 16]; 0 in the padding.

  static std::int64_t bytes_for(std::int64_t n, std::int64_t k) noexcept;

 private:
  friend Expected<std::shared_ptr<PackedWeight>> pack_cpu(const WeightSource& source);

  // Asks for each node's groups on that node, before the first of their bytes is written.
  void place_on_nodes() noexcept;

  std::int64_t n_, k_, padded_n_, padded_k_;
  HostMemory memory_;
  std::uint8_t* codes_;
  float* scales_;
};

// Packed to plain: `source` without its padding. For tests, and for an export of the weight.
std::uint8_t packed_code(const CpuPackedWeight& weight, std::int64_t n, std::int64_t k) noexcept;

}  // namespace octile::cpu
