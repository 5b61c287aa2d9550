// SPDX-License-Identifier: Apache-2.0
// One end of a socket that carries lines, read and written without waiting.
#pragma once

#include <poll.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {

class LineSocket {
 public:
  explicit LineSocket(int fd) noexcept : fd_(fd) {}
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)), queued_(std::move(other.queued_)) {}
  LineSocket& operator=(LineSocket&& other) noexcept;

  // What to poll for: its end is left out once it was seen, since it would be readable for ever.
  pollfd poll_request() const noexcept;
  // Whole lines that have come, without their newlines.
  std::vector<std::string> read();
  bool has_ended() const noexcept { return has_ended_; }
  // Writes as much as goes at once; the rest goes with write() or at the next flush().
  void write(std::string_view line);
  void flush();
  // The other side sees the end.
  void shut() noexcept;

 private:
  int fd_;
  bool has_ended_ = false;
  std::string received_;
  std::string queued_;
};

}  // namespace octile
