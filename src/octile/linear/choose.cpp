// SPDX-License-Identifier: Apache-2.0
// The plan of one (device, problem): judges the table's entries once, then answers for every M.
#include "octile/linear/choose.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/linear/baseline_registry.h"
#include "octile/linear/judge.h"
#include "octile/table/gap_rule.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <utility>

namespace octile {

namespace {

constexpr std::int64_t kEveryMUpTo = 32;
// Beyond a million rows in one chunk nothing about a kernel's choice changes, and families need not fear overflow.
constexpr std::int64_t kLargestBucketEnd = std::int64_t{1} << 20;
constexpr int kBucketsAnOctaveLog2 = 4;

// The end of the bucket of Ms that share one answer of a family's heuristic: m itself up to 32, then 16 buckets an octave.
std::int64_t bucket_end(std::int64_t m) noexcept {
  if (m <= kEveryMUpTo) {
    return m;
  }
  if (m >= kLargestBucketEnd) {
    return kLargestBucketEnd;
  }
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(m - 1)));
  const int shift = bits - 1 - kBucketsAnOctaveLog2;
  return (((m - 1) >> shift) + 1) << shift;
}

void insert_bucket_starts(std::int64_t first, std::int64_t last, std::set<std::int64_t>& starts) {
  for (std::int64_t m = first; m <= std::min(last, kLargestBucketEnd);) {
    starts.insert(m);
    m = bucket_end(m) + 1;
  }
}

std::string key_text(const TileTable& table, const TableEntry& entry) {
  return table.field_format ? format("{}", entry.m_lo) : format("[{}, {}]", entry.m_lo, entry.m_hi);
}

std::string join(std::string_view first, std::string_view second) {
  return first.empty() || second.empty() ? format("{}{}", first, second) : format("{}; {}", first, second);
}

}  // namespace

Expected<void> check_weight_layout(const Backend& backend, const DeviceInfo& device, const Problem& problem) {
  if (problem.layout != WeightLayout::slab64) {
    return {};
  }
  Expected<void> legal = make_error(ErrorCode::unavailable, "{} has no kernel family that reads weights in layout {}",
                                    device.name, to_string(problem.layout));
  for (const KernelFamily* family : backend.families()) {
    if (family->layout_for(problem) == to_string(problem.layout) && family->available(device)) {
      legal = family->check(device, problem, family->heuristic(device, problem, 1));
      if (legal) {
        return legal;
      }
    }
  }
  return legal;
}

Plan Plan::make(const Backend* backend, const DeviceInfo& device, const Problem& problem, std::string_view tables_option,
                bool tuned) {
  TableLookup lookup;
  if (tuned) {
    lookup = find_table(tables_option, device.name, problem.n, problem.k);
  }
  return from_lookup(backend, device, problem, std::move(lookup), tuned);
}

Plan Plan::from_lookup(const Backend* backend, const DeviceInfo& device, const Problem& problem, TableLookup lookup,
                       bool tuned) {
  Plan plan;
  plan.backend_ = backend;
  plan.device_ = device;
  plan.problem_ = problem;
  plan.tuned_ = tuned;
  if (tuned) {
    plan.lookup_ = std::move(lookup);
  }
  if (const TileTable* table = plan.lookup_.table.get()) {
    plan.refusal_ = find_table_refusal(*table, plan.lookup_.alias, backend, device, problem);
  }
  plan.settle_layout();
  plan.find_own_families();
  plan.find_baseline();
  plan.judge_entries();
  plan.find_gap_families();
  if (plan.uses_table()) {
    plan.stale_note_ = soft_key_difference(*plan.lookup_.table, backend, device);
  }
  return plan;
}

// With the kill switch off the weight lies as the baseline reads it; else as was asked for, or as its table has it.
void Plan::settle_layout() {
  if (!tuned_) {
    problem_.layout = WeightLayout::row_major;
  } else if (uses_table() && lookup_.table->key.weight_layout == to_string(WeightLayout::slab64)) {
    problem_.layout = WeightLayout::slab64;
  }
}

