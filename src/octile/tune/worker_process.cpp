// SPDX-License-Identifier: Apache-2.0
// Children of this process; see worker_process.h.
#include "octile/tune/worker_process.h"

#include "octile/core/format.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

namespace octile {

WorkerProcess::WorkerProcess(std::vector<std::string> command) : command_(std::move(command)) {
  if (command_.empty()) {
    command_ = {"/proc/self/exe", "worker"};
  }
}

WorkerProcess::~WorkerProcess() { end(0); }

Expected<int> WorkerProcess::start() {
  end(0);
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return make_error(ErrorCode::failed, "cannot make a socket pair for the worker: {}", std::strerror(errno));
  }
  std::vector<std::string> arguments = command_;
  arguments.emplace_back("--parent");
  arguments.push_back(std::to_string(::getpid()));
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
  // A process group of its own: the terminal's Ctrl-C reaches the coordinator alone, and children of a worker end with it.
  // Signals as a fresh process has them, whatever this one blocks or ignores.
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int status = ::posix_spawn(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  if (status != 0) {
    ::close(ends[0]);
    return make_error(ErrorCode::failed, "cannot start the worker \"{}\": {}", command_[0], std::strerror(status));
  }
  pid_ = pid;
  return ends[0];
}

std::string WorkerProcess::reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    return format("killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return format("exit status {}", WEXITSTATUS(status));
}

std::string WorkerProcess::end(double patience_s) {
  if (pid_ <= 0) {
    return {};
  }
  constexpr double kPauseS = 0.01;
  for (double waited_s = 0; waited_s < patience_s; waited_s += kPauseS) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
      return reap();
    }
    ::usleep(static_cast<useconds_t>(kPauseS * 1e6));
  }
  ::kill(-pid_, SIGKILL);  // The group, and the process itself where it has not made its group yet.
  ::kill(pid_, SIGKILL);
  return reap();
}

WorkerLauncher launcher_here(std::vector<std::string> command) {
  const auto process = std::make_shared<WorkerProcess>(std::move(command));
  return {[process] { return process->start(); }, [process](double patience_s) { return process->end(patience_s); }};
}

}  // namespace octile
