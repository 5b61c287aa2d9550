// SPDX-License-Identifier: Apache-2.0
// Fp8Weight, Fp8Linear and the quantiser for Python. Whatever takes time runs without the GIL.
#include "linear.h"

#include "errors.h"
#include "views.h"
#include "words.h"

#include <octile/octile.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace octile::python {
namespace {

// 64-byte aligned host memory.
struct HostWorkspace {
  explicit HostWorkspace(std::int64_t wanted) : bytes((wanted + 63) / 64 * 64), data(std::aligned_alloc(64, size())) {
    if (data == nullptr) {
      throw std::bad_alloc();
    }
  }
  ~HostWorkspace() { std::free(data); }
  HostWorkspace(const HostWorkspace&) = delete;
  HostWorkspace& operator=(const HostWorkspace&) = delete;

  std::size_t size() const noexcept { return static_cast<std::size_t>(bytes); }

  std::int64_t bytes;
  void* data;
};

// Workspaces of one linear on the CPU: a call takes one that no other call is using, and gives it back. There are never
// more than calls ran at once.
class WorkspacePool {
 public:
  std::unique_ptr<HostWorkspace> take(std::int64_t bytes) {
    std::unique_ptr<HostWorkspace> workspace;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        workspace = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (workspace == nullptr || workspace->bytes < bytes) {
      workspace = std::make_unique<HostWorkspace>(bytes);
    }
    return workspace;
  }
  void give_back(std::unique_ptr<HostWorkspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<HostWorkspace>> free_;
};

struct Linear {
  Fp8Linear linear;
  std::unique_ptr<WorkspacePool> workspaces = std::make_unique<WorkspacePool>();

