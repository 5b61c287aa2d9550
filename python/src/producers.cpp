// SPDX-License-Identifier: Apache-2.0
// RmsNorm and SwiGlu for Python. Whatever takes time runs without the GIL.
#include "producers.h"

#include "errors.h"
#include "views.h"
#include "words.h"

#include <octile/producers.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace nb = nanobind;

namespace octile::python {
namespace {

// Address, dtype, rows, columns, row stride, column stride.
using Matrix = std::tuple<Address, std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

template <class View>
View view_of_matrix(std::string_view what, const Matrix& matrix) {
  const auto& [address, dtype, rows, cols, row_stride, col_stride] = matrix;
  return view_of<View>(what, address, dtype, rows, cols, row_stride, col_stride);
}

QuantizedRows rows_of(const Matrix& codes, Address scales) {
  return {view_of_matrix<MatrixView>("codes", codes), at<float*>(scales)};
}

ProducerOptions options_of(const std::string& device, std::int64_t k, std::string_view dtype,
                           const QuantizeOptions& quantize, float static_scale, std::string_view pdl) {
  ProducerOptions options;
  options.device = device;
  options.k = k;
  options.dtype = dtype_of("dtype", dtype);
  options.quantize = quantize;
  options.static_scale = static_scale;
  options.pdl = pdl_of(pdl);
  return options;
}

RmsNorm make_rms_norm(Address gamma, std::string_view gamma_dtype, float epsilon, const std::string& device, std::int64_t k,
                      std::string_view dtype, const QuantizeOptions& quantize, float static_scale, std::string_view pdl) {
  RmsNormOptions options;
  options.producer = options_of(device, k, dtype, quantize, static_scale, pdl);
  options.gamma = at<const void*>(gamma);
  options.gamma_dtype = dtype_of("weight", gamma_dtype);
  options.epsilon = epsilon;
  return value_or_raise(RmsNorm::create(options));
}

SwiGlu make_swiglu(const std::string& device, std::int64_t k, std::string_view dtype, const QuantizeOptions& quantize,
                   float static_scale, std::string_view pdl) {
  return value_or_raise(SwiGlu::create(options_of(device, k, dtype, quantize, static_scale, pdl)));
}

void run_rms_norm(const RmsNorm& norm, const Matrix& x, const std::optional<Matrix>& residual_in,
                  const std::optional<Matrix>& residual_out, const Matrix& codes, Address scales, Address stream) {
  std::optional<Residual> residual;
  if (residual_in && residual_out) {
    residual = Residual{view_of_matrix<ConstMatrixView>("residual", *residual_in),
                        view_of_matrix<MatrixView>("sum", *residual_out)};
  }
  value_or_raise(norm.run(view_of_matrix<ConstMatrixView>("x", x), residual ? &*residual : nullptr, rows_of(codes, scales),
                          at<void*>(stream)));
}

void run_swiglu(const SwiGlu& swiglu, const Matrix& gate_up, const Matrix& codes, Address scales, Address stream) {
  value_or_raise(swiglu.run(view_of_matrix<ConstMatrixView>("gate_up", gate_up), rows_of(codes, scales), at<void*>(stream)));
}

}  // namespace

void bind_producers(nb::module_& module) {
  module.def("codes_row_stride", &codes_row_stride, nb::arg("k"));
  nb::class_<RmsNorm>(module, "RmsNorm", "(Add +) RMSNorm with quantisation; octile.RmsNorm wraps it.")
      .def(nb::new_(&make_rms_norm), nb::kw_only(), nb::arg("weight"), nb::arg("weight_dtype"), nb::arg("epsilon"),
           nb::arg("device"), nb::arg("k"), nb::arg("dtype"), nb::arg("quantize"), nb::arg("static_scale"), nb::arg("pdl"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("run", &run_rms_norm, nb::arg("x"), nb::arg("residual").none(), nb::arg("sum").none(), nb::arg("codes"),
           nb::arg("scales"), nb::arg("stream"), nb::call_guard<nb::gil_scoped_release>());
  nb::class_<SwiGlu>(module, "SwiGlu", "silu(gate) * up with quantisation; octile.SwiGlu wraps it.")
      .def(nb::new_(&make_swiglu), nb::kw_only(), nb::arg("device"), nb::arg("k"), nb::arg("dtype"), nb::arg("quantize"),
           nb::arg("static_scale"), nb::arg("pdl"), nb::call_guard<nb::gil_scoped_release>())
      .def("run", &run_swiglu, nb::arg("gate_up"), nb::arg("codes"), nb::arg("scales"), nb::arg("stream"),
           nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace octile::python
