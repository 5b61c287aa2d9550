// SPDX-License-Identifier: Apache-2.0
// Progress on stderr: a bar with the time left on a terminal, a plain line now and then elsewhere.
#pragma once

#include "octile/tune/run_options.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace octile::cli {

// "[########------------]  12/68   18 %, 1 min 20 s left, qkv m=16: racing avx512", cut to `width` columns.
std::string progress_bar(const TuneProgress& progress, std::size_t width);
// The same as a line of a log, whole: "12/68 (18 %), 1 min 20 s left: qkv m=16".
std::string progress_line(const TuneProgress& progress);

// Draws while it lives. While the bar stands, log messages go above it. At most one at a time in a process.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // For RunOptions::progress; refers to this object.
  std::function<void(const TuneProgress&)> callback();

 private:
  void update(const TuneProgress& progress);

  bool is_terminal_ = false;
  bool said_anything_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace octile::cli
