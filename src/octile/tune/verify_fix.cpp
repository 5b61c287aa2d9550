// SPDX-License-Identifier: Apache-2.0
// Tuning again what lost; see verify_fix.h.
#include "octile/tune/verify_fix.h"

#include "octile/core/format.h"
#include "octile/core/named_value.h"
#include "octile/table/table_ops.h"
#include "octile/table/table_store.h"
#include "octile/tune/sweep.h"
#include "octile/tune/tune.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace octile {

namespace {

// The directory that holds a table's file, flat or in a folder of the device's name: what tune() writes to.
std::string tables_directory(const std::string& file, const std::string& device_name) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return folder.filename() == device_name ? folder.parent_path().string() : folder.string();
}

// The tiles of a field table in a table of ours beside it, so that what is tuned can be added.
Expected<void> import_beside(const Plan& plan) {
  const TileTable& field = *plan.lookup().table;
  const Choice own = plan.heuristic_choice(1, {}, {});
  const std::string layout = own.family != nullptr ? std::string(own.family->layout_for(plan.problem())) : std::string();
  const Expected<TileTable> imported =
      import_field_table(field, table_key(plan.device(), plan.problem(), layout), ImportRanges::nearest);
  if (!imported) {
    return imported.error();
  }
  const std::string path =
      (std::filesystem::path(field.file).parent_path() / table_file_name(imported->key, false)).string();
  return update_own_table(path, [&](const TileTable* current) {
    return current == nullptr ? Expected<TileTable>(*imported) : merge_tables({*current, *imported});
  });
}

// Gives a run the hard keys of `plan`'s table, so that what it tunes can be added to it.
void take_keys(const Plan& plan, RunOptions& options) {
  const TileTable& table = *plan.lookup().table;
  options.layout = plan.problem().layout;
  options.numerics = plan.problem().numerics;
  if (table.field_format) {
    return;  // What is tuned goes into a table of ours that import_beside() has made for the plan's problem.
  }
  options.pdl = value_named(table.key.pdl, {Pdl::off, Pdl::consume, Pdl::full}, options.pdl);
  options.accumulate = value_named(table.key.accumulate, {Accumulate::precise}, options.accumulate);
  options.max_sms = table.key.max_sms;
}

class Repair {
 public:
  Repair(const VerifyOptions& options, const RunHooks& hooks, const std::vector<std::unique_ptr<Plan>>& plans, double left_s,
         VerifyResult& result)
      : options_(options), hooks_(hooks), plans_(plans), left_s_(left_s), result_(result) {}

  Expected<void> run() {
    std::vector<const VerifiedEntry*> wanted;
    for (const VerifiedEntry& entry : result_.entries) {
      if (!entry.beaten_by.empty()) {
        wanted.push_back(&entry);
      }
    }
    Expected<void> done = import_field_tables(wanted);
    // What is written changes what serves beside it: gaps that our families may no longer fill, a field table's last key. At
    // such an M the choice that was verified is no longer the one that serves, so it is tuned, too.
    for (int round = 0; done && round < kRounds && !wanted.empty() && result_.interrupted_by == 0; ++round) {
      done = tune_points(wanted);
      wanted = changed_entries();
    }
    drop_settled_findings();
    return done;
  }

 private:
  // The second settles what the first has changed; nothing is left for a third but what had no time.
  static constexpr int kRounds = 3;

  Expected<void> import_field_tables(const std::vector<const VerifiedEntry*>& losing) const {
    for (const std::unique_ptr<Plan>& plan : plans_) {
      const TileTable& table = *plan->lookup().table;
      const bool loses = std::ranges::any_of(losing, [&](const VerifiedEntry* entry) { return entry->file == table.file; });
      if (loses && table.field_format) {
        if (Expected<void> imported = import_beside(*plan); !imported) {
          return imported;
        }
      }
    }
    return {};
  }

  bool is_settled(const VerifiedEntry& entry) const {
    const auto shape = settled_.find({entry.n, entry.k});
    return shape != settled_.end() && shape->second.contains(entry.m);
  }

  // Verified entries at whose M another kernel serves now, though nothing was tuned there.
  std::vector<const VerifiedEntry*> changed_entries() const {
    const Expected<Device> device = hooks_.find_device(options_.device);
    if (!device) {
      return {};  // It has gone since: nothing more can be tuned on it.
    }
    clear_table_cache();
    std::map<std::string, Plan> now;
    for (const std::unique_ptr<Plan>& plan : plans_) {
      now.emplace(plan->lookup().table->file,
                  Plan::make(device->backend, plan->device(), plan->problem(), options_.tables, true));
    }
    std::vector<const VerifiedEntry*> changed;
    for (const VerifiedEntry& entry : result_.entries) {
      const Choice choice = now.at(entry.file).choose(entry.m);
      if (!is_settled(entry) && (choice.kernel != entry.kernel || choice.config != entry.config)) {
        changed.push_back(&entry);
      }
    }
    return changed;
  }

