// SPDX-License-Identifier: Apache-2.0
// Lines over a socket; see line_socket.h.
#include "octile/tune/line_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace octile {

LineSocket::~LineSocket() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(has_ended_, other.has_ended_);
  std::swap(received_, other.received_);
  std::swap(queued_, other.queued_);
  return *this;
}

pollfd LineSocket::poll_request() const noexcept {
  return {has_ended_ ? -1 : fd_, static_cast<short>(queued_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
}

std::vector<std::string> LineSocket::read() {
  std::array<char, 65536> buffer;
  while (!has_ended_) {
    const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) {
      received_.append(buffer.data(), static_cast<std::size_t>(n));
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      has_ended_ = true;
    } else if (errno == EAGAIN) {
      break;
    }
  }
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end = received_.find('\n'); end != std::string::npos; end = received_.find('\n', begin)) {
    lines.push_back(received_.substr(begin, end - begin));
    begin = end + 1;
  }
  received_.erase(0, begin);
  return lines;
}

void LineSocket::write(std::string_view line) {
  queued_.append(line);
  queued_.push_back('\n');
  flush();
}

void LineSocket::flush() {
  std::size_t sent = 0;
  while (sent < queued_.size()) {
    const ssize_t n = ::send(fd_, queued_.data() + sent, queued_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      break;
    } else if (n == 0 || errno != EINTR) {
      sent = queued_.size();  // Nobody reads any more; that the other side has ended shows when it is read.
    }
  }
  queued_.erase(0, sent);
}

void LineSocket::shut() noexcept { ::shutdown(fd_, SHUT_RDWR); }

}  // namespace octile
