// SPDX-License-Identifier: Apache-2.0
// Structs to JSON, field by field in the documented order.
#include "octile/report/json_report.h"

#include "octile/report/point_statistics.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

// Strings may hold bytes that are no UTF-8 (a path, a driver's message): those become U+FFFD rather than an exception.
std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// For ratios and times where 0 stands for "not measured".
Json measured_number(double value) { return value > 0 ? number(value) : Json(nullptr); }

// JSON that another layer wrote; text that is none is passed on as a string, so that nothing is lost.
Json embedded(const std::string& text) {
  if (text.empty()) {
    return nullptr;
  }
  Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

void add_own(const BenchRow& row, Json& json) {
  json["own_us"] = measured_number(row.own_us);
  json["own_kernel"] = row.own_kernel;
  json["own_ratio"] = measured_number(row.own_ratio);
  json["own_ratio_lo"] = measured_number(row.own_ratio_lo);
  json["own_ratio_hi"] = measured_number(row.own_ratio_hi);
  json["own_vs_vendor"] = measured_number(row.own_vs_vendor);
  json["own_vs_vendor_lo"] = measured_number(row.own_vs_vendor_lo);
  json["own_vs_vendor_hi"] = measured_number(row.own_vs_vendor_hi);
}

Json row_json(const BenchRow& row) {
  return {{"shape", row.shape},
          {"n", row.n},
          {"k", row.k},
          {"m", row.m},
          {"scope", row.scope},
          {"chained", row.chained},
          {"layout", row.layout},
          {"accumulate", row.accumulate},
          {"out_dtype", row.out_dtype},
          {"baseline_us", measured_number(row.baseline_us)},
          {"baseline_kernel", row.baseline_kernel},
          {"best_vendor_us", measured_number(row.best_vendor_us)},
          {"best_vendor_kernel", row.best_vendor_kernel},
          {"chosen_us", measured_number(row.chosen_us)},
          {"chosen_kernel", row.chosen_kernel},
          {"choice", row.choice},
          {"ratio", measured_number(row.ratio)},
          {"ratio_lo", measured_number(row.ratio_lo)},
          {"ratio_hi", measured_number(row.ratio_hi)},
          {"rounds", row.rounds},
          {"vs_vendor", measured_number(row.vs_vendor)},
          {"vs_vendor_lo", measured_number(row.vs_vendor_lo)},
          {"vs_vendor_hi", measured_number(row.vs_vendor_hi)},
          {"floor_us", measured_number(row.floor_us)},
          {"floor_share", measured_number(row.floor_share)},
          {"tflops", measured_number(row.tflops)},
          {"gbps", measured_number(row.gbps)},
          {"rel_error", number(row.rel_error)},
          {"max_sms", row.max_sms},
          {"chosen_config", config_object(row.chosen_config)},
          {"best_vendor_config", config_object(row.best_vendor_config)},
          {"best_vendor_source_hash", row.best_vendor_source_hash},
          {"best_vendor_version", row.best_vendor_version},
          {"best_vendor_rel_error", measured_number(row.best_vendor_rel_error)},
          {"conditions", Json(to_json(row.conditions))}};  // Null there: not known of this device.
}

// What every list of cliffs says of one; whose curve it is comes before.
void add_cliff(const Cliff& cliff, Json& json) {
  json["kind"] = cliff.kind == Cliff::Kind::step ? "step" : "inversion";
  json["from_m"] = cliff.from.m;
  json["from_us"] = cliff.from.us;
  json["from_kernel"] = cliff.from.kernel;
  json["to_m"] = cliff.to.m;
  json["to_us"] = cliff.to.us;
  json["to_kernel"] = cliff.to.kernel;
  json["ratio"] = cliff.ratio;
}

void add_curves(const BenchResult& result, Json& json) {
  json["all_m"] = true;
  Json& cliffs = json["cliffs"] = Json::array();
  const std::vector<PointGroup> groups = group_points(result.rows);
  for (const GroupCliff& found : cliffs_of(result.rows, groups)) {
    const PointGroup& group = groups[found.group];
    Json& cliff =
        cliffs.emplace_back(Json{{"shape", group.shape}, {"n", group.n}, {"k", group.k}, {"curve", to_string(found.curve)}});
    add_cliff(found.cliff, cliff);
  }
  Json& left_out = json["left_out"] = Json::array();
  for (const LeftOut& part : result.left_out) {
    left_out.push_back({{"shape", part.shape}, {"n", part.n}, {"k", part.k}, {"m", part.m}, {"reason", part.reason}});
  }
  json["missing"] = result.missing;
  json["notes"] = result.notes;
}

Json result_json(const BenchResult& result) {
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) {
    Json& json = rows.emplace_back(row_json(row));
    if (result.all_m) {
      add_own(row, json);
    }
    if (!result.published_from.empty()) {
      Json& published = json["published"] = Json::array();
      for (const PublishedTime& time : row.published) {
        published.push_back({{"name", time.name}, {"us", measured_number(time.us)}});
      }
    }
  }
  Json json = {{"device_name", result.device_name},
               {"octile_version", result.octile_version},
               {"kernel_source_hash", result.kernel_source_hash},
               {"date", result.date},
               {"unit", "us"},
               {"protocol", result.protocol},
               {"rows", std::move(rows)}};
  if (!result.published_from.empty()) {
    json["published_from"] = result.published_from;
  }
  if (result.all_m) {
    add_curves(result, json);
  }
  return json;
}