// Where several layouts could serve, one is kept, so that a weight has one packed copy of ours: the table's, else that of
// the family which the cost models prefer for a single row.
void Plan::find_own_families() {
  if (backend_ == nullptr) {
    return;
  }
  for (const KernelFamily* family : backend_->families()) {
    // A family whose own choice is not legal does not serve such problems at all (batch-invariant mode, for one).
    if (!family->is_vendor() && family->available(device_) &&
        family->check(device_, problem_, family->heuristic(device_, problem_, 1))) {
      own_families_.push_back(family);
    }
  }
  if (own_families_.empty()) {
    return;
  }
  std::string wanted = uses_table() ? lookup_.table->key.weight_layout : std::string();
  if (wanted.empty() && problem_.layout != WeightLayout::automatic) {
    wanted = to_string(problem_.layout);
  }
  const bool has_wanted = std::any_of(own_families_.begin(), own_families_.end(),
                                      [&](const KernelFamily* family) { return family->layout_for(problem_) == wanted; });
  own_layout_ = has_wanted ? wanted : std::string(cheapest(own_families_, 1).family->layout_for(problem_));
}

void Plan::find_baseline() {
  if (backend_ == nullptr) {
    if (problem_.layout == WeightLayout::slab64) {
      no_baseline_ = format("a baseline reads row-major weights, asked for is {}", to_string(problem_.layout));
    }
    return;
  }
  const bool rows_must_agree = problem_.batch_invariant && problem_.numerics != Numerics::baseline;
  if (rows_must_agree && tuned_ && !own_families_.empty()) {
    no_baseline_ = "the baseline does not share the bits of our kernels, so it cannot serve some M in batch-invariant mode";
    return;
  }
  engine_ = engine_baseline(device_.kind);
  if (engine_ != nullptr && problem_.layout == WeightLayout::slab64) {
    no_baseline_ = format("the baseline {} reads row-major weights, this one lies in slabs", engine_->name);
    engine_ = nullptr;
    return;
  }
  // With the kill switch off it serves all the same: then nothing else may.
  if (engine_ != nullptr && problem_.max_sms > 0 && tuned_) {
    no_baseline_ = format("the baseline {} knows no limit of multiprocessors", engine_->name);
    engine_ = nullptr;
    return;
  }
  if (engine_ == nullptr) {
    const KernelFamily* vendor = backend_->baseline(device_, problem_);
    if (vendor == nullptr) {
      no_baseline_ = missing_vendor_reason(*backend_, device_);
      return;
    }
    // One resident copy of a weight on a GPU: a table in a layout that the vendor cannot read has no baseline.
    if (device_.kind == DeviceKind::cuda && uses_table() && !lookup_.table->key.weight_layout.empty() &&
        vendor->layout() != lookup_.table->key.weight_layout) {
      no_baseline_ = format("the baseline {} reads weights in layout {}, the table has them in {}", vendor->name(),
                            vendor->layout(), lookup_.table->key.weight_layout);
      vendor_beside_ = vendor;
      return;
    }
    if (problem_.layout == WeightLayout::slab64 && vendor->layout_for(problem_) != to_string(problem_.layout)) {
      no_baseline_ = format("the baseline {} reads weights in layout {}, asked for is {}", vendor->name(), vendor->layout(),
                            to_string(problem_.layout));
      vendor_beside_ = vendor;
      return;
    }
    if (problem_.max_sms > 0 && tuned_) {
      if (auto held =
              vendor->check_sm_limit(problem_, vendor->heuristic(device_, problem_, kLargestBucketEnd), kLargestBucketEnd);
          !held) {
        no_baseline_ = held.error().message;
        vendor_beside_ = vendor;
        return;
      }
    }
    baseline_ = vendor;
  }
  if (rows_must_agree) {
    log_once(LogLevel::warning, "baseline_batch_invariant",
             "the baseline serves although batch_invariant was asked for: rows may depend on the batch");
  }
}

void Plan::judge_entries() {
  if (!refusal_.empty() && is_rank_zero()) {
    const std::string& file = lookup_.table->file;
    log_once(LogLevel::warning, format("refused {} {}", file, device_.name),
             format("{}: not used on {}: {}", file, device_.name, refusal_));
  }
  if (!uses_table()) {
    return;
  }
  const TileTable& table = *lookup_.table;
  const Judge judge{backend_, device_, problem_, table};
  std::size_t skipped = 0;
  std::string first;
  for (const TableEntry& entry : table.entries) {
    verdicts_.push_back(judge.verdict(entry));
    // What was left out when the file was read has been said then.
    if (!verdicts_.back().skipped.empty() && entry.left_out.empty()) {
      if (++skipped == 1) {
        first = format("{}: {}", key_text(table, entry), verdicts_.back().skipped);
      }
    }
  }
  if (skipped > 0 && is_rank_zero()) {
    log_once(LogLevel::warning, format("skipped {} {}", table.file, device_.name),
             format("{}: {} of {} entries cannot serve on {} and are skipped, the first {}", table.file, skipped,
                    table.entries.size(), device_.name, first));
  }
}

