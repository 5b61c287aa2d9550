// SPDX-License-Identifier: Apache-2.0
// Finding the tables to verify; see verify_plans.h.
#include "octile/tune/verify_plans.h"

#include "octile/core/format.h"
#include "octile/linear/judge.h"
#include "octile/table/table_store.h"
#include "octile/tune/sweep.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

namespace octile {

namespace {

// Every (n, k) of which a file of this device lies in a directory of the search path.
std::vector<TuneShape> shapes_with_tables(const std::string& tables, const std::string& device_name) {
  std::set<std::pair<std::int64_t, std::int64_t>> found;
  const auto look_at = [&](const std::filesystem::path& directory) {
    std::error_code missing;
    for (const auto& file : std::filesystem::directory_iterator(directory, missing)) {
      const std::optional<TableFileName> name = parse_table_file_name(file.path().filename().string());
      if (name && name->key.device_name == device_name) {
        found.emplace(name->key.n, name->key.k);
      }
    }
  };
  for (const std::string& directory : table_search_path(tables)) {
    look_at(directory);
    look_at(std::filesystem::path(directory) / device_name);
  }
  std::vector<TuneShape> shapes;
  for (const auto& [n, k] : found) {
    shapes.push_back({format("{}x{}", n, k), n, k});
  }
  return shapes;
}

// What of a table can be said without measuring.
void judge_entries(const Plan& plan, const TileTable& table, VerifyPlans& result) {
  if (is_precise_for_fast(table, plan.device(), plan.problem())) {
    result.advice.push_back({table.file, "", "fast_sums",
                             "its kernels are checked with fast sums; --accumulate precise checks what linears of precise "
                             "sums run"});
  }
  bool is_stale_said = false;
  for (std::size_t i = 0; i < table.entries.size(); ++i) {
    const TableEntry& entry = table.entries[i];
    if (!entry.left_out.empty()) {
      continue;  // A finding of reading the file already.
    }
    if (!plan.skip_reason(i).empty()) {
      result.findings.push_back({table.file, key_of(table, entry), "illegal", plan.skip_reason(i)});
      continue;
    }
    const Choice choice = plan.choose(entry.m_lo);
    if (choice.stale && !std::exchange(is_stale_said, true)) {
      result.advice.push_back({table.file, "", "stale", choice.reason});
    }
  }
}

void add_plan(const VerifyOptions& options, const TuneShape& shape, std::set<std::string>& files, VerifyPlans& result) {
  Problem problem = problem_of(options, shape);
  const auto make = [&] {
    return std::make_unique<Plan>(Plan::make(result.device.backend, result.device.info, problem, options.tables, true));
  };
  std::unique_ptr<Plan> plan = make();
  if (const TileTable* found = plan->lookup().table.get();
      found != nullptr && !found->field_format && found->key.numerics == to_string(Numerics::baseline)) {
    // What the table promises holds for whatever is compared with its entries and may take their place.
    problem.numerics = Numerics::baseline;
    plan = make();
  }
  for (const Finding& finding : plan->lookup().findings) {
    result.findings.push_back(finding);
  }
  const TileTable* table = plan->lookup().table.get();
  if (table == nullptr || !files.insert(table->file).second) {
    return;
  }
  if (!plan->table_refusal().empty()) {
    result.findings.push_back({table->file, "", "hard_key", plan->table_refusal()});
    return;
  }
  judge_entries(*plan, *table, result);
  result.plans.push_back(std::move(plan));
}

}  // namespace

Expected<VerifyPlans> find_verify_plans(const VerifyOptions& options, const RunHooks& hooks) {
  if (Expected<void> valid = check_run_options(options); !valid) {
    return std::move(valid).error();
  }
  Expected<Device> device = hooks.find_device(options.device);
  if (!device) {
    return std::move(device).error();
  }
  VerifyPlans result;
  result.device = *device;
  const DeviceInfo& info = device->info;
  std::set<std::string> files;
  for (const TuneShape& shape : options.shapes.empty() ? shapes_with_tables(options.tables, info.name) : options.shapes) {
    if (shape.n < 1 || shape.k < 1) {
      return make_error(ErrorCode::invalid_argument, "shape {}: wanted n and k >= 1, got n = {}, k = {}", shape.name,
                        shape.n, shape.k);
    }
    add_plan(options, shape, files, result);
  }
  if (files.empty() && result.findings.empty()) {
    return make_error(ErrorCode::invalid_argument, "no table of {} to verify{} in {}", info.name,
                      options.shapes.empty() ? "" : " for these shapes", join(table_search_path(options.tables), ", "));
  }
  return result;
}

std::string key_of(const TileTable& table, const TableEntry& entry) {
  return table.field_format ? std::to_string(entry.m_lo) : format("[{}, {}]", entry.m_lo, entry.m_hi);
}

}  // namespace octile
