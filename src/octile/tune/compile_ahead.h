// SPDX-License-Identifier: Apache-2.0
// Kernels of a run compiled on all cores at once before it measures: one at a time, between measurements, compiling would
// take most of a budget, and from some points more than their share.
#pragma once

#include "octile/kernels/family.h"
#include "octile/tune/run_options.h"
#include "octile/tune/session.h"

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace octile {

// Kernels that are compiled before it is looked again whether time is left, where the process may use so many cores.
std::size_t compile_batch_size(int cores) noexcept;

class CompileAhead {
 public:
  // `report` is called before each batch.
  CompileAhead(Session& session, std::function<void()> report);
  // False once a fifth of what was left of the budget is spent, or the run has ended: what is left is compiled where it is
  // measured.
  bool goes_on() const;
  // Each kernel counts once. Compiles where a batch is full. An Error is of the session, as of Session::compile_ahead.
  Expected<void> add(const TuneShape& shape, const KernelFamily& family, const TileConfig& config);
  // Compiles what waits.
  Expected<void> finish();

 private:
  Session& session_;
  double enough_s_;
  std::size_t batch_size_;
  std::function<void()> report_;
  std::set<std::string> known_;
  std::vector<CompileItem> waiting_;
};

}  // namespace octile