  // As Fp8Linear's two run functions (`scales` 0: raw activations). Workspace 0 with 0 bytes: host memory of our own.
  void run(const ConstMatrixView& x, Address scales, const MatrixView& y, Address workspace, std::int64_t workspace_bytes,
           Address stream) {
    std::unique_ptr<HostWorkspace> own;
    auto* memory = at<void*>(workspace);
    if (workspace == 0 && workspace_bytes == 0) {
      workspace_bytes = linear.workspace_bytes(x.rows);
      own = workspaces->take(workspace_bytes);
      memory = own->data;
    }
    auto* const cuda_stream = at<void*>(stream);
    auto done = scales == 0 ? linear.run(x, y, memory, workspace_bytes, cuda_stream)
                            : linear.run_quantized(x, at<const float*>(scales), y, memory, workspace_bytes, cuda_stream);
    if (own != nullptr) {
      workspaces->give_back(std::move(own));
    }
    value_or_raise(std::move(done));
  }
};

WeightSource source_of(std::int64_t n, std::int64_t k, Address codes, std::string_view code_dtype, std::int64_t row_stride,
                       Address scales, std::string_view scale_dtype, std::int64_t scale_count) {
  WeightSource source;
  source.n = n;
  source.k = k;
  source.codes = at<const void*>(codes);
  source.code_dtype = dtype_of("weight codes", code_dtype);
  source.row_stride = row_stride;
  source.scales = at<const void*>(scales);
  source.scale_dtype = dtype_of("weight scales", scale_dtype);
  source.scale_count = scale_count;
  return source;
}

Fp8Weight make_weight(std::int64_t n, std::int64_t k, Address codes, std::string_view code_dtype, std::int64_t row_stride,
                      Address scales, std::string_view scale_dtype, std::int64_t scale_count, const std::string& device,
                      const std::string& tables, std::string_view out_dtype, std::string_view accumulate,
                      std::string_view numerics, bool batch_invariant, std::string_view pdl, std::string_view layout) {
  WeightOptions options;
  options.device = device;
  options.tables = tables;
  options.out_dtype = dtype_of("out_dtype", out_dtype);
  options.accumulate = accumulate_of(accumulate);
  options.numerics = numerics_of(numerics);
  options.batch_invariant = batch_invariant;
  options.pdl = pdl_of(pdl);
  options.layout = layout_of(layout);
  return value_or_raise(
      Fp8Weight::create(source_of(n, k, codes, code_dtype, row_stride, scales, scale_dtype, scale_count), options));
}

void update_weight(Fp8Weight& weight, std::int64_t n, std::int64_t k, Address codes, std::string_view code_dtype,
                   std::int64_t row_stride, Address scales, std::string_view scale_dtype, std::int64_t scale_count,
                   bool on_device, Address stream) {
  value_or_raise(weight.update(source_of(n, k, codes, code_dtype, row_stride, scales, scale_dtype, scale_count),
                               on_device ? SourceMemory::device : SourceMemory::host, at<void*>(stream)));
}

Linear make_linear(const Fp8Weight& weight, std::string_view activation, float static_scale, const QuantizeOptions& quantize,
                   std::string_view x_dtype, Address bias, std::string_view bias_dtype, bool allow_capture_fallback,
                   int max_sms) {
  LinearOptions options;
  options.activation = activation_of(activation);
  options.static_scale = static_scale;
  options.quantize = quantize;
  options.x_dtype = dtype_of("x_dtype", x_dtype);
  options.bias = at<const void*>(bias);
  options.bias_dtype = dtype_of("bias", bias_dtype);
  options.allow_capture_fallback = allow_capture_fallback;
  options.max_sms = max_sms;
  return Linear{value_or_raise(Fp8Linear::create(weight, options))};
}

QuantizeOptions make_quantize_options(std::optional<float> floor, std::optional<float> upper_bound,
                                      std::string_view division) {
  QuantizeOptions options;
  options.floor = floor.value_or(options.floor);
  options.upper_bound = upper_bound.value_or(options.upper_bound);
  options.division = division_of(division);
  return options;
}

}  // namespace

void bind_quantize(nb::module_& module) {
  nb::class_<QuantizeOptions>(module, "QuantizeOptions",
                              "Per-token quantisation: scale = min(max(amax, floor), upper_bound) / 448, codes = "
                              "e4m3(x / scale), saturated.\ndivision 'reciprocal' multiplies by the rounded 1 / scale, as "
                              "some engines do.")
      .def(nb::new_(&make_quantize_options), nb::kw_only(), nb::arg("floor") = nb::none(),
           nb::arg("upper_bound") = nb::none(), nb::arg("division") = "exact")
      .def_ro("floor", &QuantizeOptions::floor)
      .def_ro("upper_bound", &QuantizeOptions::upper_bound)
      .def_prop_ro("division", [](const QuantizeOptions& options) {
        return options.division == Division::exact ? "exact" : "reciprocal";
      });
  module.def(
      "quantize_preset", [](const std::string& engine) { return value_or_raise(quantize_preset(engine.c_str())); },
      nb::arg("engine"));
  module.def(
      "quantize_per_token",
      [](Address x, std::string_view dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
         std::int64_t col_stride, Address codes, Address scales, const QuantizeOptions& options) {
        value_or_raise(quantize_per_token(view_of<ConstMatrixView>("x", x, dtype, rows, cols, row_stride, col_stride),
                                          at<std::uint8_t*>(codes), at<float*>(scales), options));
      },
      nb::arg("x"), nb::arg("dtype"), nb::arg("rows"), nb::arg("cols"), nb::arg("row_stride"), nb::arg("col_stride"),
      nb::arg("codes"), nb::arg("scales"), nb::arg("options"), nb::call_guard<nb::gil_scoped_release>());
}

void bind_weight(nb::module_& module) {
  nb::class_<Fp8Weight>(module, "Weight", "A packed weight; octile.Weight wraps it.")
      .def(nb::new_(&make_weight), nb::kw_only(), nb::arg("n"), nb::arg("k"), nb::arg("codes"), nb::arg("code_dtype"),
           nb::arg("row_stride"), nb::arg("scales"), nb::arg("scale_dtype"), nb::arg("scale_count"), nb::arg("device"),
           nb::arg("tables"), nb::arg("out_dtype"), nb::arg("accumulate"), nb::arg("numerics"), nb::arg("batch_invariant"),
           nb::arg("pdl"), nb::arg("layout"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("layout", &Fp8Weight::layout)
      .def("update", &update_weight, nb::kw_only(), nb::arg("n"), nb::arg("k"), nb::arg("codes"), nb::arg("code_dtype"),
           nb::arg("row_stride"), nb::arg("scales"), nb::arg("scale_dtype"), nb::arg("scale_count"), nb::arg("on_device"),
           nb::arg("stream"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("n", &Fp8Weight::n)
      .def_prop_ro("k", &Fp8Weight::k)
      .def_prop_ro("nbytes", &Fp8Weight::bytes);
}

void bind_linear(nb::module_& module) {
  nb::class_<Linear>(module, "Linear", "A linear layer; octile.Linear wraps it.")
      .def(nb::new_(&make_linear), nb::kw_only(), nb::arg("weight"), nb::arg("activation"), nb::arg("static_scale"),
           nb::arg("quantize"), nb::arg("x_dtype"), nb::arg("bias"), nb::arg("bias_dtype"),
           nb::arg("allow_capture_fallback"), nb::arg("max_sms"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "prepare", [](Linear& linear, std::int64_t max_m) { value_or_raise(linear.linear.prepare(max_m)); },
          nb::arg("max_m"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "workspace_bytes", [](const Linear& linear, std::int64_t m) { return linear.linear.workspace_bytes(m); },
          nb::arg("max_m"))
      .def(
          "explain_json", [](const Linear& linear, std::int64_t m) { return to_json(linear.linear.explain(m)); },
          nb::arg("m"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "run",
          [](Linear& linear, Address x, std::string_view x_dtype, std::int64_t rows, std::int64_t cols,
             std::int64_t x_row_stride, std::int64_t x_col_stride, Address scales, Address y, std::string_view y_dtype,
             std::int64_t y_rows, std::int64_t y_cols, std::int64_t y_row_stride, std::int64_t y_col_stride,
             Address workspace, std::int64_t workspace_bytes, Address stream) {
            linear.run(view_of<ConstMatrixView>("x", x, x_dtype, rows, cols, x_row_stride, x_col_stride), scales,
                       view_of<MatrixView>("out", y, y_dtype, y_rows, y_cols, y_row_stride, y_col_stride), workspace,
                       workspace_bytes, stream);
          },
          nb::arg("x"), nb::arg("x_dtype"), nb::arg("rows"), nb::arg("cols"), nb::arg("x_row_stride"),
          nb::arg("x_col_stride"), nb::arg("scales"), nb::arg("y"), nb::arg("y_dtype"), nb::arg("y_rows"), nb::arg("y_cols"),
          nb::arg("y_row_stride"), nb::arg("y_col_stride"), nb::arg("workspace"), nb::arg("workspace_bytes"),
          nb::arg("stream"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace octile::python
