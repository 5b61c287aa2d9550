// SPDX-License-Identifier: Apache-2.0
// From rows of a bench to entries of a table; see vendor_finds.h.
#include "octile/report/vendor_finds.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/kernels/backend.h"
#include "octile/table/gap_rule.h"
#include "octile/table/table_ops.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace octile {

namespace {

// Fewer give no interval by signed ranks.
constexpr int kFewestRounds = 6;

// "cublaslt {...}" in its two parts; nullopt where no attributes are named.
std::optional<std::pair<std::string, std::string_view>> split_kernel(std::string_view kernel) {
  const std::size_t brace = kernel.find(" {");
  if (brace == std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(std::string(kernel.substr(0, brace)), kernel.substr(brace + 1));
}

bool is_win(const BenchRow& row) {
  return row.rounds >= kFewestRounds && row.vs_vendor_lo > 0 && row.vs_vendor_hi * kWinMargin < 1 &&
         row.ratio_lo > kWinMargin * row.vs_vendor_hi;
}

// Entries that say no date were measured at their table's.
bool was_measured_since(const TileTable& table, std::int64_t m, const std::string& date) {
  const TableEntry* entry = table.find(m);
  const auto of_table = table.provenance.find("date");
  if (entry == nullptr || (entry->date.empty() && of_table == table.provenance.end())) {
    return false;
  }
  return (entry->date.empty() ? of_table->second : entry->date) >= date;
}

// What other entries of the kernel say of its version; empty where there is none, as in a table of our kernels alone.
std::string version_in(const TileTable& table, const std::string& kernel) {
  const auto found = std::ranges::find_if(
      table.entries, [&](const TableEntry& entry) { return entry.kernel == kernel && !entry.vendor_version.empty(); });
  const auto known = table.provenance.find(kernel);
  if (found != table.entries.end()) {
    return found->vendor_version;
  }
  return known == table.provenance.end() ? std::string() : known->second;
}

Expected<TileConfig> config_of(std::string_view attributes) {
  const auto json = nlohmann::ordered_json::parse(attributes, nullptr, false);
  if (!json.is_object()) {
    return make_error(ErrorCode::corrupt, "wanted an object of attributes, got {}", quote_for_message(attributes));
  }
  TileConfig config;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number_integer()) {
      return make_error(ErrorCode::corrupt, "{}: wanted an integer, got {}", quote_for_message(name), value.dump());
    }
    config.set(name, value.get<std::int64_t>());
  }
  return config;
}

Expected<TableEntry> entry_of(const BenchRow& row, const std::string& kernel, std::string_view attributes,
                              const BenchRecord& record, const TileTable& table) {
  Expected<TileConfig> config = config_of(attributes);
  if (!config) {
    return make_error(ErrorCode::corrupt, "{} m={}: {}: {}", row.shape, row.m, kernel, config.error().message);
  }
  const KernelFamily* family = find_family(kernel);
  if (family == nullptr || !family->is_vendor()) {
    return make_error(ErrorCode::corrupt, "{} m={}: wanted a vendor's kernel of this build, got {}", row.shape, row.m,
                      kernel);
  }
  TableEntry entry;
  entry.m_lo = entry.m_hi = row.m;
  entry.kernel = kernel;
  entry.config = *std::move(config);
  entry.kernel_source_hash = family->source_hash();
  entry.vendor_version = version_in(table, kernel);
  entry.us = row.best_vendor_us;
  entry.baseline_us = row.baseline_us;
  entry.ratio = Ratio{row.ratio / row.vs_vendor, row.ratio_lo / row.vs_vendor_hi, row.ratio_hi / row.vs_vendor_lo};
  entry.date = record.result.date;
  return entry;
}

}  // namespace

Expected<std::vector<VendorFind>> vendor_finds(const BenchRecord& record, const TileTable& table) {
  if (record.result.device_name != table.key.device_name) {
    return make_error(ErrorCode::failed, "wanted a record of {}, got one of {}", table.key.device_name,
                      record.result.device_name);
  }
  std::vector<VendorFind> finds;
  for (const BenchRow& row : record.result.rows) {
    const bool is_its = row.n == table.key.n && row.k == table.key.k && row.layout == table.key.weight_layout &&
                        row.accumulate == table.key.accumulate && row.scope == "linear";
    const auto named = split_kernel(row.best_vendor_kernel);
    if (!is_its || !named || !is_win(row) || was_measured_since(table, row.m, record.result.date)) {
      continue;
    }
    Expected<TableEntry> entry = entry_of(row, named->first, named->second, record, table);
    if (!entry) {
      return std::move(entry).error();
    }
    finds.push_back({*std::move(entry), row.shape, row.chosen_kernel, 1 / row.vs_vendor, 1 / row.vs_vendor_hi});
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
