// SPDX-License-Identifier: Apache-2.0
// Device names as table files spell them, which names are close to each other, and aliases.
#include "octile/table/device_names.h"

#include "octile/core/env.h"
#include "octile/core/format.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <set>
#include <tuple>

namespace octile {

namespace {

constexpr const char* kAliasVariable = "OCTILE_DEVICE_NAME_ALIAS";
constexpr std::size_t kMaxNameBytes = 200;  // File names end at 255 bytes; N, K and the scheme take up to 80.

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// ',' and '=' separate the parts of a table file's name.
bool allowed_in_file_name(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > ' ' && byte != 0x7F && std::string_view("/\\,=").find(c) == std::string_view::npos;
}

// "Intel_R_Xeon_R_Processor-amx-2t" -> "Intel_R_Xeon_R_Processor"; "" for a name that is no CPU's.
std::string_view cpu_model(std::string_view name) {
  const std::size_t threads_at = name.rfind('-');
  if (threads_at == std::string_view::npos || threads_at == 0) {
    return {};
  }
  std::string_view threads = name.substr(threads_at + 1);
  if (!threads.ends_with('t')) {
    return {};
  }
  threads.remove_suffix(1);
  if (threads.empty() || !std::all_of(threads.begin(), threads.end(), is_digit)) {
    return {};
  }
  const std::size_t isa_at = name.rfind('-', threads_at - 1);
  return isa_at == std::string_view::npos ? std::string_view{} : name.substr(0, isa_at);
}

// Runs of letters and digits, in lower case: "NVIDIA_H20-3e" -> nvidia, h20, 3e.
std::vector<std::string> tokens_of(std::string_view name) {
  std::vector<std::string> tokens;
  bool inside = false;
  for (const char c : name) {
    const bool part = is_digit(c) || is_letter(c);
    if (part && !inside) {
      tokens.emplace_back();
    }
    if (part) {
      tokens.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    inside = part;
  }
  return tokens;
}

// The first token with a digit names the chip: "h20", "l40s", "4090"; "" where none has one.
std::string chip_of(const std::vector<std::string>& tokens) {
  const auto found = std::find_if(tokens.begin(), tokens.end(), [](const std::string& token) {
    return std::any_of(token.begin(), token.end(), is_digit);
  });
  return found == tokens.end() ? std::string() : *found;
}

// "l40" and "l40s": the same letters and digits, and letters after them. "h20" and "h200" are different chips.
bool letters_apart(const std::string& a, const std::string& b) {
  const auto& [shorter, longer] = a.size() < b.size() ? std::tie(a, b) : std::tie(b, a);
  return longer.starts_with(shorter) &&
         std::all_of(longer.begin() + static_cast<std::ptrdiff_t>(shorter.size()), longer.end(), is_letter);
}

}  // namespace

std::string device_file_name(std::string_view driver_name) {
  std::string name(driver_name);
  std::replace_if(name.begin(), name.end(), [](char c) { return !allowed_in_file_name(c); }, '_');
  return name;
}

bool is_device_file_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), allowed_in_file_name) &&
         name.find("..") == std::string_view::npos && !name.starts_with('.');
}

double device_name_similarity(std::string_view a, std::string_view b) {
  if (a == b) {
    return 1.0;
  }
  const std::string_view model_a = cpu_model(a);
  const std::string_view model_b = cpu_model(b);
  if (!model_a.empty() || !model_b.empty()) {
    return model_a == model_b ? 0.9 : 0.0;
  }
  const std::vector<std::string> tokens_a = tokens_of(a);
  const std::vector<std::string> tokens_b = tokens_of(b);
  const std::string chip_a = chip_of(tokens_a);
  const std::string chip_b = chip_of(tokens_b);
  if (chip_a.empty() || chip_b.empty() || !letters_apart(chip_a, chip_b)) {
    return 0.0;
  }
  const std::set<std::string> set_a(tokens_a.begin(), tokens_a.end());
  const std::set<std::string> set_b(tokens_b.begin(), tokens_b.end());
  std::size_t common = 0;
  for (const std::string& token : set_a) {
    common += set_b.count(token);
  }
  // Shared tokens over all tokens, the chip counted as shared even where letters follow it; below 1 for names that differ
  // only in case or punctuation.
  if (chip_a != chip_b) {
    common += 1;
  }
  const std::size_t all = set_a.size() + set_b.size() - common;
  return 0.95 * static_cast<double>(common) / static_cast<double>(std::max(all, std::size_t{1}));
}

std::string nearest_device_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  double best_similarity = 0.0;
  for (const std::string& candidate : known) {
    if (candidate == name) {
      continue;
    }
    const double similarity = device_name_similarity(name, candidate);
    if (similarity > best_similarity || (similarity > 0.0 && similarity == best_similarity && candidate < best)) {
      best = candidate;
      best_similarity = similarity;
    }
  }
  return best;
}

Expected<std::string> aliased_device_name(const std::string& device_name) {
  const Expected<std::string> setting = env::get_text(kAliasVariable);
  if (!setting) {
    return setting.error();
  }
  if (setting->empty()) {
    return device_name;
  }
  const std::size_t equals = setting->find('=');
  const std::string alias = device_file_name(equals == std::string::npos ? *setting : setting->substr(equals + 1));
  const std::string from = equals == std::string::npos ? device_name : device_file_name(setting->substr(0, equals));
  const bool two_signs = equals != std::string::npos && setting->find('=', equals + 1) != std::string::npos;
  if (two_signs || !is_device_file_name(alias) || !is_device_file_name(from)) {
    return make_error(ErrorCode::invalid_argument,
                      "{}={}: wanted a device name (\"NVIDIA_H100_80GB_HBM3\"), or NAME=ALIAS for one device",
                      kAliasVariable, *setting);
  }
  return from == device_name ? alias : device_name;
}

}  // namespace octile
