// SPDX-License-Identifier: Apache-2.0
// Signed-rank intervals and the schedule of looks; see statistics.h.
#include "octile/tune/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>

namespace octile {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rounds at which a test looks, and the share of its error that each look may spend. The first look is early and rich:
// kernels that differ by 1.3x and more are the common case, and there every round beyond the seventh is wasted time.
struct Stage {
  int rounds;
  double share;
};
// The shares add up to 0.95: the last look, wherever it is, always has something to spend.
constexpr std::array<Stage, 7> kStages{{{7, 0.32}, {10, 0.16}, {14, 0.13}, {20, 0.11}, {28, 0.09}, {40, 0.08}, {56, 0.06}}};

// P(W = s) of Wilcoxon's W of n differences without ties, for s = 0, 1, ..., n (n + 1) / 2; built up one rank at a time.
std::vector<double> signed_rank_distribution(int n) {
  const auto top = static_cast<std::size_t>(n) * (static_cast<std::size_t>(n) + 1) / 2;
  std::vector<double> probability(top + 1, 0.0);
  probability[0] = 1.0;
  std::size_t reached = 0;
  for (std::size_t rank = 1; rank <= static_cast<std::size_t>(n); ++rank) {
    reached += rank;
    for (std::size_t sum = reached + 1; sum-- > 0;) {
      const double with_rank = sum >= rank ? probability[sum - rank] : 0.0;
      probability[sum] = 0.5 * (probability[sum] + with_rank);
    }
  }
  return probability;
}

// Largest c with P(W <= c) <= tail; -1 where even c = 0 is too likely.
int signed_rank_quantile(int n, double tail) {
  // A race asks again and again for the same few n.
  static thread_local std::map<int, std::vector<double>> distributions;
  const auto [found, is_new] = distributions.try_emplace(n);
  if (is_new) {
    found->second = signed_rank_distribution(n);
  }
  double cumulative = 0;
  int quantile = -1;
  for (const double probability : found->second) {
    cumulative += probability;
    if (cumulative > tail) {
      break;
    }
    ++quantile;
  }
  return quantile;
}

// Student's t at 97.5 % for 1 to 4 degrees of freedom: below 6 pairs signed ranks reach no 95 %.
constexpr std::array<double, 4> kStudent975{12.706, 4.303, 3.182, 2.776};

Interval student_interval_95(std::span<const double> differences) {
  const auto n = static_cast<double>(differences.size());
  double mean = 0;
  for (const double d : differences) {
    mean += d / n;
  }
  double squares = 0;
  for (const double d : differences) {
    squares += (d - mean) * (d - mean);
  }
  const double half = kStudent975.at(differences.size() - 2) * std::sqrt(squares / (n - 1) / n);
  return {mean, mean - half, mean + half};
}

}  // namespace

double median(std::span<const double> values) {
  if (values.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

Interval signed_rank_interval(std::span<const double> differences, double tail) {
  const std::size_t n = differences.size();
  if (n == 0) {
    return {std::numeric_limits<double>::quiet_NaN(), -kInfinity, kInfinity};
  }
  std::vector<double> means;
  means.reserve(n * (n + 1) / 2);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) {
      means.push_back(0.5 * (differences[i] + differences[j]));
    }
  }
  // Order statistics by selection: sorting the means took four fifths of a race's time.
  const auto at = [&](std::size_t rank) {
    std::nth_element(means.begin(), means.begin() + static_cast<std::ptrdiff_t>(rank), means.end());
    return means[rank];
  };
  const std::size_t last = means.size() - 1;
  Interval interval{0.5 * (at(last / 2) + at(last - last / 2)), -kInfinity, kInfinity};
  const int quantile = signed_rank_quantile(static_cast<int>(n), tail);
  if (quantile >= 0) {
    interval.lo = at(static_cast<std::size_t>(quantile));
    interval.hi = at(last - static_cast<std::size_t>(quantile));
  }
  return interval;
}

Interval paired_ratio_95(std::span<const double> numerator_us, std::span<const double> denominator_us) {
  std::vector<double> differences(std::min(numerator_us.size(), denominator_us.size()));
  for (std::size_t i = 0; i < differences.size(); ++i) {
    differences[i] = std::log(numerator_us[i]) - std::log(denominator_us[i]);
  }
  const Interval log_interval =
      differences.size() < 6 ? student_interval_95(differences) : signed_rank_interval(differences, 0.025);
  return {std::exp(log_interval.mid), std::exp(log_interval.lo), std::exp(log_interval.hi)};
}

std::vector<Look> plan_looks(double tail, int comparisons, int max_rounds) {
  const double total = tail / std::max(comparisons, 1);
  std::vector<Look> looks;
  double saved = 0;  // Shares of looks that were left out.
  double spent = 0;
  for (const Stage& stage : kStages) {
    if (stage.rounds >= max_rounds) {
      break;
    }
    saved += stage.share;
    if (std::ldexp(1.0, -stage.rounds) <= total * saved) {
      looks.push_back({stage.rounds, total * saved});
      spent += total * saved;
      saved = 0;
    }
  }
  if (std::ldexp(1.0, -max_rounds) <= total - spent) {
    looks.push_back({max_rounds, total - spent});
  }
  return looks;
}

int fewest_rounds(double tail, int comparisons) {
  return plan_looks(tail, comparisons, kStages.back().rounds).front().rounds;
}

}  // namespace octile
