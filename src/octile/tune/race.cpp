// SPDX-License-Identifier: Apache-2.0
// The sequential race of one point; see race.h.
#include "octile/tune/race.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace octile {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Giving up early can only lose a win, never make a false one: 10 % for a tile against the family's heuristic, where
// the gain is a few percent, and 1 % against the baseline, where it is what the user tunes for.
constexpr double kGiveUpTailTiles = 0.10;
constexpr double kGiveUpTailBaseline = 0.01;
// Before this many passes nobody is given up: the signed ranks of fewer say too little.
constexpr int kGiveUpFromRound = 7;
// So many passes tell how a witness compares, or what a baseline alone takes, where there is no one to race.
constexpr int kWitnessRounds = 7;

class Race {
 public:
  Race(const RaceOptions& options, const PassFunction& run_pass)
      : options_(options),
        run_pass_(run_pass),
        log_margin_(std::log1p(options.margin)),
        challengers_(options.contenders - 1 - (options.witness > 0 ? 1 : 0)),
        looks_(plan_looks(options.error / 2, std::max(challengers_, 1), options.max_rounds)),
        log_us_(static_cast<std::size_t>(options.contenders)) {
    result_.lanes.resize(static_cast<std::size_t>(options.contenders));
  }

  Expected<RaceResult> run() {
    std::size_t next_look = 0;
    bool decided = false;
    while (!decided && result_.rounds < options_.max_rounds && next_look < looks_.size() && anyone_left()) {
      Expected<bool> go_on = one_pass();
      if (!go_on) {
        return std::move(go_on).error();
      }
      if (!*go_on) {
        break;
      }
      if (result_.rounds == looks_[next_look].rounds) {
        decided = look(looks_[next_look].tail);
        ++next_look;
      } else if (options_.settle_early && result_.rounds >= kGiveUpFromRound) {
        give_up_on_losers();
      }
    }
    if (!decided && next_look < looks_.size() && result_.rounds > 0) {
      // Cut short between two looks: what is left of the error is spent here, once.
      double rest = 0;
      for (std::size_t i = next_look; i < looks_.size(); ++i) {
        rest += looks_[i].tail;
      }
      decided = look(rest);
    }
    finish(decided);
    return std::move(result_);
  }

 private:
  RaceLane& lane(int contender) { return result_.lanes[static_cast<std::size_t>(contender)]; }

  bool challenges(int contender) { return contender != options_.witness && running(contender); }

  bool running(int contender) { return !lane(contender).failed && !lane(contender).dropped; }

  bool anyone_left() {
    if (lane(0).failed) {
      return false;
    }
    for (int c = 1; c < options_.contenders; ++c) {
      if (challenges(c)) {
        return true;
      }
    }
    // Where there is nobody else to begin with, its time is still wanted; where nobody is left but a witness, what it says.
    if (options_.contenders == 1) {
      return result_.rounds < kWitnessRounds;
    }
    return options_.witness > 0 && running(options_.witness) && result_.rounds < kWitnessRounds;
  }

  // False where the race must stop.
  Expected<bool> one_pass() {
    std::vector<int> order;
    for (int c = 0; c < options_.contenders; ++c) {
      if (running(c)) {
        order.push_back(c);
      }
    }
    if (backward_) {
      std::reverse(order.begin(), order.end());
    }
    Expected<Pass> pass = run_pass_(order);
    if (!pass) {
      return std::move(pass).error();
    }
    if (pass->out_of_time) {
      result_.out_of_time = true;
      return false;
    }
    if (pass->failed.has_value()) {
      lane(*pass->failed).failed = true;
      return true;
    }
    for (std::size_t c = 0; c < result_.lanes.size(); ++c) {
      result_.lanes[c].us.push_back(kNaN);
      log_us_[c].push_back(kNaN);
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      lane(order[i]).us.back() = pass->us[i];
      log_us_[static_cast<std::size_t>(order[i])].back() = std::log(pass->us[i]);
    }
    backward_ = !backward_;
    ++result_.rounds;
    return true;
  }

  // log(a's time / b's time) over the passes that both ran in.
  Interval log_ratio(int a, int b, double tail) {
    const std::vector<double>& log_a = log_us_[static_cast<std::size_t>(a)];
    const std::vector<double>& log_b = log_us_[static_cast<std::size_t>(b)];
    std::vector<double> differences;
    differences.reserve(log_a.size());
    for (std::size_t i = 0; i < log_a.size(); ++i) {
      const double difference = log_a[i] - log_b[i];
      if (!std::isnan(difference)) {
        differences.push_back(difference);
      }
    }
    return signed_rank_interval(differences, tail);
  }

  void give_up_on_losers() {
    for (int c = 1; c < options_.contenders; ++c) {
      if (!challenges(c) || lane(c).beats_baseline) {
        continue;
      }
      if (log_ratio(0, c, kGiveUpTailBaseline).hi < log_margin_) {
        lane(c).dropped = true;
      }
    }
    if (options_.heuristic < 1 || !running(options_.heuristic)) {
      return;
    }
    for (int c = 1; c < options_.contenders; ++c) {
      if (c == options_.heuristic || !challenges(c)) {
        continue;
      }
      // What is carried on from a smaller M has only to keep up with the heuristic.
      const double needed = c == options_.carried ? -log_margin_ : log_margin_;
      if (log_ratio(options_.heuristic, c, kGiveUpTailTiles).hi < needed) {
        lane(c).dropped = true;
      }
    }
  }

