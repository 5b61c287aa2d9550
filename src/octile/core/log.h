// SPDX-License-Identifier: Apache-2.0
// Logging to stderr through spdlog, without its header. Only rank 0 of a distributed run logs at info level.
#pragma once

#include "octile/core/format.h"

#include <string>
#include <string_view>

namespace octile {

enum class LogLevel { debug, info, warning, error };

void log_message(LogLevel level, std::string_view message);
// Whether log_message() would say it: for messages whose parts cost something to make.
bool is_logged(LogLevel level);
// Says it once per process and `key`.
void log_once(LogLevel level, std::string_view key, std::string_view message);
// True unless RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK names a rank other than 0.
bool is_rank_zero();

// Tests replace the sink to see what was logged; nullptr restores stderr. Returns the previous one.
using LogSink = void (*)(LogLevel level, std::string_view message);
LogSink set_log_sink(LogSink sink);

namespace detail {
void log_formatted(LogLevel level, fmt::string_view text, fmt::format_args args);
}

// Formatted only where it is said.
template <class... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  detail::log_formatted(LogLevel::debug, text, fmt::make_format_args(args...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  detail::log_formatted(LogLevel::info, text, fmt::make_format_args(args...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  detail::log_formatted(LogLevel::warning, text, fmt::make_format_args(args...));
}

}  // namespace octile
