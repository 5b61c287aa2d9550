// SPDX-License-Identifier: Apache-2.0
// Options, keys and provenance of a run; see sweep.h.
#include "octile/tune/sweep.h"

#include <octile/octile.hpp>

#include "octile/core/format.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

namespace octile {

namespace {

// 2^31 elements a side is beyond every model and keeps products of two within 64 bits.
constexpr std::int64_t kLargestSide = std::int64_t{1} << 31;

std::uint64_t fnv1a(std::string_view text, std::uint64_t hash) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return hash;
}

// What tables and journals say: the vendors' default is fast on every device that has both.
std::string kind_of_sums(Accumulate asked) {
  return to_string(asked == Accumulate::precise ? Accumulate::precise : Accumulate::fast);
}

}  // namespace

std::vector<std::int64_t> default_m_list(bool is_gpu) {
  if (is_gpu) {
    return {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192};
  }
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
}

Expected<void> check_shapes(const std::vector<TuneShape>& shapes) {
  if (shapes.empty()) {
    return make_error(ErrorCode::invalid_argument, "wanted at least one shape (name, n, k), got none");
  }
  for (const TuneShape& shape : shapes) {
    if (shape.n < 1 || shape.k < 1 || shape.n > kLargestSide || shape.k > kLargestSide) {
      return make_error(ErrorCode::invalid_argument, "shape {}: wanted n and k in [1, {}], got n = {}, k = {}", shape.name,
                        kLargestSide, shape.n, shape.k);
    }
  }
  return {};
}

Expected<void> check_run_options(const RunOptions& options) {
  if (!std::isfinite(options.time_budget_s) || options.time_budget_s < 0) {
    return make_error(ErrorCode::invalid_argument, "time budget: wanted seconds >= 0 (0: none), got {}",
                      options.time_budget_s);
  }
  if (!std::isfinite(options.candidate_timeout_s) || options.candidate_timeout_s <= 0) {
    return make_error(ErrorCode::invalid_argument, "candidate time-out: wanted seconds > 0, got {}",
                      options.candidate_timeout_s);
  }
  if (options.scope != "linear" && options.scope != "gemm") {
    return make_error(ErrorCode::invalid_argument, "scope: wanted \"linear\" or \"gemm\", got \"{}\"", options.scope);
  }
  if (options.out_dtype != DType::bf16 && options.out_dtype != DType::fp16 && options.out_dtype != DType::fp32) {
    return make_error(ErrorCode::invalid_argument, "output type: wanted bf16, fp16 or fp32, got {}",
                      to_string(options.out_dtype));
  }
  return {};
}

Expected<std::vector<std::int64_t>> checked_m_list(const std::vector<std::int64_t>& m_list, bool is_gpu) {
  std::vector<std::int64_t> result = m_list.empty() ? default_m_list(is_gpu) : m_list;
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  if (result.front() < 1 || result.back() > kLargestSide) {
    return make_error(ErrorCode::invalid_argument, "M: wanted values in [1, {}], got {}", kLargestSide,
                      result.front() < 1 ? result.front() : result.back());
  }
  return result;
}

Expected<void> check_max_sms(const RunOptions& options, const DeviceInfo& device) {
  Problem problem;
  if (Expected<void> valid = limit_sms(device, options.max_sms, problem); !valid) {
    return valid;
  }
  if (problem.max_sms != options.max_sms) {
    return make_error(ErrorCode::invalid_argument, "max_sms: wanted fewer than the {} multiprocessors of {}, got {}",
                      device.sm_count, device.name, options.max_sms);
  }
  return {};
}

Problem problem_of(const RunOptions& options, const TuneShape& shape) {
  Problem problem;
  problem.n = shape.n;
  problem.k = shape.k;
  problem.out_dtype = options.out_dtype;
  problem.bias = options.bias;
  problem.accumulate = options.accumulate;
  problem.numerics = options.numerics;
  problem.batch_invariant = options.batch_invariant;
  problem.pdl = options.pdl;
  problem.layout = options.layout;
  problem.max_sms = options.max_sms;
  if (problem.max_sms > 0) {
    problem.pdl = std::min(problem.pdl, Pdl::consume);  // As limit_sms() says.
  }
  return problem;
}

