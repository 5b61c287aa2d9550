// SPDX-License-Identifier: Apache-2.0
// The tables that a verification is about: found, read, judged, each as a plan for every M.
#pragma once

#include <octile/error.hpp>

#include "octile/linear/choose.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/verify.h"

#include <memory>
#include <string>
#include <vector>

namespace octile {

struct VerifyPlans {
  Device device;
  std::vector<std::unique_ptr<Plan>> plans;  // Each with a table that this device may use.
  std::vector<Finding> findings;             // Of reading files, of hard keys, of illegal entries.
  std::vector<Finding> advice;               // Soft keys that differ.
};

// Of the shapes in `options`, or of every table file of the device in the directories. Errors: those of the options, of the
// device; invalid_argument where there is nothing to verify.
Expected<VerifyPlans> find_verify_plans(const VerifyOptions& options, const RunHooks& hooks);

// "[17, 64]" or, in the field's format, "64".
std::string key_of(const TileTable& table, const TableEntry& entry);

}  // namespace octile
