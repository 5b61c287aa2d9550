// SPDX-License-Identifier: Apache-2.0
// Device names as table files spell them, which names are close to each other, and aliases.
#pragma once

#include <octile/error.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace octile {

// The driver's name as in file names: "NVIDIA L40S" -> "NVIDIA_L40S". Blanks become underscores, and so do slashes and
// control characters, which a file name must not hold.
std::string device_file_name(std::string_view driver_name);
// Whether `name` can stand in a file name: not empty, at most 200 bytes, device_file_name() leaves it as it is, no "..".
bool is_device_file_name(std::string_view name) noexcept;

// How close two names (as in file names) are: 1 for the same, 0 for different devices, between for what may be the same chip
// in another guise: "NVIDIA_H100_PCIe" and "NVIDIA_H100_80GB_HBM3", "NVIDIA_H20-3e" and "NVIDIA_H20", "NVIDIA_L40" and
// "NVIDIA_L40S", one CPU model with another number of threads. "NVIDIA_H20" and "NVIDIA_H200" are different.
double device_name_similarity(std::string_view a, std::string_view b);
// The closest of `known` to `name` that is not `name` itself, or "" where none is close. Ties: the first in alphabetical
// order.
std::string nearest_device_name(std::string_view name, const std::vector<std::string>& known);

// The name under which tables for `device_name` are looked up: OCTILE_DEVICE_NAME_ALIAS ("ALIAS" for every device, or
// "NAME=ALIAS" for that one; blanks or underscores) or the name itself. Errors (invalid_argument): a malformed alias.
Expected<std::string> aliased_device_name(const std::string& device_name);

}  // namespace octile
