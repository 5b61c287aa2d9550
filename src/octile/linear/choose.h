// SPDX-License-Identifier: Apache-2.0
// What runs at one M, and why: the look-up order of docs/tables.md, without touching a device. `explain`, the dispatcher,
// `bench` and `verify` all ask here.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/table/table_store.h"

#include <memory>
#include <string>
#include <vector>

namespace octile {

enum class ChoiceKind { tile, vendor, baseline, heuristic };
const char* to_string(ChoiceKind kind) noexcept;  // As in explain's `choice`.

struct Choice {
  ChoiceKind kind = ChoiceKind::heuristic;
  const KernelFamily* family =
      nullptr;         // nullptr: an engine's registered baseline, or a device of which this build has no family.
  std::string kernel;  // Name to print.
  TileConfig config;
  const TableEntry* entry = nullptr;  // Owned by the plan's table; nullptr where no entry serves.
  std::string table_key;
  std::string reason;
  bool stale = false;
};

// Every choice of one (device, problem) for M in [1, infinity): piecewise constant for our own tables, computed per M.
class Plan {
 public:
  // `backend` may be nullptr for a device that is not present. The kill switch is `tuned` = false.
  static Plan make(const Backend* backend, const DeviceInfo& device, const Problem& problem, std::string_view tables_option,
                   bool tuned);

  Choice choose(std::int64_t m) const;
  // Ascending interval starts within [1, max_m] at which the choice may change; always holds 1.
  std::vector<std::int64_t> breakpoints(std::int64_t max_m) const;
  // Layouts of the weight that choices up to `max_m` read; more than one only on the CPU.
  std::vector<std::string> layouts(std::int64_t max_m) const;

  const TableLookup& lookup() const noexcept { return lookup_; }
  const DeviceInfo& device() const noexcept { return device_; }
  const Problem& problem() const noexcept { return problem_; }

 private:
  const Backend* backend_ = nullptr;
  DeviceInfo device_;
  Problem problem_;
  bool tuned_ = true;
  TableLookup lookup_;
};

}  // namespace octile
