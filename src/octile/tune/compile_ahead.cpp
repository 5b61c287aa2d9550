// SPDX-License-Identifier: Apache-2.0
// Batches of kernels to compile; see compile_ahead.h.
#include "octile/tune/compile_ahead.h"

#include "octile/core/format.h"
#include "octile/tune/point.h"

#include <cstddef>
#include <utility>

namespace octile {

namespace {

constexpr std::size_t kAtOnce = 64;
constexpr double kShareOfBudget = 0.2;

}  // namespace

CompileAhead::CompileAhead(Session& session, std::function<void()> report)
    : session_(session), enough_s_(session.elapsed_s() + kShareOfBudget * session.left_s()), report_(std::move(report)) {}

bool CompileAhead::goes_on() const { return session_.elapsed_s() < enough_s_ && !session_.ended(); }

Expected<void> CompileAhead::add(const TuneShape& shape, const KernelFamily& family, const TileConfig& config) {
  if (!known_.insert(format("{}{} {}", place_of(shape), family.name(), config.to_json())).second) {
    return {};
  }
  CandidateSpec spec;
  spec.kernel = family.name();
  spec.config = config;
  waiting_.push_back({shape.n, shape.k, std::move(spec)});
  return waiting_.size() < kAtOnce ? Expected<void>() : finish();
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
