// SPDX-License-Identifier: Apache-2.0
// Messages between the processes of a run over several hosts: rank 0, which decides and writes, and the others, which drive
// the devices of their hosts. Each message is a JSON object; docs/tuning.md, "Over hosts with MPI", lists them.
#pragma once

#include <octile/error.hpp>

#include <functional>
#include <string>
#include <vector>

namespace octile {

struct Letter {
  int from = 0;
  std::string text;
};

// Nothing here waits. Messages between two ranks arrive in the order in which they were sent. One thread at a time.
struct Postbox {
  int rank = 0;
  int size = 1;
  std::function<Expected<void>(int to, const std::string& text)> send;
  // What has come since the last call; it must be called for queued messages to go on.
  std::function<Expected<std::vector<Letter>>()> receive;
  double poll_interval_s = 1e-3;  // Between two looks for a message while one is expected.
};

}  // namespace octile
