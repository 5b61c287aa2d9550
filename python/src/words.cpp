// SPDX-License-Identifier: Apache-2.0
// Enumerations by the words that the library prints for them.
#include "words.h"

#include "errors.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace octile::python {
namespace {

template <class Enum, std::size_t count>
Enum find(std::string_view what, std::string_view word, const std::array<std::pair<const char*, Enum>, count>& known) {
  std::string words;
  for (const auto& [name, value] : known) {
    if (word == name) {
      return value;
    }
    words += (words.empty() ? "" : ", ") + std::string(name);
  }
  raise({ErrorCode::invalid_argument, std::string(what) + ": want one of " + words + ", got '" + std::string(word) + "'"});
}

// The library's own words for these values.
template <class Enum, class... Enums>
Enum find_printed(std::string_view what, std::string_view word, Enum first, Enums... others) {
  return find(what, word,
              std::array<std::pair<const char*, Enum>, 1 + sizeof...(Enums)>{std::pair{to_string(first), first},
                                                                             std::pair{to_string(others), others}...});
}

constexpr std::array<std::pair<const char*, ActivationMode>, 3> kActivations = {
    {{"dynamic_per_token", ActivationMode::dynamic_per_token},
     {"static_per_tensor", ActivationMode::static_per_tensor},
     {"quantized", ActivationMode::quantized}}};

}  // namespace

DType dtype_of(std::string_view what, std::string_view word) {
  return find_printed(what, word, DType::bf16, DType::fp16, DType::fp32, DType::e4m3, DType::e4m3fnuz);
}

Accumulate accumulate_of(std::string_view word) {
  return find<Accumulate, 3>(
      "accumulate", word,
      {{{"default", Accumulate::device_default}, {"fast", Accumulate::fast}, {"precise", Accumulate::precise}}});
}

Numerics numerics_of(std::string_view word) {
  return find_printed("numerics", word, Numerics::deterministic, Numerics::baseline);
}

Pdl pdl_of(std::string_view word) { return find_printed("pdl", word, Pdl::off, Pdl::consume, Pdl::full); }

WeightLayout layout_of(std::string_view word) {
  return find_printed("layout", word, WeightLayout::automatic, WeightLayout::row_major, WeightLayout::slab64);
}

Division division_of(std::string_view word) {
  return find<Division, 2>("division", word, {{{"exact", Division::exact}, {"reciprocal", Division::reciprocal}}});
}

ActivationMode activation_of(std::string_view word) { return find("activation", word, kActivations); }

const char* word_of(ActivationMode activation) noexcept {
  return std::find_if(kActivations.begin(), kActivations.end(),
                      [activation](const auto& known) { return known.second == activation; })
      ->first;
}

}  // namespace octile::python
