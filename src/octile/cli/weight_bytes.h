// SPDX-License-Identifier: Apache-2.0
// Resident bytes of a weight without packing all of it.
#pragma once

#include <octile/error.hpp>

#include "octile/linear/choose.h"

#include <cstdint>

namespace octile::cli {

// Bytes of a weight of the plan's N and K in every layout that the plan can reach; on a device that is not here, of its
// codes and scales alone. Packs at most 256 rows: in every layout the bytes grow evenly, by a number of rows that
// divides 128.
Expected<std::int64_t> weight_bytes(const Plan& plan);

}  // namespace octile::cli
