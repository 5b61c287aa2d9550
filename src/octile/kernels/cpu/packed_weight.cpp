// SPDX-License-Identifier: Apache-2.0
// Packing of weights, in parallel over groups of 64 columns.
#include "octile/kernels/cpu/packed_weight.h"

#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/numa.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "octile/quant/weight_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

namespace octile::cpu {
namespace {

constexpr std::uint8_t kMagnitude = 0x7F;  // Of a code; a NaN has all of these bits set.

// Writes one row of codes into its places: pairs of k go to consecutive bytes. Returns whether a NaN was there.
bool pack_row(const std::uint8_t* row, std::int64_t k, std::int64_t panels_in_group, std::uint8_t* block) {
  const std::int64_t step_bytes = panels_in_group * kBlockBytes;
  bool has_nan = false;
  for (std::int64_t k0 = 0; k0 < k; k0 += kStepK, block += step_bytes) {
    std::array<std::uint8_t, kStepK> codes{};
    const std::int64_t count = std::min(kStepK, k - k0);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t code = row[k0 + i];
      const bool nan = (code & kMagnitude) == kMagnitude;
      has_nan = has_nan || nan;
      codes[static_cast<std::size_t>(i)] = nan ? std::uint8_t{0} : code;
    }
    std::memcpy(block, codes.data(), 2);
    std::memcpy(block + 8, codes.data() + 2, 2);
  }
  return has_nan;
}

}  // namespace

CpuPackedWeight::CpuPackedWeight(std::int64_t n, std::int64_t k, HostMemory memory) noexcept
    : n_(n),
      k_(k),
      padded_n_(round_up(n, kPanelColumns)),
      padded_k_(round_up(k, kPaddingK)),
      memory_(std::move(memory)),
      codes_(static_cast<std::uint8_t*>(memory_.data())),
      scales_(reinterpret_cast<float*>(codes_ + padded_n_ * padded_k_)) {}

std::string_view CpuPackedWeight::layout() const noexcept { return kCpuPackedLayout; }

std::int64_t CpuPackedWeight::panels_of_group(std::int64_t group) const noexcept {
  return std::min(kGroupPanels, panels() - group * kGroupPanels);
}

std::int64_t CpuPackedWeight::bytes_for(std::int64_t n, std::int64_t k) noexcept {
  const std::int64_t padded_n = round_up(n, kPanelColumns);
  return padded_n * round_up(k, kPaddingK) + padded_n * static_cast<std::int64_t>(sizeof(float));
}

void CpuPackedWeight::place_on_nodes() noexcept {
  const Numa& machine = numa();
  if (machine.nodes() == 1 || memory_.bytes() < kHugePageBytes) {  // Smaller memory shares its pages with others'.
    return;
  }
  const Partition nodes = groups_of_nodes(groups(), machine.nodes());
  const std::int64_t group_bytes = kGroupColumns * padded_k_;
  for (int node = 0; node < machine.nodes(); ++node) {
    // Whole huge pages: one that two nodes share goes to the first of them, and the last node has the scales too.
    const std::int64_t begin = round_up(nodes.begin(node) * group_bytes, kHugePageBytes);
    const std::int64_t next = round_up(nodes.begin(node + 1) * group_bytes, kHugePageBytes);
    const std::int64_t end = node + 1 == machine.nodes() ? memory_.bytes() : std::min(next, memory_.bytes());
    if (begin < end && !machine.place(codes_ + begin, end - begin, node)) {
      return;
    }
  }
}

std::uint8_t packed_code(const CpuPackedWeight& weight, std::int64_t n, std::int64_t k) noexcept {
  const std::int64_t group = n / kGroupColumns;
  const std::int64_t panel = n % kGroupColumns / kPanelColumns;
  const std::int64_t step_bytes = weight.panels_of_group(group) * kBlockBytes;
  const std::int64_t in_block = n % kPanelColumns / 4 * 16 + k % kStepK / 2 * 8 + n % 4 * 2 + k % 2;
  return weight.group(group)[k / kStepK * step_bytes + panel * kBlockBytes + in_block];
}

Expected<std::shared_ptr<PackedWeight>> pack_cpu(const WeightSource& source) {
  if (auto ok = check_weight_source(source); !ok) {
    return ok.error();
  }
  Expected<HostMemory> memory = HostMemory::allocate(CpuPackedWeight::bytes_for(source.n, source.k));
  if (!memory) {
    return memory.error();
  }
  auto weight = std::make_shared<CpuPackedWeight>(source.n, source.k, std::move(memory).value());
  weight->place_on_nodes();
  const auto pack_group = [&](int part) {
    const std::int64_t group = part;
    const std::int64_t panels = weight->panels_of_group(group);
    const std::int64_t n_end = std::min(source.n, (group + 1) * kGroupColumns);
    for (std::int64_t n = group * kGroupColumns; n < n_end; ++n) {
      const auto* row = static_cast<const std::uint8_t*>(source.codes) + n * weight_row_stride(source);
      const std::int64_t panel = n % kGroupColumns / kPanelColumns;
      const std::int64_t in_block = n % kPanelColumns / 4 * 16 + n % 4 * 2;
      std::uint8_t* block = weight->codes_ + group * kGroupColumns * weight->padded_k_ + panel * kBlockBytes + in_block;
      const bool has_nan = pack_row(row, source.k, panels, block);
      weight->scales_[n] = has_nan ? std::numeric_limits<float>::quiet_NaN() : weight_scale(source, n);
    }
  };
  ThreadPool::instance().run(static_cast<int>(weight->groups()), pack_group);
  return std::shared_ptr<PackedWeight>(std::move(weight));
}

}  // namespace octile::cpu
