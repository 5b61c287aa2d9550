// SPDX-License-Identifier: Apache-2.0
// Resident bytes of a weight without packing all of it.
#pragma once

#include <octile/error.hpp>

#include "octile/linear/choose.h"

#include <cstdint>

namespace octile::cli {

// Bytes of a weight of the plan's N and K in every layout that the plan can reach; without a backend (a device that is not
// here) those of its codes and scales. Packs at most 256 rows: in every layout the bytes grow evenly, by a number of rows
// that divides 128.
Expected<std::int64_t> weight_bytes(const Backend* backend, const Plan& plan);

}  // namespace octile::cli
