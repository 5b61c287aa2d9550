// SPDX-License-Identifier: Apache-2.0
// An array of another library, seen through the buffer protocol or DLPack and never copied.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace octile::python {

// Binds class Array: where an array's memory is and what it looks like. It keeps the memory alive. Its constructor takes
// any object with the buffer protocol or __dlpack__, or a DLPack capsule, and raises TypeError for another.
void bind_array(nanobind::module_& module);

}  // namespace octile::python
