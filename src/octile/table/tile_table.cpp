// SPDX-License-Identifier: Apache-2.0
// Look-up in one table, and the names of table files.
#include "octile/table/tile_table.h"

#include "octile/core/format.h"
#include "octile/table/device_names.h"
#include "octile/table/field_format.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace octile {

namespace {

constexpr std::string_view kOwnEnding = ".octile.json";
constexpr std::string_view kFieldEnding = ".json";

std::int64_t distance(std::int64_t a, std::int64_t b) noexcept { return a < b ? b - a : a - b; }

// The part of `text` before `separator`, which is removed from it with the separator; nullopt where there is none.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at + separator.size());
  return part;
}

std::vector<TableSegment> field_segments(const TileTable& table) {
  std::vector<const TableEntry*> by_key;
  by_key.reserve(table.entries.size());
  for (const TableEntry& entry : table.entries) {
    by_key.push_back(&entry);
  }
  // Stable, and the first of equal keys stays: find() takes the first in the file too. Pointers order as the file does.
  std::stable_sort(by_key.begin(), by_key.end(), [](const auto* a, const auto* b) { return a->m_lo < b->m_lo; });
  by_key.erase(std::unique(by_key.begin(), by_key.end(), [](const auto* a, const auto* b) { return a->m_lo == b->m_lo; }),
               by_key.end());

  std::vector<TableSegment> segments;
  std::int64_t lo = 1;
  for (std::size_t i = 0; i < by_key.size(); ++i) {
    std::int64_t hi = std::numeric_limits<std::int64_t>::max();
    if (i + 1 < by_key.size()) {
      const std::int64_t gap = by_key[i + 1]->m_lo - by_key[i]->m_lo;
      hi = by_key[i]->m_lo + gap / 2;
      // In the middle of an even gap both keys are as near: the one that comes first in the file serves.
      if (gap % 2 == 0 && by_key[i + 1] < by_key[i]) {
        hi -= 1;
      }
    }
    segments.push_back({lo, hi, by_key[i]});
    if (i + 1 < by_key.size()) {
      lo = hi + 1;
    }
  }
  return segments;
}

}  // namespace

const TableEntry* TileTable::find(std::int64_t m) const noexcept {
  if (m < 1 || entries.empty()) {
    return nullptr;
  }
  if (field_format) {
    // Keys are at least 1, so that no difference overflows. min_element returns the first of equal ones.
    return &*std::min_element(entries.begin(), entries.end(), [m](const TableEntry& a, const TableEntry& b) {
      return distance(a.m_lo, m) < distance(b.m_lo, m);
    });
  }
  const auto after = std::upper_bound(entries.begin(), entries.end(), m,
                                      [](std::int64_t value, const TableEntry& entry) { return value < entry.m_lo; });
  if (after == entries.begin()) {
    return nullptr;
  }
  const TableEntry& entry = *std::prev(after);
  return m <= entry.m_hi ? &entry : nullptr;
}

std::vector<TableSegment> segments_of(const TileTable& table) {
  if (table.field_format) {
    return field_segments(table);
  }
  std::vector<TableSegment> segments;
  segments.reserve(table.entries.size());
  for (const TableEntry& entry : table.entries) {
    segments.push_back({entry.m_lo, entry.m_hi, &entry});
  }
  return segments;
}

std::string table_file_name(const TableKey& key, bool field_format) {
  return format("N={},K={},device_name={},dtype={}{}", key.n, key.k, key.device_name, key.scheme,
                field_format ? kFieldEnding : kOwnEnding);
}

std::optional<TableFileName> parse_table_file_name(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0.
  TableFileName result;
  if (name.ends_with(kOwnEnding)) {
    name.remove_suffix(kOwnEnding.size());
  } else if (name.ends_with(kFieldEnding)) {
    name.remove_suffix(kFieldEnding.size());
    result.field_format = true;
  } else {
    return std::nullopt;
  }
  if (!name.starts_with("N=")) {
    return std::nullopt;
  }
  name.remove_prefix(2);
  const auto n_text = take_until(name, ",K=");
  const auto k_text = take_until(name, ",device_name=");
  const auto device = take_until(name, ",dtype=");
  if (!n_text || !k_text || !device || name.empty() || !is_device_file_name(*device)) {
    return std::nullopt;
  }
  const auto n = parse_positive_decimal(*n_text);
  const auto k = parse_positive_decimal(*k_text);
  if (!n || !k) {
    return std::nullopt;
  }
  result.key.n = *n;
  result.key.k = *k;
  result.key.device_name = *device;
  result.key.scheme = name;
  return result;
}

}  // namespace octile
