// SPDX-License-Identifier: Apache-2.0
// One function a command; each returns the exit status.
#pragma once

#include <octile/error.hpp>

#include "octile/cli/args.h"
#include "octile/kernels/backend.h"
#include "octile/tune/run_options.h"

#include <string>
#include <vector>

namespace octile::cli {

int run_devices(const DevicesArgs& args);
int run_tune(const TuneArgs& args, const std::string& command_line);
int run_bench(const BenchArgs& args, const std::string& command_line);
int run_report(const ReportArgs& args);
int run_verify(const VerifyArgs& args, const std::string& command_line);
int run_explain(const ExplainArgs& args);
int run_warmup(const WarmupArgs& args);
int run_table_lint(const TableLintArgs& args);
int run_table_show(const TableShowArgs& args);
int run_table_diff(const TableDiffArgs& args);
int run_table_merge(const TableMergeArgs& args);
int run_table_import(const TableImportArgs& args);
int run_table_adopt(const TableAdoptArgs& args);
int run_table_export(const TableExportArgs& args);
int run_cache(const CacheArgs& args);
int run_env(const EnvArgs& args);
int run_doctor();

// The linears that --model and --tp, or --n and --k, ask for. Error (invalid_argument): neither or both are given.
Expected<std::vector<TuneShape>> shapes_of(const ShapeArgs& args);
// The device of --device ("" is the CPU) or, where it is given, of --device-name: present, known (without a backend), or a
// name alone.
Expected<Device> find_device_or_name(const std::string& id, const std::string& device_name);
// A checked option: "fast", "precise", else the device's default.
Accumulate accumulate_named(std::string_view name);
DType out_dtype_named(std::string_view name);
// A checked option: "row_major", "slab64", else automatic.
WeightLayout layout_named(std::string_view name);
// Copies what tune, bench and verify have in common.
void fill_options(const MeasureArgs& args, const std::string& command_line, RunOptions& options);
// 0, or 128 + the signal that ended a run.
int interrupted_status(int signal_number);

}  // namespace octile::cli
