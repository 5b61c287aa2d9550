// SPDX-License-Identifier: Apache-2.0
// Kernels of a run compiled on many cores at once before they are needed: one at a time, between measurements, compiling
// would take most of a budget, and from some points more than their share.
#pragma once

#include "octile/kernels/family.h"
#include "octile/tune/measure.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/session.h"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace octile {

// Of the budget: no longer is waited for compilers. What is not there then is compiled where it is measured.
inline constexpr double kShareForCompiling = 0.2;

// Each kernel once, in the order in which they were added.
class CompileList {
 public:
  void add(const TuneShape& shape, const KernelFamily& family, const TileConfig& config);
  std::span<const CompileItem> items() const noexcept { return items_; }

 private:
  std::set<std::string> known_;
  std::vector<CompileItem> items_;
};

// Compiles in a worker process of its own, so that devices measure meanwhile and a compiler that crashes is nobody's fault.
// Its thread is one of those that take turns: everything but the destructor is called with the turn held.
class CompileAhead {
 public:
  struct Links {
    std::mutex* turn = nullptr;                  // As SessionLinks::turn.
    std::condition_variable* changed = nullptr;  // Notified as kernels come, and once no more will.
    double start_s = 0;                          // As SessionLinks::start_s.
  };
  // On the host of options.device; no compiler takes `spare_cores` there.
  CompileAhead(const RunOptions& options, const RunHooks& hooks, const MeasureSettings& settings, const Links& links,
               int spare_cores);
  // Whatever is still compiling is given up. Not with the turn held.
  ~CompileAhead();
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;

  // What comes after all that was added before.
  void add(const TuneShape& shape, const KernelFamily& family, const TileConfig& config);
  std::size_t added() const noexcept { return list_.items().size(); }
  // The first `count` that were added are compiled, as far as they ever will be.
  bool has(std::size_t count) const noexcept { return is_over_ || compiled_ >= count; }

 private:
  void run();
  Expected<void> compile(std::unique_lock<std::mutex>& lock);

  RunOptions options_;
  RunHooks hooks_;
  MeasureSettings settings_;
  Links links_;
  int spare_cores_;
  int stop_fd_;  // An eventfd.
  CompileList list_;
  std::size_t compiled_ = 0;
  bool is_stopping_ = false;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace octile
