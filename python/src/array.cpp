// SPDX-License-Identifier: Apache-2.0
// An array of another library, seen through the buffer protocol or DLPack and never copied.
#include "array.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

namespace nb = nanobind;

namespace octile::python {
namespace {

// "bf16", "fp16", ... as the library names them, else DLPack's kind and width: "uint8", "float64".
std::string dtype_name(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  const std::string bits = std::to_string(dtype.bits);
  std::string name = "dtype code " + std::to_string(dtype.code) + " of " + bits + " bits";
  switch (code) {
    case Code::Float:
      name = dtype.bits == 16 ? "fp16" : dtype.bits == 32 ? "fp32" : "float" + bits;
      break;
    case Code::Bfloat:
      name = dtype.bits == 16 ? "bf16" : "bfloat" + bits;
      break;
    case Code::Int:
      name = "int" + bits;
      break;
    case Code::UInt:
      name = "uint" + bits;
      break;
    case Code::Bool:
      name = "bool";
      break;
    case Code::Float8_E4M3FN:
      name = "e4m3";
      break;
    case Code::Float8_E4M3FNUZ:
      name = "e4m3fnuz";
      break;
    case Code::Float8_E5M2:
      name = "e5m2";
      break;
    default:
      break;
  }
  return dtype.lanes == 1 ? name : name + " x " + std::to_string(dtype.lanes);
}

struct Array {
  nb::ndarray<nb::ro> memory;

  std::uintptr_t pointer() const noexcept { return reinterpret_cast<std::uintptr_t>(memory.data()); }
  nb::tuple dimensions(bool strides) const {
    nb::list list;
    for (std::size_t i = 0; i < memory.ndim(); ++i) {
      list.append(strides ? memory.stride(i) : static_cast<std::int64_t>(memory.shape(i)));
    }
    return nb::tuple(list);
  }
};

Array import_array(const nb::object& object, const std::string& name, bool writable) {
  if (writable) {
    nb::ndarray<> memory;
    if (!nb::try_cast(object, memory, false)) {
      throw nb::value_error(
          (name + ": want an array that may be written, got " + nb::cast<std::string>(nb::str(object.type()))).c_str());
    }
    return Array{nb::ndarray<nb::ro>(memory)};
  }
  nb::ndarray<nb::ro> memory;
  if (!nb::try_cast(object, memory, false)) {
    throw nb::type_error(
        (name + ": want an array (the buffer protocol or DLPack), got " + nb::cast<std::string>(nb::str(object.type())))
            .c_str());
  }
  return Array{std::move(memory)};
}

}  // namespace

void bind_array(nb::module_& module) {
  nb::class_<Array>(module, "Array", "Memory of another library's array: what it looks like and where it is.")
      .def(nb::new_(&import_array), nb::arg("object").none(), nb::arg("name"), nb::arg("writable"))
      .def_prop_ro("pointer", &Array::pointer)
      .def_prop_ro("dtype", [](const Array& array) { return dtype_name(array.memory.dtype()); })
      .def_prop_ro("shape", [](const Array& array) { return array.dimensions(false); })
      .def_prop_ro(
          "strides", [](const Array& array) { return array.dimensions(true); }, "In elements.")
      .def_prop_ro(
          "device_type", [](const Array& array) { return array.memory.device_type(); }, "DLPack's number.")
      .def_prop_ro("device_id", [](const Array& array) { return array.memory.device_id(); });
}

}  // namespace octile::python