  // Evaluates every comparison at `tail` (already divided by the number of challengers); true where nothing is open.
  bool look(double tail) {
    tail_ = tail;
    prove_against_baseline(tail);
    if (options_.settle_early) {
      give_up_on_losers();
    }
    return choose(tail);
  }

  // Holm: once a hypothesis is rejected, the others share its error. Strongest first, by step-down over the sorted lower
  // bounds.
  void prove_against_baseline(double tail) {
    bool changed = true;
    while (changed) {
      changed = false;
      int proven = 0;
      for (int c = 1; c < options_.contenders; ++c) {
        proven += lane(c).beats_baseline ? 1 : 0;
      }
      const double holm_tail = tail * challengers_ / std::max(challengers_ - proven, 1);
      for (int c = 1; c < options_.contenders; ++c) {
        if (challenges(c) && !lane(c).beats_baseline && log_ratio(0, c, holm_tail).lo > log_margin_) {
          lane(c).beats_baseline = true;
          changed = true;
          break;
        }
      }
    }
  }

  bool eligible(int contender) { return contender >= 1 && running(contender) && lane(contender).beats_baseline; }

  // Sets the winner as the data stand; true where no comparison that could change it is open.
  bool choose(double tail) {
    bool open = false;
    for (int c = 1; c < options_.contenders; ++c) {
      open = open || (challenges(c) && !lane(c).beats_baseline);
    }
    const int heuristic = options_.heuristic;
    if (!eligible(heuristic)) {
      result_.winner = fastest_eligible();
      return !open;
    }
    // The heuristic beats the baseline: a challenger has to beat the heuristic, too.
    int winner = heuristic;
    double best = 0;
    bool challengers_open = false;
    for (int c = 1; c < options_.contenders; ++c) {
      if (c == heuristic || !challenges(c)) {
        continue;
      }
      const Interval gain = log_ratio(heuristic, c, tail);
      if (gain.lo > log_margin_ && lane(c).beats_baseline) {
        if (gain.mid > best) {
          best = gain.mid;
          winner = c;
        }
      } else if (gain.hi > log_margin_) {
        challengers_open = true;
      }
    }
    const int carried = options_.carried;
    if (carried >= 1 && carried != winner && eligible(carried)) {
      const Interval kept = log_ratio(winner, carried, tail);
      if (kept.lo > -log_margin_) {
        winner = carried;
      } else if (kept.hi > -log_margin_) {
        challengers_open = true;
      }
    }
    result_.winner = winner;
    return !challengers_open;
  }

  int fastest_eligible() {
    int winner = 0;
    double best = 0;
    for (int c = 1; c < options_.contenders; ++c) {
      if (!eligible(c)) {
        continue;
      }
      const double gain = log_ratio(0, c, 0.5).mid;
      if (winner == 0 || gain > best) {
        winner = c;
        best = gain;
      }
    }
    return winner;
  }

  void finish(bool decided) {
    result_.undecided = !decided && anyone_left();
    for (int c = 0; c < options_.contenders; ++c) {
      RaceLane& l = lane(c);
      std::vector<double> times;
      for (std::size_t i = 0; i < l.us.size(); ++i) {
        if (!std::isnan(l.us[i])) {
          times.push_back(l.us[i]);
          l.rounds += std::isnan(lane(0).us[i]) ? 0 : 1;
        }
      }
      if (times.empty()) {
        continue;
      }
      l.median_us = median(times);
      const Interval log_interval = log_ratio(0, c, tail_ > 0 ? tail_ : options_.error / 2);
      l.ratio = {std::exp(log_interval.mid), std::exp(log_interval.lo), std::exp(log_interval.hi)};
    }
    if (result_.winner > 0 && lane(result_.winner).failed) {
      result_.winner = 0;
    }
  }

  const RaceOptions& options_;
  const PassFunction& run_pass_;
  const double log_margin_;
  const int challengers_;
  const std::vector<Look> looks_;
  std::vector<std::vector<double>> log_us_;  // As RaceLane::us.
  double tail_ = 0;                          // Of the last look.
  bool backward_ = false;
  RaceResult result_;
};

}  // namespace

Expected<RaceResult> race(const RaceOptions& options, const PassFunction& run_pass) {
  if (options.contenders < 1 || options.max_rounds < 1) {
    return Error{ErrorCode::invalid_argument, "race: wanted at least one contender and one round"};
  }
  return Race(options, run_pass).run();
}

LaneComparison compare_lanes(const RaceLane& other, const RaceLane& lane) {
  std::vector<double> other_us;
  std::vector<double> lane_us;
  for (std::size_t i = 0; i < std::min(other.us.size(), lane.us.size()); ++i) {
    if (!std::isnan(other.us[i]) && !std::isnan(lane.us[i])) {
      other_us.push_back(other.us[i]);
      lane_us.push_back(lane.us[i]);
    }
  }
  return other_us.empty() ? LaneComparison{} : LaneComparison{median(other_us), paired_ratio_95(other_us, lane_us)};
}

}  // namespace octile
