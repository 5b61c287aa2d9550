// SPDX-License-Identifier: Apache-2.0
// Summary and tables of a sweep; see sweep_result.h.
#include "octile/tune/sweep_result.h"

#include "octile/core/format.h"
#include "octile/table/table_ops.h"
#include "octile/table/table_store.h"
#include "octile/tune/intervals.h"
#include "octile/tune/sweep.h"

#include <algorithm>
#include <vector>

namespace octile {

namespace {

void collect_points(const TuneOptions& options, const SweepPlan& plan, const NoBudgetReasons& no_budget_reasons,
                    TuneSummary& summary) {
  std::vector<double> ratios;
  const auto add = [&](TunePoint point) {
    if (point.ratio > 0) {
      ratios.push_back(point.ratio);
    }
    summary.points.push_back(std::move(point));
  };
  for (std::size_t s = 0; s < options.shapes.size(); ++s) {
    const SweptWeight& weight = plan.weights[plan.weight_of_shape[s]];
    for (const std::int64_t m : weight.share.own) {
      TunePoint point;
      point.shape = options.shapes[s];
      point.m = m;
      if (const TunePoint* measured = weight.find_point(m); measured != nullptr) {
        point = *measured;
        point.shape.name = options.shapes[s].name;
      } else {
        const auto reason = no_budget_reasons.find({plan.weight_of_shape[s], m});
        point.reason = reason != no_budget_reasons.end() ? reason->second : "it did not fit the time budget";
      }
      add(std::move(point));
    }
  }
  for (const SweptWeight& weight : plan.weights) {
    for (const TunePoint& point : weight.points) {
      if (!std::binary_search(weight.share.own.begin(), weight.share.own.end(), point.m)) {
        add(point);
      }
    }
  }
  summary.geomean_ratio = geometric_mean(ratios);
}

void find_failure(const SweepState& state, TuneSummary& summary) {
  std::vector<std::string> failures;
  for (const auto& [kernel, record] : state.families) {
    if (record.admitted == 0 && record.failed > 0) {
      failures.push_back(format("kernel family {} failed at every candidate that was tried ({}); the first: {}", kernel,
                                record.failed, record.first_reason));
    }
  }
  const auto is_measured = [](const TunePoint& point) {
    return point.status != PointStatus::no_budget && point.status != PointStatus::failed;
  };
  if (failures.empty() && summary.interrupted_by == 0 && !summary.points.empty() &&
      std::none_of(summary.points.begin(), summary.points.end(), is_measured)) {
    failures.push_back(format("no point was measured; the first, {} m={}: {}", summary.points.front().shape.name,
                              summary.points.front().m, summary.points.front().reason));
  }
  for (const std::string& failure : failures) {
    summary.failure = summary.failure ? format("{}\n{}", *summary.failure, failure) : failure;
  }
}

MeasureConditions conditions_of(const SweptWeight& weight) {
  MeasureConditions conditions;
  for (const TunePoint& point : weight.points) {
    conditions.add(point.conditions);
  }
  return conditions;
}

// What a table says of the conditions under which it was measured, where they are known.
void add_conditions(const SweptWeight& weight, std::map<std::string, std::string>& provenance) {
  const MeasureConditions conditions = conditions_of(weight);
  if (conditions.sm_clock_lo_mhz && conditions.sm_clock_hi_mhz) {
    provenance["clocks"] = format("SM {} to {} MHz between the passes; throttled: {}", *conditions.sm_clock_lo_mhz,
                                  *conditions.sm_clock_hi_mhz, throttle_text(conditions.throttle_reasons.value_or(0)));
  }
  if (std::string disturbed = disturbance_text(conditions); !disturbed.empty()) {
    provenance["disturbed"] = std::move(disturbed);
  }
}

std::string protocol_of(const SweepState& state, const SweptWeight& weight) {
  std::string memory;
  const std::string prefix = place_of(weight.shape);
  for (const auto& [place, copies] : state.memory) {
    if (place.starts_with(prefix)) {
      memory += format("{}{} {}", memory.empty() ? "" : "; ", place.substr(prefix.size()), copies);
    }
  }
  return format(
      "cold weights ({}), interleaved passes forward and backward, signed-rank intervals over several looks, "
      "margin 2 %, error 5 % a point",
      memory.empty() ? "resumed" : memory);
}

}  // namespace

void conclude_sweep(const TuneOptions& options, const SweepPlan& plan, const SweepState& state,
                    const NoBudgetReasons& no_budget_reasons, TuneSummary& summary) {
  collect_points(options, plan, no_budget_reasons, summary);
  MeasureConditions conditions;
  for (const SweptWeight& weight : plan.weights) {
    conditions.add(conditions_of(weight));
  }
  if (std::string disturbed = disturbance_text(conditions); !disturbed.empty()) {
    summary.notes.push_back(std::move(disturbed));
  }
  find_failure(state, summary);
}

Expected<bool> write_swept_table(const TuneOptions& options, const SweepPlan& plan, const SweepState& state,
                                 const SweptWeight& weight) {
  const Backend& backend = *plan.device.backend;
  const std::string date = utc_now();
  TileTable mine;
  mine.key = table_key_of(plan, weight);
  mine.provenance = provenance_of_run(backend, plan.device.info, options, date, protocol_of(state, weight));
  add_conditions(weight, mine.provenance);
  for (const std::vector<TunePoint>& stretch : weight.stretches()) {
    const std::vector<TableEntry> entries = make_entries(stretch, backend, date);
    mine.entries.insert(mine.entries.end(), entries.begin(), entries.end());
  }
  if (mine.entries.empty()) {
    return false;
  }
  mine.file = "this run";
  const auto change = [&](const TileTable* current) -> Expected<TileTable> {
    if (current == nullptr) {
      return mine;
    }
    TileTable kept = *current;
    drop_outdated(kept, backend);
    return kept.entries.empty() ? mine : merge_newer(kept, mine);
  };
  if (Expected<void> written = update_own_table(weight.path, change); !written) {
    return std::move(written).error();
  }
  return true;
}

}  // namespace octile
