// SPDX-License-Identifier: Apache-2.0
// What runs at one M, and why: the look-up order of docs/tables.md, without touching a device. `explain`, the dispatcher,
// `bench` and `verify` all ask here.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/linear/judge.h"
#include "octile/table/table_store.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

struct EngineBaseline;

struct Choice {
  ChoiceKind kind = ChoiceKind::heuristic;
  const KernelFamily* family =
      nullptr;         // nullptr: an engine's registered baseline, or a device of which this build has no family.
  std::string kernel;  // Name to print.
  TileConfig config;
  const TableEntry* entry = nullptr;  // Owned by the plan's table; nullptr where no entry serves.
  std::string table_key;              // Of the entry that serves, or of the one that was skipped.
  std::string reason;
  bool stale = false;
};

// The layout of an engine's registered baseline: row-major e4m3 codes [n, k] with stride k, and fp32 scales [n].
inline constexpr std::string_view kEngineLayout = "engine_row_major";

// Whether kernels of ours here read a weight of that shape in the layout that `problem` asks for: true of all but slab64.
// The Error says what is missing.
Expected<void> check_weight_layout(const Backend& backend, const DeviceInfo& device, const Problem& problem);

// Every choice of one (device, problem) for M in [1, infinity): piecewise constant. The vendor's own choice as baseline is
// one config for all M (its kernel tells the Ms apart itself); a family's heuristic is asked at the upper end of a bucket of
// Ms (every M up to 32, then 16 buckets an octave), so that intervals are few and `explain` and run() agree.
class Plan {
 public:
  // `backend` may be nullptr for a device that is not present. The kill switch is `tuned` = false: no table is read.
  static Plan make(const Backend* backend, const DeviceInfo& device, const Problem& problem, std::string_view tables_option,
                   bool tuned);
  // The same with a table that is at hand (a tuner's, a test's).
  static Plan from_lookup(const Backend* backend, const DeviceInfo& device, const Problem& problem, TableLookup lookup,
                          bool tuned);

  // Precondition: m >= 1.
  Choice choose(std::int64_t m) const;
  // The baseline's choice, or the heuristic's where no baseline exists: what run() falls back on where a chosen kernel
  // cannot be prepared.
  Choice baseline_choice(std::int64_t m, std::string_view why) const;
  // What the baseline is compared with: baseline_choice(), and the vendor's own choice also where it cannot serve because
  // the weight lies in a layout that it does not read.
  Choice compared_baseline(std::int64_t m) const;
  // What would serve with our own families alone: the table's tile where it has one, else the heuristic; family == nullptr
  // where there is none.
  Choice own_choice(std::int64_t m) const;
  // The own families' heuristic among those that read `layout` (empty: the plan's own); family == nullptr where none
  // does.
  Choice heuristic_choice(std::int64_t m, std::string_view layout, std::string_view why) const;

  // Ascending interval starts within [1, max_m] at which the choice may change; always holds 1.
  std::vector<std::int64_t> breakpoints(std::int64_t max_m) const;
  // Layouts of the weight that choices up to `max_m` read, kEngineLayout among them where an engine's baseline serves; more
  // than one only on the CPU.
  std::vector<std::string> layouts(std::int64_t max_m) const;

  const TableLookup& lookup() const noexcept { return lookup_; }
  // Why the table that was found is not used at all (a hard key differs); empty where it is, or where there is none.
  const std::string& table_refusal() const noexcept { return refusal_; }
  // Why entry `index` of the table cannot serve here (illegal, unknown kernel, other source or vendor version, weaker than
  // asked); empty where it can. Precondition: a table in use.
  const std::string& skip_reason(std::size_t index) const { return verdicts_.at(index).skipped; }
  const DeviceInfo& device() const noexcept { return device_; }
  // With the layout of the table that serves, where none was asked for.
  const Problem& problem() const noexcept { return problem_; }
  bool tuned() const noexcept { return tuned_; }
  // The engine's function that is the baseline here, or nullptr.
  const std::shared_ptr<const EngineBaseline>& engine() const noexcept { return engine_; }

 private:
  Plan() = default;
  void settle_layout();
  void find_own_families();
  void find_baseline();
  void judge_entries();
  void find_gap_families();
  Choice gap_choice(std::int64_t m) const;
  struct Bridge {
    const TableEntry* above;  // Whose kernel serves the gap.
    const TableEntry* below;
    const Verdict* verdict;  // Of the one above.
    bool is_level;           // It is within a tenth of the best at every M of the gap.
  };
  std::optional<Bridge> bridge(std::int64_t m) const;
  Choice bridge_choice(const Bridge& bridge, std::string_view where) const;
  Choice cheapest(const std::vector<const KernelFamily*>& families, std::int64_t m) const;
  std::vector<const KernelFamily*> within_sm_limit(const std::vector<const KernelFamily*>& families, std::int64_t m) const;
  Choice unlimited_choice(std::int64_t m) const;
  std::vector<std::int64_t> stretches(std::int64_t max_m) const;  // First M of each interval and gap of the table.
  std::string no_table_reason() const;
  bool uses_table() const noexcept { return lookup_.table != nullptr && refusal_.empty(); }

  const Backend* backend_ = nullptr;
  DeviceInfo device_;
  Problem problem_;
  bool tuned_ = true;
  TableLookup lookup_;
  std::string refusal_;
  std::vector<Verdict> verdicts_;  // One for each entry of the table.
  std::shared_ptr<const EngineBaseline> engine_;
  const KernelFamily* baseline_ = nullptr;         // The vendor; nullptr with an engine's or with none.
  std::string no_baseline_;                        // Why there is none.
  const KernelFamily* vendor_beside_ = nullptr;    // The vendor that is none because of the weight's layout.
  std::vector<const KernelFamily*> own_families_;  // Ours that run here.
  std::string own_layout_;                         // The one layout that their heuristics read.
  std::vector<const KernelFamily*> gap_families_;  // Ours that beat the baseline wherever the table measured.
  std::string stale_note_;                         // Which soft key differs; empty: none.
};

}  // namespace octile
