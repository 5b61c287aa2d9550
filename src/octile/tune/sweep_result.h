// SPDX-License-Identifier: Apache-2.0
// What a sweep comes to: the points of its summary, why it must not count as done, its tables.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/point.h"
#include "octile/tune/sweep_plan.h"
#include "octile/tune/tune.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace octile {

// Why a point (weight, M) was left for lack of time, where that is known.
using NoBudgetReasons = std::map<std::pair<std::size_t, std::int64_t>, std::string>;

// Points, mean gain and failure of `summary`; its `interrupted_by` is set already.
void conclude_sweep(const TuneOptions& options, const SweepPlan& plan, const SweepState& state,
                    const NoBudgetReasons& no_budget_reasons, TuneSummary& summary);
// Merges the entries of a weight into its table. False: there are none, and nothing is written.
Expected<bool> write_swept_table(const TuneOptions& options, const SweepPlan& plan, const SweepState& state,
                                 const SweptWeight& weight);

}  // namespace octile
