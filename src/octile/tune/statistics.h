// SPDX-License-Identifier: Apache-2.0
// Statistics of paired timings, in plain code: intervals that hold for any symmetric noise, and how an error rate is spread
// over several looks at growing data. Nothing here knows what is timed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octile {

// An estimate with its interval. Bounds are infinite where the data cannot support the level asked for.
struct Interval {
  double mid = 0;
  double lo = 0;
  double hi = 0;
};

// Median of a copy; NaN for no values.
double median(std::span<const double> values);

// Centre of `differences` by Wilcoxon's signed ranks: the Hodges-Lehmann estimate (median of the pairwise means) and the
// interval that misses the centre with probability at most `tail` on each side. Exact for every symmetric distribution of
// independent differences, however heavy its tails. The difference of two logarithms of times under the same noise is
// symmetric. Needs 2^-n <= tail, else the bounds are infinite.
Interval signed_rank_interval(std::span<const double> differences, double tail);

// exp() of the interval of log(numerator) - log(denominator), pair by pair, at 95 %: signed ranks from 6 pairs on,
// Student's t for 2 to 5. Precondition: equal sizes of at least 2, positive times.
Interval paired_ratio_95(std::span<const double> numerator_us, std::span<const double> denominator_us);

// A look at the data after `rounds` rounds, which may err with probability `tail` on each side for each hypothesis.
struct Look {
  int rounds = 0;
  double tail = 0;
};

// Spreads `tail` over looks at growing numbers of rounds, so that a test that stops at the first look to reject errs with
// probability at most `tail` in total (the tails add up to it: Bonferroni over looks, no assumption on their dependence).
// `comparisons` hypotheses share it. A look that no data could pass (2^-rounds above its share) is left out and its share
// goes to the next. The last look is at `max_rounds`; nothing is planned where max_rounds is too few to pass any look.
std::vector<Look> plan_looks(double tail, int comparisons, int max_rounds);

// Fewest rounds after which plan_looks() has a look for so many comparisons.
int fewest_rounds(double tail, int comparisons);

}  // namespace octile
