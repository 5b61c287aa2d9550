// SPDX-License-Identifier: Apache-2.0
// Checkpoints for Python: entries, and linears whose arrays are the library's memory, mapped or copied.
#include "checkpoint.h"

#include "errors.h"
#include "words.h"

#include <octile/checkpoint.hpp>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace nb = nanobind;

namespace octile::python {
namespace {

// Read-only, since it may be a mapped file.
using HostArray = nb::ndarray<nb::numpy, nb::ro>;

// numpy's type that holds the bits of `dtype`.
nb::dlpack::dtype storage_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return nb::dtype<std::uint16_t>();
    case DType::fp16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::fp32:
      return nb::dtype<float>();
    default:
      return nb::dtype<std::uint8_t>();
  }
}

// The array keeps `memory` for itself: it outlives the linear and the checkpoint.
HostArray array_of(const std::shared_ptr<const void>& memory, const void* data, DType dtype, std::size_t dimensions,
                   const std::size_t* shape, const std::int64_t* strides) {
  using Memory = std::shared_ptr<const void>;
  auto kept = std::make_unique<Memory>(memory);
  const nb::capsule owner(kept.get(), [](void* held) noexcept { delete static_cast<Memory*>(held); });
  static_cast<void>(kept.release());  // The capsule's now.
  return {data, dimensions, shape, owner, strides, storage_of(dtype)};
}

HostArray matrix_of(const CheckpointLinear& linear, const void* data, DType dtype, std::int64_t row_stride) {
  const std::size_t shape[] = {static_cast<std::size_t>(linear.entry.n), static_cast<std::size_t>(linear.entry.k)};
  const std::int64_t strides[] = {row_stride, 1};
  return array_of(linear.memory, data, dtype, 2, shape, strides);
}

// fp32 [N]; nullopt for nullptr.
std::optional<HostArray> vector_of(const CheckpointLinear& linear, const void* data) {
  if (data == nullptr) {
    return std::nullopt;
  }
  const std::size_t shape[] = {static_cast<std::size_t>(linear.entry.n)};
  return array_of(linear.memory, data, DType::fp32, 1, shape, nullptr);
}

Checkpoint open_checkpoint(const std::string& directory, std::int64_t tp, std::int64_t rank, bool fuse, bool mmap) {
  CheckpointOptions options;
  options.tp = tp;
  options.rank = rank;
  options.fuse = fuse;
  options.memory = mmap ? CheckpointMemory::map : CheckpointMemory::read;
  return value_or_raise(Checkpoint::open(directory, options));
}

void bind_entry(nb::module_& module) {
  nb::class_<CheckpointEntry>(module, "CheckpointEntry", "A linear of a checkpoint before its weight is read.")
      .def_ro("name", &CheckpointEntry::name, "As in the checkpoint: \"model.layers.0.self_attn.qkv_proj\".")
      .def_ro("kind", &CheckpointEntry::kind,
              "\"qkv\", \"o\", \"gate_up\", \"down\"; without fusing also \"q\", \"k\", \"v\", \"gate\", \"up\".")
      .def_ro("layer", &CheckpointEntry::layer)
      .def_prop_ro(
          "shape", [](const CheckpointEntry& entry) { return std::pair(entry.n, entry.k); }, "(N, K) of this rank.")
      .def_prop_ro(
          "dtype", [](const CheckpointEntry& entry) { return std::string(to_string(entry.dtype)); },
          "\"e4m3\", or, where it is not quantised, \"bf16\", \"fp16\" or \"fp32\".")
      .def_ro("row_parallel", &CheckpointEntry::row_parallel, "Divided along K: the results of all ranks are to be added.")
      .def_ro("bias", &CheckpointEntry::bias, "Whether this rank adds a bias.")
      .def_prop_ro(
          "activation", [](const CheckpointEntry& entry) { return std::string(word_of(entry.activation)); },
          "As octile.Linear's.")
      .def("__repr__", [](const CheckpointEntry& entry) {
        return "octile.CheckpointEntry('" + entry.name + "', [" + std::to_string(entry.n) + ", " + std::to_string(entry.k) +
               "], dtype='" + to_string(entry.dtype) + "')";
      });
}

// Arrays own their memory by themselves, so that they need no policy of properties, which is to keep the linear.
void bind_linear_of_checkpoint(nb::module_& module) {
  nb::class_<CheckpointLinear>(module, "CheckpointLinear", "A loaded linear; octile.CheckpointLinear wraps it.")
      .def_ro("entry", &CheckpointLinear::entry)
      .def_prop_ro(
          "matrix",
          [](const CheckpointLinear& linear) {
            const bool quantised = linear.entry.dtype == DType::e4m3;
            return matrix_of(linear, quantised ? linear.weight.codes : linear.values.data, linear.entry.dtype,
                             quantised ? linear.weight.row_stride : linear.values.row_stride);
          },
          nb::rv_policy::automatic, "The bits of codes or values [N, K].")
      .def_prop_ro(
          "scales", [](const CheckpointLinear& linear) { return vector_of(linear, linear.weight.scales); },
          nb::rv_policy::automatic)
      .def_prop_ro(
          "bias", [](const CheckpointLinear& linear) { return vector_of(linear, linear.options.bias); },
          nb::rv_policy::automatic)
      .def_prop_ro("static_scale", [](const CheckpointLinear& linear) { return linear.options.static_scale; })
      .def_prop_ro("quantize", [](const CheckpointLinear& linear) { return linear.options.quantize; });
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  bind_entry(module);
  bind_linear_of_checkpoint(module);
  nb::class_<Checkpoint>(module, "Checkpoint", "An open checkpoint; octile.Checkpoint wraps it.")
      .def(nb::new_(&open_checkpoint), nb::arg("directory"), nb::kw_only(), nb::arg("tp"), nb::arg("rank"), nb::arg("fuse"),
           nb::arg("mmap"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("quantization", &Checkpoint::quantization)
      .def_prop_ro("entries", &Checkpoint::linears)
      .def(
          "load", [](const Checkpoint& checkpoint, std::size_t index) { return value_or_raise(checkpoint.load(index)); },
          nb::arg("index"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace octile::python
