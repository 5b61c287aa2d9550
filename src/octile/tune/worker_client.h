// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of one worker process: has it started, asks, waits no longer than allowed, and says how it ended.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/worker_process.h"

#include <functional>
#include <string>

namespace octile {

// How a question ended.
struct WorkerReply {
  enum class Status {
    answered,     // `line` is the answer.
    died,         // The process ended; `reason` says how.
    timed_out,    // One step took longer than `step_timeout_s`; the process was killed.
    out_of_time,  // The run's deadline came; the process was killed.
    interrupted,  // A signal came, or the question was given up; the process was killed.
  };
  Status status = Status::answered;
  std::string line;
  std::string reason;
};

struct WorkerLimits {
  double step_timeout_s = 60;  // From one line of the worker to the next.
  double deadline_s = 0;       // From now; 0: none.
  int signal_fd = -1;          // Readable: interrupted.
  int stop_fd = -1;            // Readable: given up.
};

class WorkerClient {
 public:
  explicit WorkerClient(WorkerLauncher launcher);
  ~WorkerClient();  // Kills it.
  WorkerClient(const WorkerClient&) = delete;
  WorkerClient& operator=(const WorkerClient&) = delete;

  // A fresh worker in place of the one that runs. Error (failed): it cannot be started.
  Expected<void> start();
  // Sends a line; `is_answer(line)` is false for announcements, which it also sees, and may change `limits` for the step
  // that was announced.
  WorkerReply ask(const std::string& line, WorkerLimits& limits, const std::function<bool(const std::string&)>& is_answer);
  // Kills it; returns how it ended.
  std::string stop() { return stop(0); }

 private:
  std::string stop(double patience_s);

  WorkerLauncher launcher_;
  int fd_ = -1;
  std::string pending_;
};

}  // namespace octile
