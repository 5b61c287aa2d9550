// SPDX-License-Identifier: Apache-2.0
// The command's exit statuses. A run that SIGINT or SIGTERM ended exits by 128 + the signal's number, as shells expect.
#pragma once

#include <octile/error.hpp>

namespace octile::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;      // The work failed, or a check found something.
inline constexpr int kWrongUsage = 2;  // The arguments or an environment variable were wrong.

// Prints "octile: error: <message>" to stderr and gives the status that its code stands for.
int fail(const Error& error);

}  // namespace octile::cli