  // Where tables lie, and those of their keys that a run has one value of.
  using Place = std::tuple<std::string, WeightLayout, Numerics, Pdl, Accumulate, int>;

  RunOptions options_of(const VerifiedEntry& entry) const {
    RunOptions options = options_;
    options.tables = tables_directory(entry.file, result_.device_name);
    const auto found =
        std::ranges::find(plans_, entry.file, [](const std::unique_ptr<Plan>& plan) { return plan->lookup().table->file; });
    if (found != plans_.end()) {
      take_keys(**found, options);
    }
    return options;
  }

  // What to tune in each place.
  std::map<Place, TuneOptions> plan_tuning(const std::vector<const VerifiedEntry*>& wanted) const {
    std::map<Place, TuneOptions> runs;
    for (const VerifiedEntry* entry : wanted) {
      const RunOptions options = options_of(*entry);
      TuneOptions& tuning =
          runs[{options.tables, options.layout, options.numerics, options.pdl, options.accumulate, options.max_sms}];
      static_cast<RunOptions&>(tuning) = options;
      tuning.uses.push_back({entry->n, entry->k, entry->m, 1});
      const auto is_known = [&](const TuneShape& shape) { return shape.n == entry->n && shape.k == entry->k; };
      if (std::ranges::none_of(tuning.shapes, is_known)) {
        tuning.shapes.push_back({format("{}x{}", entry->n, entry->k), entry->n, entry->k});
      }
    }
    for (auto& [place, tuning] : runs) {
      for (const VerifiedEntry& entry : result_.entries) {
        tuning.known.push_back({entry.n, entry.k, entry.m, 1});
      }
    }
    return runs;
  }

  Expected<void> tune_points(const std::vector<const VerifiedEntry*>& wanted) {
    for (auto& [place, tuning] : plan_tuning(wanted)) {
      if (options_.time_budget_s > 0) {
        tuning.time_budget_s = std::max(left_s_, 1.0);
      }
      const Expected<TuneSummary> tuned = tune_with(tuning, hooks_);
      if (!tuned) {
        return tuned.error();
      }
      left_s_ -= tuned->elapsed_s;
      result_.elapsed_s += tuned->elapsed_s;
      result_.interrupted_by = tuned->interrupted_by;
      for (const std::string& file : tuned->files) {
        if (std::ranges::find(result_.files, file) == result_.files.end()) {
          result_.files.push_back(file);
        }
      }
      if (tuned->interrupted_by != 0) {
        return {};
      }
      for (const TunePoint& point : tuned->points) {
        settle(tuning.tables, point);
      }
    }
    return {};
  }

  void settle(const std::string& directory, const TunePoint& point) {
    if (point.status != PointStatus::tile && point.status != PointStatus::vendor && point.status != PointStatus::baseline) {
      return;
    }
    settled_[{point.shape.n, point.shape.k}].insert(point.m);
    result_.advice.push_back({directory, "", "fixed",
                              format("{} M = {}: {} {} serves now, {:.3f}x the baseline's speed", point.shape.name, point.m,
                                     point.kernel, point.config.to_json(), point.ratio)});
  }

  void drop_settled_findings() {
    for (const VerifiedEntry& entry : result_.entries) {
      if (entry.beaten_by.empty() || !is_settled(entry)) {
        continue;
      }
      const std::string begin = format("M = {}: ", entry.m);
      std::erase_if(result_.findings, [&](const Finding& finding) {
        return finding.kind == "loses" && finding.file == entry.file && finding.message.starts_with(begin);
      });
    }
  }

  const VerifyOptions& options_;
  const RunHooks& hooks_;
  const std::vector<std::unique_ptr<Plan>>& plans_;
  double left_s_;
  VerifyResult& result_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::int64_t>> settled_;  // By shape: the M.
};

}  // namespace

Expected<void> fix_losses(const VerifyOptions& options, const RunHooks& hooks,
                          const std::vector<std::unique_ptr<Plan>>& plans, double left_s, VerifyResult& result) {
  return Repair(options, hooks, plans, left_s, result).run();
}

}  // namespace octile
