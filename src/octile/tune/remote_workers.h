// SPDX-License-Identifier: Apache-2.0
// Workers on other hosts, as rank 0 uses them: a WorkerLauncher whose socket leads, over messages, to a worker that another
// rank has started. What a coordinator does with a worker of its own (ask, wait, blame, kill, start anew), it does with
// these.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/line_socket.h"
#include "octile/tune/postbox.h"
#include "octile/tune/worker_process.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace octile {

// Tells every other rank that the run is over and waits a moment for their farewells. False: some gave none, so that nothing
// that waits for them must be called.
bool dismiss(const Postbox& postbox);

class RemoteWorkers {
 public:
  // From here to finish() the postbox belongs to a thread of this object.
  explicit RemoteWorkers(Postbox postbox);
  ~RemoteWorkers();
  RemoteWorkers(const RemoteWorkers&) = delete;
  RemoteWorkers& operator=(const RemoteWorkers&) = delete;

  // For a worker of `rank`, which knows the device by this name. Must not outlive this object; any thread.
  WorkerLauncher launcher(int rank, std::string device);
  // Ends what is left and dismisses the other ranks; false as dismiss().
  bool finish();

 private:
  struct Remote {
    int rank = 0;
    LineSocket socket;
    std::optional<std::string> ended;  // How.
  };

  Expected<int> start(int rank, const std::string& device, int& id);
  std::string end(int id, double patience_s);
  void wake();
  void run();
  void forward_lines();
  void take(const Letter& letter);
  void give_up(const std::string& reason);

  Postbox postbox_;
  int wake_fd_ = -1;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<int, Remote> remotes_;
  std::vector<std::pair<int, std::string>> outbox_;  // Rank, text.
  int next_id_ = 1;
  bool is_finishing_ = false;
  std::optional<std::string> broken_;  // Messages cannot be sent or received any more.
  std::thread thread_;
};

}  // namespace octile
