// SPDX-License-Identifier: Apache-2.0
// A plan's choice as `explain` prints it.
#pragma once

#include <octile/linear.hpp>

#include "octile/linear/choose.h"

#include <cstdint>
#include <string>

namespace octile {

// `bytes`: resident bytes of the weight; 0 where there is none (a device that is not present).
Explanation explain_choice(const Plan& plan, const Choice& choice, std::int64_t m, std::int64_t bytes);
// choose(m) explained, also where m < 1 (which launches nothing).
Explanation explain_plan(const Plan& plan, std::int64_t m, std::int64_t bytes = 0);

// The proof of an entry as one line of JSON: {"us", "baseline_us", "best_vendor_us", "ratio", "rel_error", "inferred",
// "date"}, without what was not measured; "null" where nothing was, or for no entry.
std::string measured_json(const TableEntry* entry);

}  // namespace octile
