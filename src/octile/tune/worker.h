// SPDX-License-Identifier: Apache-2.0
// The worker process's side: serves one request a line until its input closes.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/backend.h"
#include "octile/tune/measure.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace octile {

using DeviceFinder = std::function<Expected<Device>(std::string_view id)>;
// Receives each line of an answer, without its newline.
using LineSink = std::function<void(const std::string& line)>;

class WorkerServer {
 public:
  explicit WorkerServer(DeviceFinder finder);
  // Handles one request; announcements and the answer, which comes last, go to `sink`.
  void serve(std::string_view line, const LineSink& sink);

 private:
  DeviceFinder finder_;
  std::unique_ptr<Measurer> measurer_;
};

// Serves requests on standard input and answers there (it is a socket) until it closes; what others print to standard output
// goes to standard error. Dies with process `parent_pid`. Returns the exit status.
int serve_worker(int parent_pid, const DeviceFinder& finder);

}  // namespace octile
