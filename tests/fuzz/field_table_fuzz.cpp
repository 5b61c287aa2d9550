// SPDX-License-Identifier: Apache-2.0
// Tables in the field's format: what is read imports into a table of ours, and exports again.
#include "fuzz/fuzz.h"
#include "octile/table/field_format.h"
#include "octile/table/own_format.h"
#include "octile/table/table_ops.h"

#include <nlohmann/json.hpp>

using namespace octile;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<JsonDuplicate> duplicates;
  const auto document = parse_json(fuzz::as_text(data, size), "input", {}, &duplicates);
  if (!document) {
    return 0;
  }
  const auto name = parse_table_file_name("N=6144,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json");
  std::vector<Finding> findings;
  const std::optional<TileTable> table = parse_field_table(*document, duplicates, name->key, "input", findings);
  if (!table) {
    fuzz::require(!findings.empty(), "a table that is refused has a reason");
    return 0;
  }
  for (const std::int64_t m : {1, 2, 63, 64, 65, 1'000'000}) {
    fuzz::require(table->entries.empty() || table->find(m) != nullptr, "the nearest key serves every M");
  }
  static_cast<void>(tiles_beyond_shared_memory(*table, 99 * 1024));
  for (const ImportRanges ranges : {ImportRanges::points, ImportRanges::nearest}) {
    if (const Expected<TileTable> own = import_field_table(*table, {}, ranges)) {
      fuzz::require(own_table_text(*own).has_value(), "what was imported can be written");
      if (const Expected<ExportedTable> exported = export_field_table(*own)) {
        fuzz::require(field_table_text(exported->table).has_value(), "what was exported can be written");
      }
    }
  }
  return 0;
}
