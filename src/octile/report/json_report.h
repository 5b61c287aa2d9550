// SPDX-License-Identifier: Apache-2.0
// Machine-readable output. Field names and their order are part of the interface (docs/guide.md, "Machine-readable output");
// numbers that are not finite become null. Every text ends with a newline.
#pragma once

#include <octile/linear.hpp>

#include "octile/kernels/backend.h"
#include "octile/table/finding.h"
#include "octile/tune/bench.h"
#include "octile/tune/verify.h"

#include <map>
#include <span>
#include <string>
#include <vector>

namespace octile {

// JSON that the library gives on one line (devices_json()), on lines of its own.
std::string indented_json(const std::string& json);

// One environment variable, as `octile env` shows it.
struct VariableReport {
  std::string name;
  std::string section;
  std::string type;           // With the accepted words or the range.
  std::string default_value;  // "" for none.
  std::string value;          // In force.
  std::string source;         // "default", "environment", ...
  std::string fallback;       // Another variable honoured where this one is unset; "" for none.
  std::string sentence;
};
// What `octile cache` shows.
struct CacheReport {
  std::string directory;  // Empty: there is no cache.
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
  std::int64_t limit_bytes = 0;  // 0: none.
  std::int64_t removed = 0;
  std::int64_t removed_bytes = 0;
};
std::string cache_json(const CacheReport& report);
std::string env_json(std::span<const VariableReport> variables);

// One explanation as an object, or several as a list.
std::string explanation_json(const Explanation& explanation);
std::string explanations_json(std::span<const Explanation> explanations);

// {ok, findings: [...]}, of `table lint`.
std::string findings_json(bool ok, std::span<const Finding> findings);
// The same of `verify`; where every M was asked for also {advice: [...], cliffs: [{file, kind: "step"|"inversion", from_m,
// from_us, from_kernel, to_m, to_us, to_kernel, ratio}], files: ["..."]}.
std::string verify_json(const VerifyResult& result);

std::string bench_json(const BenchResult& result);

// {device_name, arch, kernels, compiled, cached, exported, failures: ["..."]}, of `warmup`.
std::string warmup_json(const DeviceInfo& device, const WarmupResult& result);

// What a recorded result says beyond `bench --json`: where the numbers came from.
struct RecordedContext {
  std::string driver;                            // "" on a CPU.
  std::map<std::string, std::string> libraries;  // Vendor library to version.
  std::string commit;
  std::string command;
};
std::string recorded_bench_json(const BenchResult& result, const RecordedContext& context);

}  // namespace octile
