// SPDX-License-Identifier: Apache-2.0
// One pool of threads for the whole process. Its size is OCTILE_NUM_THREADS, or the cores this process may use (affinity and
// cgroup limits respected). run() allocates nothing and takes no lock; idle workers spin briefly, then sleep on a futex.
#pragma once

#include "octile/core/cores.h"

#include <atomic>

namespace octile::cpu {

// A borrowed callable: work(part) for part in [0, parts). It must not throw: an exception that leaves it ends the process.
class PartFunction {
 public:
  template <class F>
  PartFunction(const F& function) noexcept  // NOLINT(google-explicit-constructor)
      : object_(&function), call_([](const void* object, int part) { (*static_cast<const F*>(object))(part); }) {}
  void operator()(int part) const { call_(object_, part); }

 private:
  const void* object_;
  void (*call_)(const void*, int);
};

class ThreadPool {
 public:
  // The process's pool, made at the first call. Its workers end when the process exits or the library is unloaded; run()
  // calls that come later still do their parts, on the calling thread. A process forked from this one gets workers of its
  // own at its first run().
  static ThreadPool& instance();

  // A pool of its own, for tests: `size` threads (at least 1), the caller's included.
  explicit ThreadPool(int size);
  ~ThreadPool();  // Precondition: no run() is in progress.
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return size_; }  // Threads that work, the caller's included: >= 1.
  // Calls work(0), ..., work(parts - 1), each once, on up to size() threads, and returns when all are done. The part ->
  // result mapping never depends on which thread ran it. Concurrent callers are served in turn; a nested call runs inline.
  void run(int parts, PartFunction work);

 private:
  struct Impl;
  struct StopAtExit;

  Impl* current_impl();

  int size_;
  std::atomic<Impl*> impl_;
};

}  // namespace octile::cpu
