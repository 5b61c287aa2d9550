// SPDX-License-Identifier: Apache-2.0
// From rows of a bench to entries of a table; see vendor_finds.h.
#include "octile/report/vendor_finds.h"

#include "octile/core/date_text.h"
#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/core/named_value.h"
#include "octile/kernels/backend.h"
#include "octile/kernels/known_devices.h"
#include "octile/table/table_ops.h"
#include "octile/tune/race.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace octile {

namespace {

// What gains less than the tuner asks for stays as it is.
constexpr double kWinMargin = 1 + RaceOptions{}.margin;
// Fewer give no interval by signed ranks.
constexpr int kFewestRounds = 6;
// Medians of two lanes against the centre of their paired ratios.
constexpr double kMostContradiction = 1.25;

bool is_of_table(const BenchRow& row, const TableKey& key) {
  return row.n == key.n && row.k == key.k && row.layout == key.weight_layout && row.accumulate == key.accumulate &&
         row.max_sms == key.max_sms && row.scope == "linear" && !key.bias && row.out_dtype == key.out_dtype;
}

bool is_win(const BenchRow& row) {
  return row.rounds >= kFewestRounds && row.vs_vendor_lo > 0 && row.vs_vendor_hi * kWinMargin < 1 &&
         row.ratio_lo > kWinMargin * row.vs_vendor_hi;
}

// What the row compared with is what the table would run.
bool compares_with(const TableEntry* entry, const BenchRow& row) {
  if (entry == nullptr || entry->kernel == kBaselineKernel) {
    return entry == nullptr || row.choice == "baseline";
  }
  return (row.choice == "tile" || row.choice == "vendor") && entry->kernel == row.chosen_kernel &&
         entry->config == row.chosen_config;
}

// Entries that say no date were measured at their table's. A bench is dated by its start: what was measured in that second
// was there before.
bool was_measured_since(const TileTable& table, const TableEntry* entry, const std::string& date) {
  const auto of_table = table.provenance.find("date");
  if (entry == nullptr || (entry->date.empty() && of_table == table.provenance.end())) {
    return false;
  }
  return (entry->date.empty() ? of_table->second : entry->date) > date;
}

Expected<void> check_algorithm(const BenchRow& row, std::string_view kernel, const TableKey& key) {
  const KernelFamily* family = find_family(kernel);
  if (family == nullptr || !family->is_vendor() || family->layout() != key.weight_layout) {
    return make_error(ErrorCode::corrupt, "wanted a vendor of this build that reads weights in layout {}, got {}",
                      key.weight_layout, quote_for_message(kernel));
  }
  DeviceInfo device = known_device(key.device_name).value_or(DeviceInfo{});
  device.kind = DeviceKind::cuda;
  device.name = key.device_name;
  device.arch = key.arch;
  device.sm_count = key.sm_count;
  Problem problem;
  problem.n = key.n;
  problem.k = key.k;
  problem.numerics = value_named(key.numerics, {Numerics::baseline}, Numerics::deterministic);
  problem.accumulate = value_named(key.accumulate, {Accumulate::precise}, Accumulate::fast);
  problem.out_dtype = value_named(key.out_dtype, {DType::fp16, DType::fp32}, problem.out_dtype);
  problem.layout = WeightLayout::row_major;
  problem.max_sms = key.max_sms;
  return family->check(device, problem, row.best_vendor_config);
}

Expected<TableEntry> entry_of(const BenchRow& row, const std::string& kernel, const BenchRecord& record,
                              const TableKey& key) {
  Expected<void> valid = check_algorithm(row, kernel, key);
  const double of_times = row.baseline_us / row.best_vendor_us;
  const double of_ratios = row.ratio / row.vs_vendor;
  if (valid && !(std::abs(std::log(of_times / of_ratios)) < std::log(kMostContradiction))) {
    valid = make_error(ErrorCode::corrupt, "its times give {:.4g}x the baseline, its ratios {:.4g}x", of_times, of_ratios);
  }
  if (!valid) {
    return make_error(ErrorCode::corrupt, "{} m={}: {}", printable_text(row.shape), row.m, valid.error().message);
  }
  TableEntry entry;
  entry.m_lo = entry.m_hi = row.m;
  entry.kernel = kernel;
  entry.config = row.best_vendor_config;
  entry.kernel_source_hash = row.best_vendor_source_hash;
  entry.vendor_version = row.best_vendor_version;
  entry.us = row.best_vendor_us;
  entry.baseline_us = row.baseline_us;
  entry.ratio = Ratio{of_ratios, row.ratio_lo / row.vs_vendor_hi, row.ratio_hi / row.vs_vendor_lo};
  if (row.best_vendor_rel_error > 0) {
    entry.rel_error = row.best_vendor_rel_error;
  }
  entry.date = record.result.date;
  return entry;
}

}  // namespace

Expected<std::vector<VendorFind>> vendor_finds(const BenchRecord& record, const TileTable& table) {
  if (record.result.device_name != table.key.device_name) {
    return make_error(ErrorCode::failed, "wanted a record of {}, got one of {}", table.key.device_name,
                      quote_for_message(record.result.device_name));
  }
  if (!is_moment(record.result.date)) {
    return make_error(ErrorCode::corrupt, "\"date\": wanted one as 2026-11-30T18:44:34Z, got {}",
                      quote_for_message(record.result.date));
  }
  std::vector<VendorFind> finds;
  for (const BenchRow& row : record.result.rows) {
    const TableEntry* entry = table.find(row.m);
    const bool is_said =
        !row.best_vendor_config.values.empty() && !row.best_vendor_source_hash.empty() && !row.best_vendor_version.empty();
    const bool is_double = std::ranges::any_of(finds, [&](const VendorFind& find) { return find.entry.m_lo == row.m; });
    if (!is_said || is_double || !is_of_table(row, table.key) || !is_win(row) || !compares_with(entry, row) ||
        was_measured_since(table, entry, record.result.date)) {
      continue;
    }
    const std::string kernel = row.best_vendor_kernel.substr(0, row.best_vendor_kernel.find(' '));
    Expected<TableEntry> found = entry_of(row, kernel, record, table.key);
    if (!found) {
      return std::move(found).error();
    }
    finds.push_back({*std::move(found), printable_text(row.shape), printable_text(row.chosen_kernel), 1 / row.vs_vendor,
                     1 / row.vs_vendor_hi});
  }
  return finds;
}

Expected<TileTable> adopt_vendor_finds(const TileTable& table, const std::vector<VendorFind>& finds,
                                       const std::string& file) {
  TileTable found;
  found.key = table.key;
  found.file = file;
  for (const VendorFind& find : finds) {
    found.entries.push_back(find.entry);
  }
  Expected<TileTable> merged = merge_newer(table, found);
  if (merged) {
    merged->provenance["adopted"] = format("{} entries of {}", finds.size(), file);
  }
  return merged;
}

}  // namespace octile
