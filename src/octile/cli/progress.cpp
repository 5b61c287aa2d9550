// SPDX-License-Identifier: Apache-2.0
// The bar is redrawn in place at most ten times a second; without a terminal a line is printed every ten seconds, so that
// the log of a long run shows where it stands and that of a short one stays short.
#include "octile/cli/progress.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/report/numbers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

namespace octile::cli {
namespace {

constexpr std::size_t kBarCells = 20;
constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr std::chrono::seconds kLineInterval{10};
constexpr const char* kClearLine = "\r\x1b[K";

// Log messages come from any thread.
std::mutex g_mutex;
std::string g_bar;  // What stands on the terminal's last line.

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// Takes the bar away, logs as usual, and puts the bar back.
void log_above_bar(LogLevel level, std::string_view message) {
  const std::lock_guard lock(g_mutex);
  put(kClearLine);
  set_log_sink(nullptr);
  log_message(level, message);
  set_log_sink(log_above_bar);
  put(g_bar);
}

std::size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

double share_of(const TuneProgress& progress) {
  return progress.total > 0 ? std::clamp(static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0)
                            : 0.0;
}

std::string time_text(const TuneProgress& progress) {
  return progress.finished ? "done in " + format_duration(progress.elapsed_s) : format_duration(progress.left_s) + " left";
}

}  // namespace

std::string progress_bar(const TuneProgress& progress, std::size_t width) {
  const double share = share_of(progress);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarCells));
  std::string line = format("[{}{}] {}/{} {:3.0f} %, {}", std::string(filled, '#'), std::string(kBarCells - filled, '-'),
                            progress.done, progress.total, share * 100.0, time_text(progress));
  if (!progress.doing.empty()) {
    line += ", " + progress.doing;
  }
  return line.substr(0, width);
}

std::string progress_line(const TuneProgress& progress) {
  const std::string line =
      format("{}/{} ({:.0f} %), {}", progress.done, progress.total, share_of(progress) * 100.0, time_text(progress));
  return progress.doing.empty() ? line : line + ": " + progress.doing;
}

Progress::Progress() {
  const char* term = std::getenv("TERM");
  is_terminal_ = ::isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
  if (is_terminal_) {
    set_log_sink(log_above_bar);
  }
}

Progress::~Progress() {
  if (is_terminal_) {
    set_log_sink(nullptr);
    const std::lock_guard lock(g_mutex);
    if (!g_bar.empty()) {
      put("\n");
      g_bar.clear();
    }
  }
}

std::function<void(const TuneProgress&)> Progress::callback() {
  return [this](const TuneProgress& progress) { update(progress); };
}

void Progress::update(const TuneProgress& progress) {
  const auto now = std::chrono::steady_clock::now();
  const bool due = !said_anything_ || now - last_ >= (is_terminal_ ? kRedrawInterval : kLineInterval);
  if (!due && !progress.finished) {
    return;
  }
  said_anything_ = true;
  last_ = now;
  if (!is_terminal_) {
    put("octile: " + progress_line(progress) + "\n");
    return;
  }
  const std::lock_guard lock(g_mutex);
  // One column stays free: some terminals wrap when the last one is written.
  g_bar = progress_bar(progress, terminal_width() - 1);
  put(kClearLine + g_bar);
}

}  // namespace octile::cli