// A gap of an own table is untuned. Where its neighbours do not settle it (bridge()), our families may fill it only where
// they beat the baseline at every M that was measured for this shape; one measured point at which it won, or no measurement
// at all, and the baseline fills it.
void Plan::find_gap_families() {
  if (!uses_table() || lookup_.table->field_format) {
    return;
  }
  const auto& entries = lookup_.table->entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kernel == kBaselineKernel || (entries[i].ratio && !(entries[i].ratio->mid > 1.0))) {
      gap_families_.clear();
      return;
    }
    const Verdict& verdict = verdicts_[i];
    // What merging cut off an interval is inferred, and has its proof.
    if (entries[i].ratio && verdict.skipped.empty() && verdict.kind == ChoiceKind::tile && verdict.family != nullptr &&
        (backend_ == nullptr ||
         (verdict.family->layout_for(problem_) == own_layout_ &&
          std::find(own_families_.begin(), own_families_.end(), verdict.family) != own_families_.end())) &&
        std::find(gap_families_.begin(), gap_families_.end(), verdict.family) == gap_families_.end()) {
      gap_families_.push_back(verdict.family);
    }
  }
}

// Those whose heuristic keeps to the multiprocessors that are asked for; all where nothing is.
std::vector<const KernelFamily*> Plan::within_sm_limit(const std::vector<const KernelFamily*>& families,
                                                       std::int64_t m) const {
  std::vector<const KernelFamily*> result;
  std::ranges::copy_if(families, std::back_inserter(result), [&](const KernelFamily* family) {
    const std::int64_t end = bucket_end(m);
    return problem_.max_sms == 0 ||
           family->check_sm_limit(problem_, family->heuristic(device_, problem_, end), std::max(m, end)).has_value();
  });
  return result;
}

// Precondition: families is not empty.
Choice Plan::cheapest(const std::vector<const KernelFamily*>& families, std::int64_t m) const {
  const std::int64_t representative = bucket_end(m);
  Choice best;
  double best_us = std::numeric_limits<double>::infinity();
  for (const KernelFamily* family : families) {
    TileConfig config = family->heuristic(device_, problem_, representative);
    const double us = family->predict_us(device_, problem_, representative, config);
    if (best.family == nullptr || us < best_us) {
      best.family = family;
      best.config = std::move(config);
      best_us = us;
    }
  }
  best.kind = ChoiceKind::heuristic;
  best.kernel = best.family->name();
  return best;
}

Choice Plan::heuristic_choice(std::int64_t m, std::string_view layout, std::string_view why) const {
  const std::string_view wanted = layout.empty() ? std::string_view(own_layout_) : layout;
  std::vector<const KernelFamily*> families;
  std::copy_if(own_families_.begin(), own_families_.end(), std::back_inserter(families),
               [&](const KernelFamily* family) { return family->layout_for(problem_) == wanted; });
  if (backend_ == nullptr) {
    Choice unknown;
    unknown.kernel = "unknown";
    unknown.reason = join(why, format("a heuristic of ours would serve; which one is known only where {} is", device_.name));
    return unknown;
  }
  const std::vector<const KernelFamily*> held = within_sm_limit(families, m);
  if (held.empty()) {
    Choice none;
    none.kernel = "none";
    none.reason = join(
        why, families.empty() ? format("no kernel family of this build serves {}", device_.name)
                              : format("no kernel family can be held to {} multiprocessors at M = {}", problem_.max_sms, m));
    return none;
  }
  Choice choice = cheapest(held, m);
  choice.reason = join(why, format("the heuristic of {} serves", choice.kernel));
  return choice;
}

Choice Plan::baseline_choice(std::int64_t m, std::string_view why) const {
  if (!no_baseline_.empty()) {
    return heuristic_choice(m, {}, join(why, no_baseline_));
  }
  Choice choice;
  choice.kind = ChoiceKind::baseline;
  if (engine_ != nullptr) {
    choice.kernel = engine_->name;
  } else if (baseline_ != nullptr) {
    choice.family = baseline_;
    choice.kernel = baseline_->name();
    choice.config = baseline_->heuristic(device_, problem_, bucket_end(m));
  } else {
    choice.kernel = kBaselineKernel;
  }
  choice.reason = join(why, "the baseline serves");
  return choice;
}

