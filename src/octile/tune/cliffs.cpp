// SPDX-License-Identifier: Apache-2.0
// Finding cliffs; see cliffs.h.
#include "octile/tune/cliffs.h"

#include "octile/core/format.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace octile {

namespace {

double explained_growth(const CurvePoint& from, const CurvePoint& to) {
  return to.m == from.m + 1 ? 1.0 : static_cast<double>(to.m) / static_cast<double>(from.m);
}

}  // namespace

std::vector<Cliff> find_cliffs(const std::vector<CurvePoint>& curve) {
  std::vector<Cliff> cliffs;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const double ratio = curve[i].us / curve[i - 1].us;
    if (ratio > (1 + kCliffMargin) * explained_growth(curve[i - 1], curve[i])) {
      cliffs.push_back({Cliff::Kind::step, curve[i - 1], curve[i], ratio});
    }
  }
  // From the right: the fastest of all larger M.
  const CurvePoint* fastest = nullptr;
  for (std::size_t i = curve.size(); i-- > 0;) {
    const CurvePoint& point = curve[i];
    if (fastest != nullptr && point.us > (1 + kCliffMargin) * fastest->us) {
      const Cliff cliff{Cliff::Kind::inversion, point, *fastest, point.us / fastest->us};
      const bool continues = !cliffs.empty() && cliffs.back().kind == Cliff::Kind::inversion &&
                             cliffs.back().to.m == fastest->m && i + 1 < curve.size() &&
                             curve[i + 1].us > (1 + kCliffMargin) * fastest->us;
      if (!continues) {
        cliffs.push_back(cliff);
      } else if (cliff.ratio > cliffs.back().ratio) {
        cliffs.back() = cliff;
      }
    }
    if (fastest == nullptr || point.us < fastest->us) {
      fastest = &point;
    }
  }
  std::ranges::stable_sort(cliffs, std::greater{}, &Cliff::ratio);
  return cliffs;
}

std::string describe(const Cliff& cliff) {
  if (cliff.kind == Cliff::Kind::step) {
    return format("from M = {} ({:.2f} us, {}) to M = {} ({:.2f} us, {}): {:.2f}x", cliff.from.m, cliff.from.us,
                  cliff.from.kernel, cliff.to.m, cliff.to.us, cliff.to.kernel, cliff.ratio);
  }
  return format("M = {} ({:.2f} us, {}) takes {:.2f}x as long as M = {} ({:.2f} us, {})", cliff.from.m, cliff.from.us,
                cliff.from.kernel, cliff.ratio, cliff.to.m, cliff.to.us, cliff.to.kernel);
}

}  // namespace octile
