// SPDX-License-Identifier: Apache-2.0
// Fp8Weight, Fp8Linear and the quantiser for Python: by address, since octile/_arrays.py has looked at the arrays before.
#pragma once

#include <nanobind/nanobind.h>

namespace octile::python {

void bind_quantize(nanobind::module_& module);
void bind_weight(nanobind::module_& module);
void bind_linear(nanobind::module_& module);

}  // namespace octile::python
