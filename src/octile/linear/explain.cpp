// SPDX-License-Identifier: Apache-2.0
// Explanations and their JSON.
#include "octile/linear/explain.h"

#include "octile/core/format.h"

#include <nlohmann/json.hpp>

namespace octile {

namespace {

// Names and reasons may hold bytes that are no UTF-8 (file names do): they are replaced rather than refused.
std::string dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json json_or_null(const std::string& text) {
  nlohmann::ordered_json value = nlohmann::ordered_json::parse(text, nullptr, false);
  return value.is_discarded() ? nlohmann::ordered_json() : value;
}

}  // namespace

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
  return dump(proof);
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

std::string to_json(const Explanation& explanation) {
  const nlohmann::ordered_json result = {
      {"device_name", explanation.device_name},
      {"n", explanation.n},
      {"k", explanation.k},
      {"m", explanation.m},
      {"choice", explanation.choice},
      {"kernel", explanation.kernel},
      {"config", json_or_null(explanation.config)},
      {"table_file", explanation.table_file},
      {"table_key", explanation.table_key},
      {"reason", explanation.reason},
      {"measured", json_or_null(explanation.measured)},
      {"stale", explanation.stale},
      {"bytes", explanation.bytes},
  };
  return dump(result);
}

}  // namespace octile
