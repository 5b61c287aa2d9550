// SPDX-License-Identifier: Apache-2.0
// One pool of threads for the whole process. Its size is OCTILE_NUM_THREADS, or the cores this process may use (affinity and
// cgroup limits respected). run() allocates nothing and takes no lock; idle workers spin briefly, then sleep on a futex.
#pragma once

namespace octile::cpu {

// A borrowed callable: work(part) for part in [0, parts).
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
  static ThreadPool& instance();

  int size() const noexcept;  // Threads that work, the caller's included: >= 1.
  // Calls work(0), ..., work(parts - 1), each once, on up to size() threads, and returns when all are done. The part ->
  // result mapping never depends on which thread ran it. Concurrent callers are served in turn; a nested call runs inline.
  void run(int parts, PartFunction work);

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

 private:
  ThreadPool();
  ~ThreadPool();
  struct Impl;
  Impl* impl_;
};

// The cores this process may use: affinity mask and cgroup v1/v2 quota, at least 1.
int usable_cores();

}  // namespace octile::cpu
