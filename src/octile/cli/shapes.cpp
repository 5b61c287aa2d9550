// SPDX-License-Identifier: Apache-2.0
// What several commands share: shapes from a model or from N and K, the device, the options of a run.
#include "octile/cli/commands.h"
#include "octile/core/format.h"
#include "octile/core/named_value.h"
#include "octile/kernels/known_devices.h"
#include "octile/model/model.h"
#include "octile/table/device_names.h"

namespace octile::cli {

Expected<std::vector<TuneShape>> shapes_of(const ShapeArgs& args) {
  const bool has_weight = args.n != 0 || args.k != 0;
  if (args.model.empty() == !has_weight) {
    return make_error(ErrorCode::invalid_argument, "{}: give --model, or both --n and --k",
                      has_weight ? "--model does not go with --n and --k" : "nothing to work on");
  }
  if (!has_weight) {
    auto model = load_model(args.model, args.tp);
    if (!model) {
      // Whatever is wrong with it, the file was the user's choice of an argument.
      return Error{ErrorCode::invalid_argument, "--model: " + model.error().message};
    }
    std::vector<TuneShape> shapes;
    for (LinearShape& linear : model->linears) {
      shapes.push_back({std::move(linear.name), linear.n, linear.k});
    }
    return shapes;
  }
  if (args.n == 0 || args.k == 0) {
    return make_error(ErrorCode::invalid_argument, "--n and --k go together: {} is missing", args.n == 0 ? "--n" : "--k");
  }
  if (args.tp != 1) {
    return make_error(ErrorCode::invalid_argument,
                      "--tp divides the linears of a --model; --n and --k are taken as they are");
  }
  return std::vector<TuneShape>{{"linear", args.n, args.k}};
}

Expected<Device> find_device_or_name(const std::string& id, const std::string& device_name) {
  if (device_name.empty()) {
    return find_device(id.empty() ? "cpu" : id);
  }
  const std::string name = device_file_name(device_name);
  if (!is_device_file_name(name)) {
    return make_error(ErrorCode::invalid_argument, "--device-name: \"{}\" cannot be the name of a device", device_name);
  }
  for (const Backend* backend : backends()) {
    for (const DeviceInfo& device : backend->devices()) {
      if (device.name == name) {
        return Device{backend, device};
      }
    }
  }
  if (const auto known = known_device(name)) {
    return Device{nullptr, *known};
  }
  Device unknown;
  unknown.info.name = name;
  unknown.info.kind = DeviceKind::cuda;
  return unknown;
}

Accumulate accumulate_named(std::string_view name) {
  return value_named(name, {Accumulate::fast, Accumulate::precise}, Accumulate::device_default);
}

DType out_dtype_named(std::string_view name) { return value_named(name, {DType::fp16, DType::fp32}, DType::bf16); }

WeightLayout layout_named(std::string_view name) {
  return value_named(name, {WeightLayout::row_major, WeightLayout::slab64}, WeightLayout::automatic);
}

void fill_options(const MeasureArgs& args, const std::string& command_line, RunOptions& options) {
  options.device = args.device;
  options.tables = args.tables;
  options.time_budget_s = args.time_budget_s;
  options.seed = args.seed;
  options.scope = args.scope;
  options.pdl = value_named(args.pdl, {Pdl::off, Pdl::consume}, Pdl::full);
  options.accumulate = accumulate_named(args.accumulate);
  options.out_dtype = out_dtype_named(args.out_dtype);
  options.layout = layout_named(args.layout);
  options.max_sms = static_cast<int>(args.max_sms);
  options.command_line = command_line;
}

int interrupted_status(int signal_number) { return signal_number == 0 ? 0 : 128 + signal_number; }

}  // namespace octile::cli
