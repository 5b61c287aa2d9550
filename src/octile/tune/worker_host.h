// SPDX-License-Identifier: Apache-2.0
// A rank other than 0: starts workers for it, passes their lines on, and knows nothing of what they measure.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/postbox.h"

#include <string>
#include <vector>

namespace octile {

// Serves rank 0 until it says that the run is over, and then says farewell. `command` as in RunOptions::worker_command.
// Errors: messages fail, or a signal came and rank 0 did not end the run.
Expected<void> serve_workers(const Postbox& postbox, const std::vector<std::string>& command);

}  // namespace octile
