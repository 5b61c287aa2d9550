// SPDX-License-Identifier: Apache-2.0
// The arguments of each command as plain data: app.cpp fills them in, so that only it needs the option parser's header.
#pragma once

#include "octile/tune/mpi_job.h"
#include "octile/tune/shard.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octile::cli {

// Where machine-readable output goes: not asked for, "-" for stdout in place of the text, or a file beside it.
using JsonTarget = std::optional<std::string>;

// What a command works on: a model, or one weight.
struct ShapeArgs {
  std::string model;
  std::int64_t tp = 1;
  std::int64_t n = 0;  // 0: not given.
  std::int64_t k = 0;
};

struct DevicesArgs {
  JsonTarget json;
};

// Common to the commands that measure.
struct MeasureArgs {
  ShapeArgs shape;
  std::string device = "cpu";
  std::string tables;
  std::vector<std::int64_t> m_list;  // Empty: the device's default.
  std::string scope = "linear";
  std::string pdl = "full";
  std::string accumulate;  // Empty: the device's default.
  std::string out_dtype = "bf16";
  std::string layout = "automatic";
  std::int64_t max_sms = 0;  // 0: no limit.
  double time_budget_s = 0;  // 0: none.
  std::uint64_t seed = 0;    // 0: fresh.
  JsonTarget json;
};

struct TuneArgs {
  MeasureArgs measure;
  std::string from_log;              // Of OCTILE_UNTUNED_LOG, in place of shapes and M; empty: none.
  std::vector<std::string> devices;  // Ids, or "all" alone, in place of the one device; empty: none.
  std::optional<MpiLibrary> mpi;     // Not set: one process.
  Shard shard;
  std::string numerics;  // "deterministic", "baseline"; empty: as tuned_numerics() says of the device.
  bool thorough = false;
  bool resume = false;
  std::string html;  // Empty: none.
};

struct BenchArgs {
  MeasureArgs measure;
  bool all_m = false;
  std::int64_t max_m = 0;  // 0: the device's default.
  std::string compare;     // Published times; empty: none.
  std::string csv;         // Empty: none.
  std::string html;        // Empty: none.
  std::string record;      // bench/results/<device_name>/<record>.json; empty: none.
};

struct ReportArgs {
  std::string file;
  std::string html;
};

struct VerifyArgs {
  MeasureArgs measure;
  bool all_m = false;
  bool fix = false;
};

struct ExplainArgs {
  ShapeArgs shape;
  std::string accumulate;  // Empty: the device's default.
  std::string out_dtype = "bf16";
  std::string layout = "automatic";
  std::int64_t max_sms = 0;  // 0: no limit.
  std::vector<std::int64_t> m_list;
  std::string device;       // Empty: "cpu", unless device_name is given.
  std::string device_name;  // Of a device that need not be present.
  std::string tables;
  JsonTarget json;
};

struct WarmupArgs {
  ShapeArgs shape;
  std::string accumulate;  // Empty: the device's default.
  std::string out_dtype = "bf16";
  std::string device;       // Empty: "cuda:0", unless device_name is given.
  std::string device_name;  // Of a GPU that need not be present.
  std::string tables;
  std::string export_directory;  // Empty: the cache alone.
  JsonTarget json;
};

struct TableLintArgs {
  std::vector<std::string> paths;
  std::string device_name;
  JsonTarget json;
};
struct TableShowArgs {
  std::vector<std::string> files;
};
struct TableDiffArgs {
  std::string left;
  std::string right;
};
struct TableMergeArgs {
  std::vector<std::string> files;
  std::string out;
};
struct TableImportArgs {
  std::vector<std::string> files;
  std::string out;
  bool nearest = false;
};
struct TableAdoptArgs {
  std::string record;
  std::string tables;
};
struct TableExportArgs {
  std::vector<std::string> files;
  std::string out;
  bool triton = false;
};

struct CacheArgs {
  bool clear = false;
  std::optional<std::int64_t> keep_mb;  // Remove what was used least recently beyond so many megabytes.
  JsonTarget json;
};

struct EnvArgs {
  JsonTarget json;
  bool markdown = false;
};

struct CompletionArgs {
  std::string shell;
};

}  // namespace octile::cli
