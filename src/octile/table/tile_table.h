// SPDX-License-Identifier: Apache-2.0
// One table: what runs for each M at one (device, N, K, scheme), with the proof of each entry. Both file formats load into
// it.
#pragma once

#include "octile/table/tile_config.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

inline constexpr int kTableFormat = 1;
// Files beyond these are left out whole, so that a hostile one of 16 MiB costs no more memory than its text does. The
// largest real tables have some hundred entries.
inline constexpr std::size_t kMaxTableEntries = 20'000;
inline constexpr std::size_t kMaxTableFindings = 1'000;
inline constexpr const char* kSchemeChannelwise = "fp8_w8a8_channelwise";
inline constexpr const char* kBaselineKernel = "baseline";

// The hard keys: all must match for a table to serve. Empty or zero: not stated by the file (field format), matches
// anything.
struct TableKey {
  std::string device_name;
  std::string arch;   // GPU "sm_90"; CPU: the instruction set.
  std::string model;  // CPU only.
  int sm_count = 0;   // CPU: threads.
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string scheme = kSchemeChannelwise;
  std::string out_dtype = "bf16";
  bool bias = false;
  std::string accumulate = "fast";         // "fast" or "precise".
  std::string numerics = "deterministic";  // or "baseline".
  std::string weight_layout;
  std::string pdl = "off";  // "off", "consume", "full".
  int max_sms = 0;          // Multiprocessors that products were held to; 0: none.
};

struct Ratio {
  double mid = 0, lo = 0, hi = 0;  // Baseline time / entry time, with its 95 % interval.
};

struct TableEntry {
  std::int64_t m_lo = 0;  // [m_lo, m_hi], both included. Field format: m_lo = m_hi = the key.
  std::int64_t m_hi = 0;
  std::string kernel;  // A family's name, or "baseline".
  TileConfig config;
  std::string kernel_source_hash;
  std::string vendor_version;  // For a vendor's kernel.
  std::optional<double> us, baseline_us, best_vendor_us, rel_error;
  std::optional<Ratio> ratio;
  bool inferred = false;  // Not measured itself: taken from its neighbours.
  std::string date;       // When it was measured, ISO 8601; empty: the table's provenance says.
  std::string left_out;   // Field format: why this key's tile was left out (the baseline serves); empty: it was not.
};

struct TileTable {
  TableKey key;
  std::map<std::string, std::string>
      provenance;                   // octile, driver, cuda, nvrtc, cublaslt, onednn, clocks, date, protocol, command.
  std::vector<TableEntry> entries;  // Own format: ascending, disjoint. Field format: in file order.
  bool field_format = false;
  std::string file;  // Where it was read from; empty for one made in memory.

  // The entry that serves `m`: own format, the interval that holds it or nullptr; field format, the nearest key, ties to the
  // first in the file. nullptr for an empty table.
  const TableEntry* find(std::int64_t m) const noexcept;
};

// A stretch of M that one entry serves.
struct TableSegment {
  std::int64_t m_lo = 0;
  std::int64_t m_hi = 0;  // Included; INT64_MAX: no upper bound.
  const TableEntry* entry = nullptr;
};
// find() for every M in [1, INT64_MAX], as ascending stretches; gaps are left out.
std::vector<TableSegment> segments_of(const TileTable& table);

// "N=6144,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json", with ".octile.json" for our own format.
std::string table_file_name(const TableKey& key, bool field_format);

// What a file's name says; the path before the last '/' is ignored. nullopt: no table's name. Schemes other than
// kSchemeChannelwise ("fp8_w8a8,block_shape=[128, 128]") are recognised, and refused by the readers.
struct TableFileName {
  TableKey key;  // n, k, device_name and scheme.
  bool field_format = false;
};
std::optional<TableFileName> parse_table_file_name(std::string_view path);

}  // namespace octile