Choice Plan::compared_baseline(std::int64_t m) const {
  if (vendor_beside_ == nullptr) {
    return baseline_choice(m, {});
  }
  Choice choice;
  choice.kind = ChoiceKind::baseline;
  choice.family = vendor_beside_;
  choice.kernel = vendor_beside_->name();
  choice.config = vendor_beside_->heuristic(device_, problem_, bucket_end(m));
  choice.reason = no_baseline_;
  return choice;
}

Choice Plan::own_choice(std::int64_t m) const {
  Choice choice = choose(m);
  const bool is_own = choice.family != nullptr && !choice.family->is_vendor();
  return is_own ? choice : heuristic_choice(m, {}, "our own families alone");
}

// The entries on both sides of the gap that holds `m`, each with its proof (what merging cut off an interval has that of the
// whole, whose weakest point is no faster than the end beside the gap), where the upper one's kernel beat the baseline and
// takes less time at its own M than the baseline on both sides.
std::optional<Plan::Bridge> Plan::bridge(std::int64_t m) const {
  const auto& entries = lookup_.table->entries;
  const auto above = std::ranges::upper_bound(entries, m, {}, &TableEntry::m_lo);
  if (lookup_.table->field_format || above == entries.end() || above == entries.begin()) {
    return std::nullopt;
  }
  const TableEntry& below = *std::prev(above);
  const Verdict& verdict = verdicts_[static_cast<std::size_t>(above - entries.begin())];
  const bool is_proven = verdict.skipped.empty() && verdict.family != nullptr && below.left_out.empty() && above->us &&
                         above->ratio && above->ratio->lo > 1 && below.us && below.baseline_us &&
                         bridges_gap(*above->us, *below.baseline_us, *above->baseline_us);
  if (!is_proven) {
    return std::nullopt;
  }
  return Bridge{&*above, &below, &verdict, is_level_gap(*above->us, *below.us)};
}

Choice Plan::bridge_choice(const Bridge& bridge, std::string_view where) const {
  Choice choice;
  choice.kind = bridge.verdict->kind;
  choice.family = bridge.verdict->family;
  choice.kernel = bridge.above->kernel;
  choice.config = bridge.above->config;
  choice.table_key = key_text(*lookup_.table, *bridge.above);
  choice.reason =
      format("{}; the kernel of {} serves, inferred: it takes {:.4g} us there, the baseline {:.4g} us already in {}{}",
             where, choice.table_key, *bridge.above->us, *bridge.below->baseline_us, key_text(*lookup_.table, *bridge.below),
             bridge.is_level ? format(", the best {:.4g} us", *bridge.below->us) : "");
  choice.reason = join(join(choice.reason, bridge.verdict->note), stale_note_);
  choice.stale = !stale_note_.empty();
  return choice;
}

Choice Plan::gap_choice(std::int64_t m) const {
  const TileTable& table = *lookup_.table;
  const std::string where = format("M = {} lies in no measured interval of {}", m, table.file);
  const std::vector<const KernelFamily*> families = within_sm_limit(gap_families_, m);
  if (const std::optional<Bridge> found = bridge(m); found && (found->is_level || families.empty())) {
    return bridge_choice(*found, where);
  }
  if (families.empty()) {
    return baseline_choice(m, where);
  }
  if (backend_ == nullptr) {
    return heuristic_choice(m, {}, where);  // Which one is known where the device is.
  }
  Choice choice = cheapest(families, m);
  choice.reason = format("{}; the cost model's choice serves, since {} beat the baseline wherever this shape was measured",
                         where, choice.kernel);
  return choice;
}

std::string Plan::no_table_reason() const {
  if (lookup_.table != nullptr) {
    return format("{} is not used: {}", lookup_.table->file, refusal_);
  }
  std::string reason = format("untuned: no table for {}, N = {}, K = {}", device_.name, problem_.n, problem_.k);
  if (!lookup_.findings.empty()) {
    const Finding& finding = lookup_.findings.front();
    reason += format("; {} was left out: {}", finding.file, finding.message);
  }
  if (!lookup_.near_device.empty()) {
    reason += format("; {} has one, which is not used for another device (OCTILE_DEVICE_NAME_ALIAS does that on purpose)",
                     lookup_.near_device);
  }
  return reason;
}

