// SPDX-License-Identifier: Apache-2.0
// Whether a table, and each of its entries, may serve on a device: hard keys, legality, versions, and what the caller asked.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/table/tile_table.h"

#include <cstdint>
#include <string>

namespace octile {

enum class ChoiceKind { tile, vendor, baseline, heuristic };
const char* to_string(ChoiceKind kind) noexcept;  // As in explain's `choice`.

// What became of one entry of a table.
struct Verdict {
  ChoiceKind kind = ChoiceKind::tile;
  const KernelFamily* family = nullptr;
  std::string skipped;  // Why it cannot serve; empty: it serves.
  std::string note;     // Said in the reason of an entry that serves.
};

// Judges entries. `backend` is nullptr for a device that is not present; all live longer than the judge.
struct Judge {
  const Backend* backend;
  const DeviceInfo& device;
  const Problem& problem;
  const TileTable& table;

  Verdict verdict(const TableEntry& entry) const;

 private:
  Expected<void> check_family(const KernelFamily& family, const TableEntry& entry) const;
  std::int64_t largest_m(const TableEntry& entry) const;  // That it serves.
  Expected<void> check_strength(ChoiceKind kind) const;
  void judge_field_tile_without_family(const TableEntry& entry, Verdict& verdict) const;
};

// The first hard key in which the table differs from the device or the problem, with both values; empty: none does. Keys
// that the table or (for a device that is not present) the device does not state match anything. `alias`: the device name
// that OCTILE_DEVICE_NAME_ALIAS sets, or empty.
std::string find_table_refusal(const TileTable& table, const std::string& alias, const Backend* backend,
                               const DeviceInfo& device, const Problem& problem);
// The first soft key (Octile's or a vendor library's version) that is not what the table was measured with; empty: none.
std::string soft_key_difference(const TileTable& table, const Backend* backend, const DeviceInfo& device);
// A GPU's table of precise sums serves fast ones that are asked, by kernels that it did not measure.
bool is_precise_for_fast(const TileTable& table, const DeviceInfo& device, const Problem& problem);
// Why the device has no vendor as baseline, in the vendors' own words.
std::string missing_vendor_reason(const Backend& backend, const DeviceInfo& device);

}  // namespace octile
