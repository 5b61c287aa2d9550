// SPDX-License-Identifier: Apache-2.0
// A thread that asks a worker to compile; see compile_ahead.h.
#include "octile/tune/compile_ahead.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/tune/point.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace octile {

void CompileList::add(const TuneShape& shape, const KernelFamily& family, const TileConfig& config) {
  if (!known_.insert(format("{}{} {}", place_of(shape), family.name(), config.to_json())).second) {
    return;
  }
  CandidateSpec spec;
  spec.kernel = family.name();
  spec.config = config;
  items_.push_back({shape.n, shape.k, std::move(spec)});
}

CompileAhead::CompileAhead(const RunOptions& options, const RunHooks& hooks, const MeasureSettings& settings,
                           const Links& links, int spare_cores)
    : options_(options),
      hooks_(hooks),
      settings_(settings),
      links_(links),
      spare_cores_(spare_cores),
      stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // What cannot be stopped is not begun.
  if (stop_fd_ < 0) {
    is_over_ = true;
    return;
  }
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& refused) {
    log_warning("no thread to compile ahead: {}; kernels are compiled one at a time", refused.what());
    is_over_ = true;
  }
}

CompileAhead::~CompileAhead() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(*links_.turn);
      is_stopping_ = true;
    }
    links_.changed->notify_all();
    const std::uint64_t one = 1;
    if (::write(stop_fd_, &one, sizeof one) < 0) {
      // Full: it is readable already.
    }
    thread_.join();
  }
  if (stop_fd_ >= 0) {
    ::close(stop_fd_);
  }
}

void CompileAhead::add(const TuneShape& shape, const KernelFamily& family, const TileConfig& config) {
  list_.add(shape, family, config);
  links_.changed->notify_all();
}

void CompileAhead::run() {
  std::unique_lock lock(*links_.turn);
  const auto say_failed = [](std::string_view why) {
    log_warning("compiling ahead failed: {}; kernels are compiled one at a time", why);
  };
  // Out of a thread an exception would end the process.
  try {
    if (const Expected<void> done = compile(lock); !done) {
      say_failed(done.error().message);
    }
  } catch (const std::exception& thrown) {
    say_failed(thrown.what());
  }
  is_over_ = true;
  links_.changed->notify_all();
}

// Until it is stopped, or no more can be compiled.
Expected<void> CompileAhead::compile(std::unique_lock<std::mutex>& lock) {
  // The worker ends with the thread that started it.
  Expected<std::unique_ptr<Session>> session =
      Session::open(options_, hooks_, settings_, {.turn = links_.turn, .start_s = links_.start_s, .stop_fd = stop_fd_});
  if (!session) {
    return std::move(session).error();
  }
  while (!is_stopping_ && !(*session)->ended()) {
    const std::size_t first = compiled_;
    if (first == added()) {
      links_.changed->wait(lock);
      continue;
    }
    // A copy, since the list may grow meanwhile.
    const std::span<const CompileItem> rest = list_.items().subspan(first);
    const std::vector<CompileItem> items(rest.begin(), rest.end());
    const Expected<bool> all = (*session)->compile_ahead(items, spare_cores_, (*session)->left_s(), [&](std::size_t count) {
      const std::lock_guard turn(*links_.turn);
      compiled_ = first + count;
      links_.changed->notify_all();
    });
    if (!all) {
      return all.error();
    }
    if (!*all) {
      return {};
    }
    compiled_ = first + items.size();
    links_.changed->notify_all();
  }
  return {};
}

}  // namespace octile