Choice Plan::choose(std::int64_t m) const {
  Choice choice = unlimited_choice(m);
  if (problem_.max_sms > 0 && choice.family != nullptr) {
    const bool is_asked = choice.family->is_vendor();
    const bool is_held = choice.family->check_sm_limit(problem_, choice.config, m).has_value();
    choice.reason =
        join(choice.reason, !is_held   ? format("not held to {} multiprocessors", problem_.max_sms)
                            : is_asked ? format("{} is asked to keep to {} multiprocessors", choice.kernel, problem_.max_sms)
                                       : format("held to {} multiprocessors", problem_.max_sms));
  } else if (problem_.max_sms > 0 && engine_ != nullptr && choice.kind == ChoiceKind::baseline) {
    choice.reason = join(choice.reason, format("an engine's kernel knows no limit of {} multiprocessors", problem_.max_sms));
  }
  return choice;
}

// But for what it says of a limit of multiprocessors.
Choice Plan::unlimited_choice(std::int64_t m) const {
  if (!tuned_) {
    return baseline_choice(m, "the kill switch is off");
  }
  if (!uses_table()) {
    return baseline_choice(m, no_table_reason());
  }
  const TileTable& table = *lookup_.table;
  const TableEntry* entry = table.find(m);
  if (entry == nullptr) {
    return gap_choice(m);
  }
  const std::string key = key_text(table, *entry);
  const std::string where = format("{} {} of {}", table.field_format ? "nearest key" : "interval", key, table.file);
  const Verdict& verdict = verdicts_[static_cast<std::size_t>(entry - table.entries.data())];
  Choice choice;
  if (!verdict.skipped.empty()) {
    choice = baseline_choice(m, format("{} is skipped: {}", where, verdict.skipped));
    choice.table_key = key;
    return choice;
  }
  if (verdict.kind == ChoiceKind::baseline) {
    choice = baseline_choice(m, format("{}: the baseline won when it was measured", where));
  } else {
    choice.kind = verdict.kind;
    choice.family = verdict.family;
    choice.kernel = entry->kernel;
    choice.config = entry->config;
    choice.reason = where;
    if (entry->ratio) {
      choice.reason += format(": {:.2f}x the baseline when it was measured", entry->ratio->mid);
    }
    if (entry->inferred) {
      choice.reason += ", inferred from its neighbours";
    }
    choice.reason = join(choice.reason, verdict.note);
  }
  choice.entry = entry;
  choice.table_key = key;
  choice.stale = !stale_note_.empty();
  choice.reason = join(choice.reason, stale_note_);
  return choice;
}

std::vector<std::int64_t> Plan::stretches(std::int64_t max_m) const {
  std::set<std::int64_t> starts = {1};
  if (uses_table()) {
    for (const TableSegment& segment : segments_of(*lookup_.table)) {
      starts.insert(segment.m_lo);
      if (segment.m_hi < std::numeric_limits<std::int64_t>::max()) {
        starts.insert(segment.m_hi + 1);
      }
    }
  }
  return {starts.begin(), starts.upper_bound(std::max<std::int64_t>(max_m, 1))};
}

std::vector<std::int64_t> Plan::breakpoints(std::int64_t max_m) const {
  const std::vector<std::int64_t> ordered = stretches(max_m);
  std::set<std::int64_t> starts(ordered.begin(), ordered.end());
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    // Beside a limit of multiprocessors, what can be held where no entry serves differs from bucket to bucket.
    const Choice first = choose(ordered[i]);
    if (first.kind == ChoiceKind::heuristic || (problem_.max_sms > 0 && first.entry == nullptr)) {
      insert_bucket_starts(ordered[i], i + 1 < ordered.size() ? ordered[i + 1] - 1 : max_m, starts);
    }
  }
  return {starts.begin(), starts.end()};
}

// One M of each stretch suffices: what the heuristic chooses from bucket to bucket reads one layout, and to ask it for each
// of 176 buckets took a quarter of a second a weight. Not so beside a limit of multiprocessors, where a gap is the
// baseline's from the first M on at which nothing of ours can be held.
std::vector<std::string> Plan::layouts(std::int64_t max_m) const {
  std::vector<std::string> result;
  for (const std::int64_t m : problem_.max_sms > 0 ? breakpoints(max_m) : stretches(max_m)) {
    const Choice choice = choose(m);
    std::string layout;
    if (choice.family != nullptr) {
      layout = choice.family->layout_for(problem_);
    } else if (choice.kind == ChoiceKind::baseline && engine_ != nullptr) {
      layout = kEngineLayout;
    } else {
      continue;  // A device that is not here reads nothing.
    }
    if (std::find(result.begin(), result.end(), layout) == result.end()) {
      result.push_back(layout);
    }
  }
  return result;
}

}  // namespace octile
