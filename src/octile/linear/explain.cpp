// SPDX-License-Identifier: Apache-2.0
// A choice put into words.
#include "octile/linear/explain.h"

#include "octile/core/format.h"

#include <nlohmann/json.hpp>

namespace octile {

std::string measured_json(const TableEntry* entry) {
  nlohmann::ordered_json proof;  // null until something is known.
  if (entry != nullptr) {
    const auto put = [&](const char* name, const std::optional<double>& value) {
      if (value) {
        proof[name] = *value;
      }
    };
    put("us", entry->us);
    put("baseline_us", entry->baseline_us);
    put("best_vendor_us", entry->best_vendor_us);
    if (entry->ratio) {
      proof["ratio"] = {{"mid", entry->ratio->mid}, {"lo", entry->ratio->lo}, {"hi", entry->ratio->hi}};
    }
    put("rel_error", entry->rel_error);
    if (!proof.is_null()) {
      proof["inferred"] = entry->inferred;
      if (!entry->date.empty()) {
        proof["date"] = entry->date;
      }
    }
  }
  return proof.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Explanation explain_choice(const Plan& plan, const Choice& choice, std::int64_t m, std::int64_t bytes) {
  Explanation result;
  result.device_name = plan.device().name;
  result.n = plan.problem().n;
  result.k = plan.problem().k;
  result.m = m;
  result.choice = to_string(choice.kind);
  result.kernel = choice.kernel;
  result.config = choice.config.to_json();
  if (!choice.table_key.empty()) {
    result.table_file = plan.lookup().table->file;
    result.table_key = choice.table_key;
  }
  result.reason = choice.reason;
  result.measured = measured_json(choice.entry);
  result.stale = choice.stale;
  result.bytes = bytes;
  return result;
}

Explanation explain_plan(const Plan& plan, std::int64_t m, std::int64_t bytes) {
  if (m >= 1) {
    return explain_choice(plan, plan.choose(m), m, bytes);
  }
  Choice nothing = plan.choose(1);
  nothing.table_key.clear();
  nothing.entry = nullptr;
  nothing.stale = false;
  nothing.reason = format("M = {} launches nothing; M = 1 would run {}", m, nothing.kernel);
  return explain_choice(plan, nothing, m, bytes);
}

}  // namespace octile
