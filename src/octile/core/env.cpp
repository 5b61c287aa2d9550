// SPDX-License-Identifier: Apache-2.0
// Every environment variable of Octile, declared once, and how values are parsed.
#include "octile/core/env.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/core/nearest.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include <unistd.h>

namespace octile::env {
namespace {

constexpr std::array kVariables = {
    Variable{"OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", Type::boolean, "on", "Dispatch",
             "The kill switch: off runs exactly the baseline, bit for bit; read when a weight is packed and when a linear "
             "is created.",
             "SGLANG_ENABLE_FP8_GEMM_CONFIG_TUNE"},
    Variable{"OCTILE_TABLE_PATH", Type::path_list, "", "Tables",
             "Directories with tile tables, ':' between them, searched after --tables and before the user's own tables.",
             ""},
    Variable{"OCTILE_DEVICE_NAME_ALIAS", Type::text, "", "Tables",
             "Device name whose tables this device uses on purpose: NAME=ALIAS for one device, or ALIAS for all.", ""},
    Variable{
        "OCTILE_UNTUNED_LOG", Type::text, "", "Tables",
        "File to which calls without a tuned entry are appended, a JSON line for each (device, N, K, M) with the number "
        "of calls since the last: for tune --from-log.",
        ""},
    Variable{"OCTILE_NUM_THREADS", Type::integer, "0", "CPU",
             "Threads of the CPU pool; 0 takes the cores that affinity and cgroup limits leave this process.", "", 0, 1024},
    Variable{"OCTILE_CPU_ISA", Type::choice, "amx", "CPU",
             "Highest instruction set that CPU kernels may use; the CPU's own limit holds as well.", "", 0, 0,
             "generic|avx2|avx512|avx512bf16|amx"},
    Variable{"OCTILE_ONEDNN_PATH", Type::text, "", "CPU",
             "The oneDNN component, liboctile_onednn.so, or the folder that holds it; no other place is searched then.", ""},
    Variable{"OCTILE_HWLOC_PATH", Type::text, "", "CPU",
             "The hwloc component, liboctile_hwloc.so, or the folder that holds it; no other place is searched then.", ""},
    Variable{"OCTILE_CUDA_PATH", Type::path_list, "", "CUDA",
             "Toolkits or directories with CUDA libraries, ':' between them, searched before all other places.", ""},
    Variable{"OCTILE_CACHE_DIR", Type::text, "", "CUDA",
             "Directory of the cache of compiled kernels; by default $XDG_CACHE_HOME/octile or ~/.cache/octile.", ""},
    Variable{"OCTILE_CACHE_LIMIT_MB", Type::integer, "1000", "CUDA",
             "Most megabytes that the cache of compiled kernels may take; the least recently used go first. 0: no limit.",
             "", 0, 1'000'000},
    Variable{"OCTILE_CUBIN_PATH", Type::text, "", "CUDA",
             "Directory of exported kernels, looked up before the cache: for machines without NVRTC.", ""},
    Variable{"OCTILE_CUTLASS_PATH", Type::text, "", "CUDA",
             "The CUTLASS component, liboctile_cutlass.so, or the folder that holds it; no other place is searched then.",
             ""},
    Variable{
        "OCTILE_CUTLASS_ON_ANY_GPU", Type::boolean, "off", "CUDA",
        "Lets the CUTLASS component serve on other GPUs than sm_89 and sm_120, through PTX: to check its results, not for "
        "speed.",
        ""},
    Variable{"OCTILE_MPI_PATH", Type::text, "", "Tuning over hosts",
             "The MPI component, liboctile_openmpi.so or liboctile_mpich.so, or the folder that holds it; no other place is "
             "searched then.",
             ""},
    Variable{"OCTILE_MPI_HOST", Type::text, "", "Tuning over hosts",
             "Name of this host among those of tune --mpi, where several have the same host name (as containers may).", ""},
    Variable{"OCTILE_LOG_LEVEL", Type::choice, "info", "Logging", "Least severe message that is written to stderr.", "", 0,
             0, "debug|info|warning|error|off"},
    Variable{
        "OCTILE_VERBOSE", Type::boolean, "off", "Logging",
        "A line on stderr for each call of a linear: kernel, M, N, K, time, GB/s and TFLOP/s; on a GPU the time it took "
        "to enqueue. Read when a linear is created.",
        ""},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string_view trim(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

struct Overrides {
  std::mutex mutex;
  std::map<std::string, std::optional<std::string>, std::less<>> values;
};
Overrides& overrides() {
  static Overrides instance;
  return instance;
}

const Variable* declaration_of(std::string_view name) {
  const auto found = std::ranges::find_if(kVariables, [name](const Variable& v) { return name == v.name; });
  return found == kVariables.end() ? nullptr : &*found;
}

// The raw text in force and the name under which it was found, or nullopt. Values are trimmed; empty counts as unset.
struct Raw {
  std::string text;
  std::string name;
  std::string source;
};
std::optional<Raw> raw_value(const std::string& name) {
  {
    Overrides& o = overrides();
    const std::lock_guard lock(o.mutex);
    if (const auto found = o.values.find(name); found != o.values.end()) {
      if (!found->second.has_value() || trim(*found->second).empty()) {
        return std::nullopt;
      }
      return Raw{std::string(trim(*found->second)), name, "override"};
    }
  }
  const char* text = std::getenv(name.c_str());
  if (text == nullptr || trim(text).empty()) {
    return std::nullopt;
  }
  return Raw{std::string(trim(text)), name, "environment"};
}

Expected<const Variable*> known(std::string_view name) {
  if (const Variable* variable = declaration_of(name)) {
    return variable;
  }
  return make_error(ErrorCode::invalid_argument, "environment variable '{}' is not declared in the registry", name);
}

Expected<std::int64_t> parse_int(const Variable& variable, const Value& value, const std::string& name) {
  std::int64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [rest, status] = std::from_chars(value.text.data(), end, number);
  if (status != std::errc() || rest != end || number < variable.min_value || number > variable.max_value) {
    return make_error(ErrorCode::invalid_argument, "{}='{}': want a whole number from {} to {}", name, value.text,
                      variable.min_value, variable.max_value);
  }
  return number;
}

bool is_word_of(const Variable& variable, std::string_view word) {
  std::string_view rest = variable.words;
  while (!rest.empty()) {
    const std::size_t bar = rest.find('|');
    if (rest.substr(0, bar) == word) {
      return true;
    }
    rest = bar == std::string_view::npos ? std::string_view{} : rest.substr(bar + 1);
  }
  return false;
}

struct Located {
  Value value;
  std::string name;  // The variable it came from: the fallback's, perhaps.
};
Located locate(const Variable& variable) {
  if (auto raw = raw_value(variable.name)) {
    return {{std::move(raw->text), std::move(raw->source)}, std::move(raw->name)};
  }
  if (variable.fallback[0] != '\0') {
    if (auto raw = raw_value(variable.fallback)) {
      return {{std::move(raw->text), format("{} ({})", raw->source, raw->name)}, std::move(raw->name)};
    }
  }
  return {{variable.default_text, "default"}, variable.name};
}

// The located value once it parses as the variable's type.
Expected<Located> checked(const Variable& variable) {
  Located located = locate(variable);
  switch (variable.type) {
    case Type::boolean:
      if (!parse_bool(located.value.text)) {
        return make_error(ErrorCode::invalid_argument, "{}='{}': want one of on, off, true, false, 1, 0, yes, no (any case)",
                          located.name, located.value.text);
      }
      break;
    case Type::integer: {
      if (auto number = parse_int(variable, located.value, located.name); !number) {
        return std::move(number).error();
      }
      break;
    }
    case Type::choice:
      if (!is_word_of(variable, lower(located.value.text))) {
        std::string words = variable.words;
        std::ranges::replace(words, '|', ' ');
        return make_error(ErrorCode::invalid_argument, "{}='{}': want one of: {} (any case)", located.name,
                          located.value.text, words);
      }
      break;
    case Type::text:
    case Type::path_list:
      break;
  }
  return located;
}

Expected<Located> checked_by_name(std::string_view name) {
  auto variable = known(name);
  if (!variable) {
    return std::move(variable).error();
  }
  return checked(**variable);
}

}  // namespace

const char* to_string(Type type) noexcept {
  switch (type) {
    case Type::boolean:
      return "boolean";
    case Type::integer:
      return "integer";
    case Type::text:
      return "text";
    case Type::choice:
      return "choice";
    case Type::path_list:
      return "path list";
  }
  return "unknown";
}

std::span<const Variable> variables() { return kVariables; }

Expected<Value> value_of(std::string_view name) {
  auto located = checked_by_name(name);
  if (!located) {
    return std::move(located).error();
  }
  return std::move(located->value);
}

Expected<bool> get_bool(std::string_view name) {
  auto located = checked_by_name(name);
  if (!located) {
    return std::move(located).error();
  }
  return parse_bool(located->value.text).value_or(false);
}

Expected<std::int64_t> get_int(std::string_view name) {
  auto located = checked_by_name(name);
  if (!located) {
    return std::move(located).error();
  }
  return parse_int(*declaration_of(name), located->value, located->name);
}

Expected<std::string> get_text(std::string_view name) {
  auto located = checked_by_name(name);
  if (!located) {
    return std::move(located).error();
  }
  return declaration_of(name)->type == Type::choice ? lower(located->value.text) : std::move(located->value.text);
}

Expected<void> check_all() {
  for (const Variable& variable : kVariables) {
    if (auto located = checked(variable); !located) {
      return std::move(located).error();
    }
  }
  if (const std::vector<Misspelt> found = misspelt(); !found.empty()) {
    return Error{ErrorCode::invalid_argument, to_string(found.front())};
  }
  return {};
}

std::vector<Misspelt> misspelt() {
  constexpr std::string_view kPrefix = "OCTILE_";
  std::vector<std::string> known;
  for (const Variable& variable : kVariables) {
    known.emplace_back(std::string_view(variable.name).substr(kPrefix.size()));
  }
  std::vector<Misspelt> found;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view assignment = *entry;
    const std::string_view name = assignment.substr(0, assignment.find('='));
    if (!name.starts_with(kPrefix) || declaration_of(name) != nullptr) {
      continue;
    }
    // What all names begin with is no likeness.
    if (const std::string meant = nearest_name(name.substr(kPrefix.size()), known); !meant.empty()) {
      found.push_back({std::string(name), std::string(kPrefix) + meant});
    }
  }
  return found;
}

std::string to_string(const Misspelt& found) {
  return format("{}: there is no such variable, did you mean {}?", found.name, found.meant);
}

void warn_of_misspelt() {
  // Not std::call_once: for an exception that passes through pthread_once the C library loads its unwinder, and without
  // memory it ends the process there.
  static std::atomic_flag begun;
  if (begun.test_and_set()) {
    return;
  }
  for (const Misspelt& found : misspelt()) {
    log_message(LogLevel::warning, to_string(found));
  }
}

std::optional<bool> parse_bool(std::string_view text) noexcept {
  // Longest accepted word: "false".
  std::array<char, 5> word{};
  if (text.empty() || text.size() > word.size()) {
    return std::nullopt;
  }
  std::ranges::transform(text, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view lowered(word.data(), text.size());
  if (lowered == "on" || lowered == "true" || lowered == "1" || lowered == "yes") {
    return true;
  }
  if (lowered == "off" || lowered == "false" || lowered == "0" || lowered == "no") {
    return false;
  }
  return std::nullopt;
}

ScopedOverride::ScopedOverride(std::string_view name, std::optional<std::string> value) : name_(name) {
  Overrides& o = overrides();
  const std::lock_guard lock(o.mutex);
  if (const auto found = o.values.find(name_); found != o.values.end()) {
    had_previous_ = true;
    previous_ = found->second;
  }
  o.values[name_] = std::move(value);
}

ScopedOverride::~ScopedOverride() {
  Overrides& o = overrides();
  const std::lock_guard lock(o.mutex);
  if (had_previous_) {
    o.values[name_] = std::move(previous_);
  } else {
    o.values.erase(name_);
  }
}

}  // namespace octile::env
