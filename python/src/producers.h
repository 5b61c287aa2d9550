// SPDX-License-Identifier: Apache-2.0
// RmsNorm and SwiGlu for Python, by address.
#pragma once

#include <nanobind/nanobind.h>

namespace octile::python {

void bind_producers(nanobind::module_& module);

}  // namespace octile::python
