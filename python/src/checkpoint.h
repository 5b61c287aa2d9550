// SPDX-License-Identifier: Apache-2.0
// Checkpoints for Python: entries, and linears whose arrays are the library's memory, mapped or copied.
#pragma once

#include <nanobind/nanobind.h>

namespace octile::python {

void bind_checkpoint(nanobind::module_& module);

}  // namespace octile::python
