// SPDX-License-Identifier: Apache-2.0
// What tune, bench and verify ask of their options, and what describes a device in tables and journals.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/backend.h"
#include "octile/linear/choose.h"
#include "octile/table/tile_table.h"
#include "octile/tune/journal.h"
#include "octile/tune/run_options.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace octile {

// Errors (invalid_argument) name the value: shapes, M, budget, time-out.
Expected<void> check_shapes(const std::vector<TuneShape>& shapes);
Expected<void> check_run_options(const RunOptions& options);
// Errors (invalid_argument): a limit of multiprocessors on a CPU, or one that is none.
Expected<void> check_max_sms(const RunOptions& options, const DeviceInfo& device);
// Ascending and distinct; default_m_list() for none. Errors (invalid_argument): an M below 1.
Expected<std::vector<std::int64_t>> checked_m_list(const std::vector<std::int64_t>& m_list, bool is_gpu);

// The problem of one weight under these options.
Problem problem_of(const RunOptions& options, const TuneShape& shape);
// A plan that knows no table: the incumbents.
Plan plan_without_table(const Backend& backend, const DeviceInfo& device, const Problem& problem);

TableKey table_key(const DeviceInfo& device, const Problem& problem, const std::string& weight_layout);
// The first key that differs, and how; empty where none does. `a` and `b` name whose they are.
std::string difference_of_keys(const std::string& a, const HardKeys& keys_a, const std::string& b, const HardKeys& keys_b);
HardKeys hard_keys_of_run(const Backend& backend, const DeviceInfo& device, const RunOptions& options);
// octile, vendors, date, protocol, command.
std::map<std::string, std::string> provenance_of_run(const Backend& backend, const DeviceInfo& device,
                                                     const RunOptions& options, const std::string& date,
                                                     const std::string& protocol);
// Source hashes of the families that are available, as one hash of 16 hexadecimal digits.
std::string combined_source_hash(const Backend& backend, const DeviceInfo& device);
// Now, as 2026-11-29T18:00:00Z.
std::string utc_now();
// exp of the mean logarithm; 0 for no values.
double geometric_mean(const std::vector<double>& values);

}  // namespace octile
