// SPDX-License-Identifier: Apache-2.0
// Batches of kernels to compile; see compile_ahead.h.
#include "octile/tune/compile_ahead.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/cores.h"
#include "octile/tune/point.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace octile {

namespace {

// A batch ends when its slowest kernel is there, 1 to 2 s behind most: 12 batches of 64 took 28 s on 16 cores where the
// compilers' own time is 7. So a batch keeps every core busy for about 3 s, after which it is seen whether time is left.
constexpr std::size_t kAtLeast = 64;
constexpr std::size_t kOfCore = 24;
constexpr int kMostCores = 64;  // compile_all()'s threads.
constexpr double kShareOfBudget = 0.2;

}  // namespace

std::size_t compile_batch_size(int cores) noexcept {
  return std::max(kAtLeast, kOfCore * static_cast<std::size_t>(std::clamp(cores, 0, kMostCores)));
}

CompileAhead::CompileAhead(Session& session, std::function<void()> report)
    : session_(session),
      enough_s_(session.elapsed_s() + kShareOfBudget * session.left_s()),
      batch_size_(compile_batch_size(cpu::usable_cores())),
      report_(std::move(report)) {}

bool CompileAhead::goes_on() const { return session_.elapsed_s() < enough_s_ && !session_.ended(); }

Expected<void> CompileAhead::add(const TuneShape& shape, const KernelFamily& family, const TileConfig& config) {
  if (!known_.insert(format("{}{} {}", place_of(shape), family.name(), config.to_json())).second) {
    return {};
  }
  CandidateSpec spec;
  spec.kernel = family.name();
  spec.config = config;
  waiting_.push_back({shape.n, shape.k, std::move(spec)});
  return waiting_.size() < batch_size_ ? Expected<void>() : finish();
}

Expected<void> CompileAhead::finish() {
  if (waiting_.empty()) {
    return {};
  }
  report_();
  const std::vector<CompileItem> batch = std::exchange(waiting_, {});
  return session_.compile_ahead(batch);
}

}  // namespace octile
