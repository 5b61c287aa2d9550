// SPDX-License-Identifier: Apache-2.0
// What was logged while an object lives, in order.
#pragma once

#include "octile/core/log.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace octile::test {

// One at a time. log_once() remembers its keys for the life of the process: use names of files and devices that no other
// test uses.
class LogCapture {
 public:
  LogCapture() {
    lines().clear();
    previous_ = set_log_sink([](LogLevel level, std::string_view message) {
      const std::lock_guard lock(mutex());
      lines().push_back({level, std::string(message)});
    });
  }
  ~LogCapture() { set_log_sink(previous_); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  struct Line {
    LogLevel level;
    std::string text;
  };
  std::vector<Line> all() const {
    const std::lock_guard lock(mutex());
    return lines();
  }
  // Lines of `level` that hold `text`.
  std::int64_t count(LogLevel level, std::string_view text) const {
    const auto copy = all();
    return std::count_if(copy.begin(), copy.end(),
                         [&](const Line& line) { return line.level == level && line.text.find(text) != std::string::npos; });
  }
  std::int64_t warnings_with(std::string_view text) const { return count(LogLevel::warning, text); }

 private:
  static std::vector<Line>& lines() {
    static std::vector<Line> instance;
    return instance;
  }
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  LogSink previous_;
};

}  // namespace octile::test
