// SPDX-License-Identifier: Apache-2.0
// The pool of threads. One job at a time: a caller writes the job's fields and publishes a ticket (job number, parts not yet
// taken) as one 64-bit word. Whoever decrements the ticket of the current job owns one part, so a worker that wakes late can
// never take a part of a job that is over, and nobody waits for a worker that took none.
#include "octile/kernels/cpu/thread_pool.h"

#include "octile/core/env.h"
#include "octile/core/float_mode.h"
#include "octile/core/log.h"
#include "octile/kernels/cpu/futex_turn.h"

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace octile::cpu {
namespace {

// Raised in a forked child: workers are not inherited, so every pool made before the fork must get new ones.
std::atomic<std::uint32_t> fork_generation{0};

void register_fork_handler() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  if (registered != 0) {
    log_once(LogLevel::warning, "thread_pool.atfork",
             "cannot watch for fork(): a forked process must not use the CPU kernels");
  }
}

// Set while the thread works on a part of any pool: a nested run() must not wait for the pool that it is part of.
thread_local bool working = false;

void run_inline(int parts, PartFunction work) noexcept {
  for (int part = 0; part < parts; ++part) {
    work(part);
  }
}

int configured_size() {
  const Expected<std::int64_t> wanted = env::get_int("OCTILE_NUM_THREADS");
  if (!wanted) {
    log_once(LogLevel::warning, "thread_pool.size", wanted.error().message);
  }
  return wanted && *wanted > 0 ? static_cast<int>(*wanted) : usable_cores();
}

}  // namespace

struct ThreadPool::Impl {
  Impl(int size, std::uint32_t fork_number)
      : generation(fork_number), watch(size <= usable_cores()) {  // With more threads than cores watching only disturbs.
    try {
      workers.reserve(static_cast<std::size_t>(size) - 1);
      for (int i = 1; i < size; ++i) {
        workers.emplace_back([this] { work_until_stopped(); });
      }
    } catch (const std::system_error& e) {  // The kernel refuses more threads: the ones there are do all parts.
      log_once(LogLevel::warning, "thread_pool.threads",
               format("wanted {} threads, got {}: {}", size, workers.size() + 1, e.what()));
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the same; there is no memory to say so either.
    }
  }

  void work_until_stopped() {
    const ScopedFloatMode mode;  // A thread starts with its maker's.
    for (std::uint32_t seen = 0;;) {
      seen = wait_until_changed(wake, seen, watch);
      if (stopped.load(std::memory_order_acquire)) {
        return;
      }
      take_parts();
    }
  }

  // Takes parts of the current job until none is left.
  void take_parts() noexcept {
    working = true;
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & 0xFFFFFFFFU) != 0) {
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      // The job cannot end before this part is done, so its fields stand still from here to the decrement below.
      (*work)(parts - static_cast<int>(seen & 0xFFFFFFFFU));
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        unfinished.notify_all();
      }
      seen = ticket.load(std::memory_order_acquire);
    }
    working = false;
  }

  void run_job(int count, PartFunction function) {
    work = &function;
    parts = count;
    unfinished.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
    ++job;
    ticket.store((static_cast<std::uint64_t>(job) << 32U) | static_cast<std::uint32_t>(count), std::memory_order_release);
    wake.fetch_add(1, std::memory_order_release);
    const auto wanted = static_cast<std::size_t>(count - 1);
    if (wanted >= workers.size()) {
      wake.notify_all();
    } else {
      for (std::size_t i = 0; i < wanted; ++i) {
        wake.notify_one();
      }
    }
    take_parts();
    for (std::uint32_t left = unfinished.load(std::memory_order_acquire); left != 0;) {
      left = wait_until_changed(unfinished, left, watch);
    }
  }

  // Ends the workers once the callers that came earlier are served; later callers do their parts themselves.
  void stop() {
    turn.begin(watch);
    stopped.store(true, std::memory_order_release);
    wake.fetch_add(1, std::memory_order_release);
    wake.notify_all();
    for (std::thread& worker : workers) {
      worker.join();
    }
    workers.clear();
    turn.end();
  }

  // Each word that threads watch has a cache line of its own.
  alignas(64) std::atomic<std::uint64_t> ticket{0};  // (job number << 32) | parts not yet taken.
  alignas(64) std::atomic<std::uint32_t> unfinished{0};
  alignas(64) std::atomic<std::uint32_t> wake{0};
  alignas(64) FutexTurn turn;
  alignas(64) const PartFunction* work = nullptr;  // The current job; written by the caller whose turn it is.
  int parts = 0;
  std::uint32_t job = 0;
  std::atomic<bool> stopped{false};
  const std::uint32_t generation;
  const bool watch;
  Impl* abandoned_next = nullptr;
  std::vector<std::thread> workers;
};

ThreadPool::ThreadPool(int size) : size_(std::max(size, 1)) {
  register_fork_handler();
  impl_.store(new Impl(size_, fork_generation.load(std::memory_order_relaxed)), std::memory_order_release);
}

ThreadPool::~ThreadPool() {
  Impl* impl = current_impl();
  impl->stop();
  delete impl;
}

// The workers of this process. In a forked child that means new ones: the old object's threads do not exist here, and it is
// kept (reachable, so that leak checkers see why) since its words may have been caught in the middle of a job.
ThreadPool::Impl* ThreadPool::current_impl() {
  static std::atomic<Impl*> abandoned{nullptr};
  Impl* impl = impl_.load(std::memory_order_acquire);
  const std::uint32_t now = fork_generation.load(std::memory_order_relaxed);
  while (impl->generation != now) {
    Impl* fresh = new Impl(size_, now);
    if (impl_.compare_exchange_strong(impl, fresh, std::memory_order_acq_rel, std::memory_order_acquire)) {
      impl->abandoned_next = abandoned.exchange(impl, std::memory_order_acq_rel);
      return fresh;
    }
    fresh->stop();  // Another thread of the child was faster; `impl` is what it stored.
    delete fresh;
  }
  return impl;
}

void ThreadPool::run(int parts, PartFunction work) {
  const ScopedFloatMode mode;
  if (parts <= 1 || size_ == 1 || working) {
    run_inline(parts, work);
    return;
  }
  Impl* impl = current_impl();
  impl->turn.begin(impl->watch);
  if (impl->stopped.load(std::memory_order_relaxed)) {
    impl->turn.end();
    run_inline(parts, work);
    return;
  }
  impl->run_job(parts, work);
  impl->turn.end();
}

struct ThreadPool::StopAtExit {
  ThreadPool* pool;
  ~StopAtExit() {
    // exit() inside a part would wait for itself; in a forked child that never used the pool there is nothing to stop.
    Impl* impl = pool->impl_.load(std::memory_order_acquire);
    if (!working && impl->generation == fork_generation.load(std::memory_order_relaxed)) {
      impl->stop();
    }
  }
};

ThreadPool& ThreadPool::instance() {
  // Never deleted: another thread may still call run() while the process exits.
  static ThreadPool* const pool = new ThreadPool(configured_size());
  static const StopAtExit stop_at_exit{pool};
  return *pool;
}

}  // namespace octile::cpu
