// SPDX-License-Identifier: Apache-2.0
// What the passes of a measurement ran under, and which of them are taken again.
#pragma once

#include "octile/kernels/conditions.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace octile {

// Of one pass, as the worker saw it.
struct PassConditions {
  DeviceConditions before;
  DeviceConditions after;
  std::string disturbed;  // Why it must not count; "" where nothing speaks against it.
};
nlohmann::json to_json(const PassConditions& conditions);
PassConditions pass_conditions_from_json(const nlohmann::json& value);

// Of all passes of a measurement. What is not set was not known of any.
struct MeasureConditions {
  int passes = 0;     // That count.
  int repeated = 0;   // That were disturbed and taken again.
  int disturbed = 0;  // That count although they were disturbed, since the repeats were used up.
  std::string why;    // Of the first that was.
  std::optional<int> sm_clock_lo_mhz, sm_clock_hi_mhz;
  std::optional<std::uint64_t> throttle_reasons;          // Of any.
  std::optional<int> other_processes;                     // The most.
  std::optional<std::int64_t> preemptions;                // In all.
  std::optional<double> waited_s, throttled_s, stolen_s;  // In all.

  void add(const PassConditions& pass, bool counts);
  void add(const MeasureConditions& other);
};
nlohmann::json to_json(const MeasureConditions& conditions);
MeasureConditions measure_conditions_from_json(const nlohmann::json& value);
// "12 of 340 passes were disturbed (cores shared with other programs): 10 were taken again, 2 count"; "" where none was.
std::string disturbance_text(const MeasureConditions& conditions);

// Which disturbed passes are taken again: each twice at most, a fifth of all beside the first few, and none while repeats
// are in vain, until a pass is undisturbed again. So a machine that is always busy costs a few passes, and none costs for
// ever.
class RepeatRule {
 public:
  // Told of each pass that was taken; true: it shall be taken again, and does not count.
  bool takes_again(bool is_disturbed) noexcept;

 private:
  int counted_ = 0;
  int repeated_ = 0;
  int attempts_ = 0;  // Of this pass.
  int in_vain_ = 0;   // Repeats in a row that were disturbed as well.
};

}  // namespace octile
