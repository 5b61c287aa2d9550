// SPDX-License-Identifier: Apache-2.0
// Cliffs in a curve of times over M: steps up that M does not explain, and stretches where a larger M takes less time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

struct CurvePoint {
  std::int64_t m = 0;
  double us = 0;
  std::string kernel;
};

struct Cliff {
  enum class Kind {
    step,       // From `from` to `to`, the next measured M, the time grows by more than a tenth beyond what M explains.
    inversion,  // `from` takes more than a tenth longer than the larger `to`.
  };
  Kind kind = Kind::step;
  CurvePoint from, to;
  double ratio = 0;  // step: to / from; inversion: from / to.
};

// What a step may be beside the growth of M itself: 1 between neighbours, the ratio of M where Ms in between were left out.
inline constexpr double kCliffMargin = 0.10;

// Of points with ascending, distinct M and times > 0, the largest ratios first. Of neighbouring inversions over the same
// larger M the worst is listed.
std::vector<Cliff> find_cliffs(const std::vector<CurvePoint>& curve);
// "from M = 64 (12.1 us, a) to 65 (16.0 us, b): 1.32x"
std::string describe(const Cliff& cliff);

}  // namespace octile
