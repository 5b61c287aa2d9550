// SPDX-License-Identifier: Apache-2.0
// The module octile._core: the library as Python sees it. octile's Python files are its only users.
#include "array.h"
#include "checkpoint.h"
#include "linear.h"
#include "producers.h"

#include <octile/octile.hpp>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

NB_MODULE(_core, module) {
  module.doc() = "The library, by addresses; use the package octile.";
  // torch keeps modules alive past the end of the interpreter, which is no leak of ours. The tests turn this on.
  nanobind::set_leak_warnings(false);
  module.def("set_leak_warnings", &nanobind::set_leak_warnings, nanobind::arg("value"));
  module.def("version", &octile::version);
  module.def("devices_json", &octile::devices_json, nanobind::call_guard<nanobind::gil_scoped_release>());
  octile::python::bind_array(module);
  octile::python::bind_quantize(module);
  octile::python::bind_weight(module);
  octile::python::bind_linear(module);
  octile::python::bind_producers(module);
  octile::python::bind_checkpoint(module);
}
