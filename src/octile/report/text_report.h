// SPDX-License-Identifier: Apache-2.0
// What the commands print for people, as text; and the rows of `bench` as CSV.
#pragma once

#include <octile/linear.hpp>

#include "octile/kernels/describe.h"
#include "octile/report/json_report.h"
#include "octile/tune/bench.h"
#include "octile/tune/tune.h"
#include "octile/tune/verify.h"

#include <span>
#include <string>

namespace octile {

std::string devices_text(std::span<const DeviceReport> devices);
std::string env_text(std::span<const VariableReport> variables);
// docs/environment.md: declarations only, nothing of this process.
std::string env_markdown(std::span<const VariableReport> variables);

// One explanation as a block of "name: value" lines, several with an empty line between them. Names of shapes are printed
// where `shape_names` holds one for each.
std::string explanations_text(std::span<const Explanation> explanations, std::span<const std::string> shape_names);

std::string findings_text(std::span<const Finding> findings);

std::string tune_text(const TuneSummary& summary);
std::string bench_text(const BenchResult& result);
// Header and one record a row; columns are the fields of a JSON row.
std::string bench_csv(const BenchResult& result);
std::string verify_text(const VerifyResult& result);

}  // namespace octile