Json list_of(std::span<const Finding> findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"file", finding.file}, {"key", finding.key}, {"kind", finding.kind}, {"message", finding.message}});
  }
  return list;
}

}  // namespace

std::string indented_json(const std::string& json) { return dump(embedded(json)); }

std::string env_json(std::span<const VariableReport> variables) {
  Json list = Json::array();
  for (const VariableReport& variable : variables) {
    list.push_back({{"name", variable.name},
                    {"section", variable.section},
                    {"type", variable.type},
                    {"default", variable.default_value},
                    {"value", variable.value},
                    {"source", variable.source},
                    {"fallback", variable.fallback},
                    {"description", variable.sentence}});
  }
  return dump(list);
}

std::string explanation_json(const Explanation& explanation) { return indented_json(to_json(explanation)); }

std::string explanations_json(std::span<const Explanation> explanations) {
  Json list = Json::array();
  for (const Explanation& explanation : explanations) {
    list.push_back(embedded(to_json(explanation)));
  }
  return dump(list);
}

std::string findings_json(bool ok, std::span<const Finding> findings) {
  return dump({{"ok", ok}, {"findings", list_of(findings)}});
}

std::string verify_json(const VerifyResult& result) {
  Json json = {{"ok", result.ok()}, {"findings", list_of(result.findings)}};
  if (result.all_m) {
    json["advice"] = list_of(result.advice);
    Json& cliffs = json["cliffs"] = Json::array();
    for (const TableCliffs& table : result.cliffs) {
      for (const Cliff& cliff : table.cliffs) {
        add_cliff(cliff, cliffs.emplace_back(Json{{"file", table.file}}));
      }
    }
    json["files"] = result.files;
  }
  return dump(json);
}

std::string bench_json(const BenchResult& result) { return dump(result_json(result)); }

std::string warmup_json(const DeviceInfo& device, const WarmupResult& result) {
  Json failures = Json::array();
  for (const Error& error : result.failures) {
    failures.push_back(error.message);
  }
  return dump({{"device_name", device.name},
               {"arch", device.arch},
               {"kernels", result.kernels},
               {"compiled", result.compiled},
               {"cached", result.cached},
               {"exported", result.exported},
               {"failures", std::move(failures)}});
}

std::string cache_json(const CacheReport& report) {
  return dump({{"directory", report.directory},
               {"entries", report.entries},
               {"bytes", report.bytes},
               {"limit_bytes", report.limit_bytes},
               {"removed", report.removed},
               {"removed_bytes", report.removed_bytes}});
}

std::string recorded_bench_json(const BenchResult& result, const RecordedContext& context) {
  Json json = result_json(result);
  json["driver"] = context.driver;
  json["libraries"] = context.libraries;
  json["commit"] = context.commit;
  json["command"] = context.command;
  return dump(json);
}

}  // namespace octile
