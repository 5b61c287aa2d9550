// SPDX-License-Identifier: Apache-2.0
// Repairing tables: what lost is tuned again, and the table's directory gets what won.
#pragma once

#include <octile/error.hpp>

#include "octile/linear/choose.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/verify.h"

#include <memory>
#include <vector>

namespace octile {

// Tunes the points of `result` at which something beat the table's choice, within `left_s` seconds where the run has a
// budget, and moves the findings that are settled by it to the advice, as "fixed". A field table is left as it is: a table
// in Octile's format with its tiles and what won appears beside it, and goes before it. Errors are those of tune().
Expected<void> fix_losses(const VerifyOptions& options, const RunHooks& hooks,
                          const std::vector<std::unique_ptr<Plan>>& plans, double left_s, VerifyResult& result);

}  // namespace octile
