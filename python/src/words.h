// SPDX-License-Identifier: Apache-2.0
// Enumerations by the words that the library prints for them.
#pragma once

#include <octile/linear.hpp>

#include <string_view>

namespace octile::python {

// Each raises ValueError with the words that are known. `what` names the argument.
DType dtype_of(std::string_view what, std::string_view word);
Accumulate accumulate_of(std::string_view word);
Numerics numerics_of(std::string_view word);
Pdl pdl_of(std::string_view word);
WeightLayout layout_of(std::string_view word);
Division division_of(std::string_view word);
ActivationMode activation_of(std::string_view word);
const char* word_of(ActivationMode activation) noexcept;

}  // namespace octile::python
