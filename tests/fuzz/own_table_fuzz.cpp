// SPDX-License-Identifier: Apache-2.0
// Tables in Octile's format: whatever is read is whole, serves every M without a crash, and is written as it was read.
#include "fuzz/fuzz.h"
#include "octile/kernels/backend.h"
#include "octile/linear/choose.h"
#include "octile/table/own_format.h"
#include "octile/table/table_ops.h"

#include <nlohmann/json.hpp>

using namespace octile;

namespace {

std::optional<TileTable> parsed(std::string_view text) {
  std::vector<JsonDuplicate> duplicates;
  const auto document = parse_json(text, "input", {}, &duplicates);
  std::vector<Finding> findings;
  return document ? parse_own_table(*document, duplicates, "input", findings) : std::nullopt;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::optional<TileTable> table = parsed(fuzz::as_text(data, size));
  if (!table) {
    return 0;
  }
  std::int64_t previous = 0;
  for (const TableEntry& entry : table->entries) {
    fuzz::require(entry.m_lo > previous && entry.m_hi >= entry.m_lo, "entries are ascending and disjoint");
    previous = entry.m_hi;
  }
  const Expected<std::string> text = own_table_text(*table);
  fuzz::require(text.has_value(), "what was read can be written");
  const std::optional<TileTable> again = parsed(*text);
  fuzz::require(again.has_value() && diff_tables(*table, *again).empty(), "what is written is what was read");
  const Expected<TileTable> merged = merge_tables({*table, *again});
  fuzz::require(merged.has_value(), "a table merges with itself");
  static_cast<void>(export_field_table(*table));
  static_cast<void>(show_rows(*table));
  static_cast<void>(describe_table(*table));

  static const Device cpu = find_device("cpu").value();
  Problem problem;
  problem.n = table->key.n;
  problem.k = table->key.k;
  TableLookup lookup;
  lookup.table = std::make_shared<TileTable>(*table);
  const Plan plan = Plan::from_lookup(cpu.backend, cpu.info, problem, std::move(lookup), true);
  for (const std::int64_t m : plan.breakpoints(100'000)) {
    fuzz::require(!plan.choose(m).kernel.empty(), "something serves every M");
  }
  return 0;
}
