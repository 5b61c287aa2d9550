// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them: the same in every locale, "-" for what was not measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace octile {

// `digits` after the point; "-" for NaN, infinities and nullopt.
std::string format_fixed(std::optional<double> value, int digits);
// Microseconds with three or four significant digits: "7.23", "61.4", "912", "15230".
std::string format_us(std::optional<double> us);
// A ratio as "1.25x".
std::string format_ratio(std::optional<double> ratio);
// A share as "87 %".
std::string format_share(std::optional<double> share);
// "512 B", "24.0 KiB", "96.0 MiB", "1.5 GiB".
std::string format_bytes(std::int64_t bytes);
// A span of time as "42 s", "3 min 05 s", "2 h 07 min"; negative counts as zero.
std::string format_duration(double seconds);

}  // namespace octile
