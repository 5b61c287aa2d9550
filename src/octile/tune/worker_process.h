// SPDX-License-Identifier: Apache-2.0
// How a worker process is started and ended: by this process, or by one on another host.
#pragma once

#include <octile/error.hpp>

#include <sys/types.h>
#include <functional>
#include <string>
#include <vector>

namespace octile {

// One worker at a time.
struct WorkerLauncher {
  // Starts a fresh worker. The result is the coordinator's end of a socket to it, the caller's to close; once the worker has
  // ended, reading from it gives the end. Error (failed): the worker cannot be started.
  std::function<Expected<int>()> start;
  // Gives the worker so long to end by itself, kills it, and says how it ended: "killed by signal 11 (Segmentation fault)",
  // "exit status 3". "" where there is none.
  std::function<std::string(double patience_s)> end;
};

// A child of this process.
class WorkerProcess {
 public:
  // `command` as in RunOptions::worker_command.
  explicit WorkerProcess(std::vector<std::string> command);
  ~WorkerProcess();  // Kills it.
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // As WorkerLauncher's. A worker that runs is ended first.
  Expected<int> start();
  std::string end(double patience_s);

 private:
  std::string reap();

  std::vector<std::string> command_;
  pid_t pid_ = -1;
};

WorkerLauncher launcher_here(std::vector<std::string> command);

}  // namespace octile
