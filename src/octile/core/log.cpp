// SPDX-License-Identifier: Apache-2.0
// The one file that includes spdlog. Messages go to stderr, at OCTILE_LOG_LEVEL and above.
#define FMT_HEADER_ONLY 1
#define SPDLOG_HEADER_ONLY 1
#include "octile/core/log.h"

#include "octile/core/env.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace octile {
namespace {

std::atomic<LogSink> g_sink{nullptr};

spdlog::level::level_enum level_of(LogLevel level) {
  constexpr std::array kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<std::size_t>(level)];
}

spdlog::level::level_enum configured_level() {
  // A bad value must not silence the log: the command has refused it by then, a program that only uses the library is told
  // here.
  const auto text = env::get_text("OCTILE_LOG_LEVEL");
  return text ? spdlog::level::from_str(*text) : spdlog::level::info;
}

// Made once and never destroyed, since threads may log while the process exits.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("octile", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("octile: %l: %v");
    made->set_level(configured_level());
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

bool is_rank_zero() {
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') {
      continue;
    }
    const std::string_view digits = text;
    long rank = 0;
    const auto [rest, status] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (status == std::errc() && rest == digits.data() + digits.size()) {
      return rank == 0;
    }
  }
  return true;
}

bool is_logged(LogLevel level) {
  if (level <= LogLevel::info && !is_rank_zero()) {
    return false;
  }
  return g_sink.load() != nullptr || logger().should_log(level_of(level));
}

void detail::log_formatted(LogLevel level, fmt::string_view text, fmt::format_args args) {
  if (is_logged(level)) {
    log_message(level, detail::vformat(text, args));
  }
}

void log_message(LogLevel level, std::string_view message) {
  if (!is_logged(level)) {
    return;
  }
  if (const LogSink sink = g_sink.load()) {
    sink(level, message);
    return;
  }
  logger().log(level_of(level), "{}", message);
}

void log_once(LogLevel level, std::string_view key, std::string_view message) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>>* const said = new std::set<std::string, std::less<>>();
  {
    const std::lock_guard lock(mutex);
    if (!said->emplace(key).second) {
      return;
    }
  }
  log_message(level, message);
}

LogSink set_log_sink(LogSink sink) { return g_sink.exchange(sink); }

}  // namespace octile