Plan plan_without_table(const Backend& backend, const DeviceInfo& device, const Problem& problem) {
  return Plan::from_lookup(&backend, device, problem, TableLookup{}, true);
}

TableKey table_key(const DeviceInfo& device, const Problem& problem, const std::string& weight_layout) {
  TableKey key;
  key.device_name = device.name;
  key.arch = device.arch;
  key.model = device.kind == DeviceKind::cpu ? device.model : std::string();
  key.sm_count = device.sm_count;
  key.n = problem.n;
  key.k = problem.k;
  key.out_dtype = to_string(problem.out_dtype);
  key.bias = problem.bias;
  key.accumulate = kind_of_sums(problem.accumulate);
  key.numerics = to_string(problem.numerics);
  key.weight_layout = weight_layout;
  key.pdl = to_string(pdl_on(device, problem.pdl));
  key.max_sms = problem.max_sms;
  return key;
}

std::string difference_of_keys(const std::string& a, const HardKeys& keys_a, const std::string& b, const HardKeys& keys_b) {
  const auto value_of = [](const HardKeys& keys, const std::string& name) {
    const auto found = keys.find(name);
    return found == keys.end() ? std::string("not there") : found->second;
  };
  HardKeys all = keys_a;
  all.insert(keys_b.begin(), keys_b.end());
  for (const auto& key : all) {
    const std::string in_a = value_of(keys_a, key.first);
    const std::string in_b = value_of(keys_b, key.first);
    if (in_a != in_b) {
      return format("{} of {} is {}, of {} {}", key.first, a, in_a, b, in_b);
    }
  }
  return {};
}

HardKeys hard_keys_of_run(const Backend& backend, const DeviceInfo& device, const RunOptions& options) {
  HardKeys keys{{"device_name", device.name},
                {"arch", device.arch},
                {"model", device.model},
                {"sm_count", std::to_string(device.sm_count)},
                {"out_dtype", to_string(options.out_dtype)},
                {"bias", options.bias ? "true" : "false"},
                {"accumulate", kind_of_sums(options.accumulate)},
                {"numerics", to_string(options.numerics)},
                {"batch_invariant", options.batch_invariant ? "true" : "false"},
                {"pdl", to_string(pdl_on(device, options.pdl))},
                {"scope", options.scope},
                {"weight_layout", to_string(options.layout)},
                {"octile", version()}};
  if (options.max_sms > 0) {
    keys["max_sms"] = std::to_string(options.max_sms);
  }
  for (const KernelFamily* family : backend.families()) {
    if (family->available(device)) {
      keys[format("kernel {}", family->name())] = format("{} {}", family->source_hash(), family->version());
    }
  }
  return keys;
}

std::map<std::string, std::string> provenance_of_run(const Backend& backend, const DeviceInfo& device,
                                                     const RunOptions& options, const std::string& date,
                                                     const std::string& protocol) {
  std::map<std::string, std::string> provenance{
      {"octile", version()}, {"date", date}, {"protocol", protocol}, {"scope", options.scope}};
  if (!options.command_line.empty()) {
    provenance["command"] = options.command_line;
  }
  for (const VendorStatus& vendor : backend.vendors(device)) {
    if (vendor.available) {
      provenance[vendor.name] = vendor.version;
    }
  }
  return provenance;
}

std::string combined_source_hash(const Backend& backend, const DeviceInfo& device) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const KernelFamily* family : backend.families()) {
    if (family->available(device)) {
      hash = fnv1a(family->source_hash(), fnv1a(family->name(), hash));
    }
  }
  return format("{:016x}", hash);
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                parts.tm_min, parts.tm_sec);
}

double geometric_mean(const std::vector<double>& values) {
  if (values.empty()) {
    return 0;
  }
  double sum = 0;
  for (const double value : values) {
    sum += std::log(value);
  }
  return std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace octile
