// SPDX-License-Identifier: Apache-2.0
// Sums, JSON and the rule of repeats; see conditions.h.
#include "octile/tune/conditions.h"

#include "octile/core/format.h"
#include "octile/kernels/grown_by.h"
#include "octile/tune/protocol.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>

namespace octile {

using nlohmann::json;

namespace {

constexpr int kRepeatsOfAPass = 2;
// Repeats that the first disturbances get, whatever the share.
constexpr int kFreeRepeats = 3;
constexpr int kPassesForARepeat = 5;
constexpr int kInVain = 3;

// Null where it is not known.
template <class T>
json known(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

template <class T>
std::optional<T> known_from(const json& value, const char* name) {
  const json item = value.is_object() ? value.value(name, json()) : json();
  return item.is_number() ? std::optional<T>(item.get<T>()) : std::nullopt;
}

template <class T, class Join>
void join_known(std::optional<T>& sum, const std::optional<T>& value, Join both) {
  if (value) {
    sum = sum ? both(*sum, *value) : *value;
  }
}

// What one moment and a whole measurement both have, in `json` under the same names.
template <class Conditions>
void write_shared(const Conditions& c, json& value) {
  value["throttle_reasons"] = known(c.throttle_reasons);
  value["other_processes"] = known(c.other_processes);
  value["preemptions"] = known(c.preemptions);
  value["waited_s"] = known(c.waited_s);
  value["throttled_s"] = known(c.throttled_s);
  value["stolen_s"] = known(c.stolen_s);
}

template <class Conditions>
void read_shared(const json& value, Conditions& c) {
  c.throttle_reasons = known_from<std::uint64_t>(value, "throttle_reasons");
  c.other_processes = known_from<int>(value, "other_processes");
  c.preemptions = known_from<std::int64_t>(value, "preemptions");
  c.waited_s = known_from<double>(value, "waited_s");
  c.throttled_s = known_from<double>(value, "throttled_s");
  c.stolen_s = known_from<double>(value, "stolen_s");
}

json to_json(const DeviceConditions& c) {
  json value{{"sm_clock_mhz", known(c.sm_clock_mhz)}};
  write_shared(c, value);
  return value;
}

DeviceConditions device_conditions_from_json(const json& value) {
  DeviceConditions c;
  c.sm_clock_mhz = known_from<int>(value, "sm_clock_mhz");
  read_shared(value, c);
  return c;
}

}  // namespace

json to_json(const PassConditions& conditions) {
  return {{"before", to_json(conditions.before)}, {"after", to_json(conditions.after)}, {"disturbed", conditions.disturbed}};
}

PassConditions pass_conditions_from_json(const json& value) {
  PassConditions pass;
  if (value.is_object()) {
    pass.before = device_conditions_from_json(value.value("before", json()));
    pass.after = device_conditions_from_json(value.value("after", json()));
    pass.disturbed = json_get(value, "disturbed", std::string());
  }
  return pass;
}

void MeasureConditions::add(const PassConditions& pass, bool counts) {
  MeasureConditions one;
  (counts ? one.passes : one.repeated) = 1;
  one.disturbed = counts && !pass.disturbed.empty() ? 1 : 0;
  one.why = pass.disturbed;
  for (const DeviceConditions* moment : {&pass.before, &pass.after}) {
    join_known(one.sm_clock_lo_mhz, moment->sm_clock_mhz, [](int a, int b) { return std::min(a, b); });
    join_known(one.sm_clock_hi_mhz, moment->sm_clock_mhz, [](int a, int b) { return std::max(a, b); });
    join_known(one.throttle_reasons, moment->throttle_reasons, std::bit_or{});
    join_known(one.other_processes, moment->other_processes, [](int a, int b) { return std::max(a, b); });
  }
  one.preemptions = grown_by(pass.before.preemptions, pass.after.preemptions);
  one.waited_s = grown_by(pass.before.waited_s, pass.after.waited_s);
  one.throttled_s = grown_by(pass.before.throttled_s, pass.after.throttled_s);
  one.stolen_s = grown_by(pass.before.stolen_s, pass.after.stolen_s);
  add(one);
}

void MeasureConditions::add(const MeasureConditions& other) {
  passes += other.passes;
  repeated += other.repeated;
  disturbed += other.disturbed;
  why = why.empty() ? other.why : why;
  join_known(sm_clock_lo_mhz, other.sm_clock_lo_mhz, [](int a, int b) { return std::min(a, b); });
  join_known(sm_clock_hi_mhz, other.sm_clock_hi_mhz, [](int a, int b) { return std::max(a, b); });
  join_known(throttle_reasons, other.throttle_reasons, std::bit_or{});
  join_known(other_processes, other.other_processes, [](int a, int b) { return std::max(a, b); });
  join_known(preemptions, other.preemptions, std::plus{});
  join_known(waited_s, other.waited_s, std::plus{});
  join_known(throttled_s, other.throttled_s, std::plus{});
  join_known(stolen_s, other.stolen_s, std::plus{});
}

json to_json(const MeasureConditions& c) {
  json value{{"passes", c.passes},
             {"repeated", c.repeated},
             {"disturbed", c.disturbed},
             {"why", c.why},
             {"sm_clock_lo_mhz", known(c.sm_clock_lo_mhz)},
             {"sm_clock_hi_mhz", known(c.sm_clock_hi_mhz)}};
  write_shared(c, value);
  return value;
}

MeasureConditions measure_conditions_from_json(const json& value) {
  MeasureConditions c;
  c.passes = json_get(value, "passes", 0);
  c.repeated = json_get(value, "repeated", 0);
  c.disturbed = json_get(value, "disturbed", 0);
  c.why = json_get(value, "why", std::string());
  c.sm_clock_lo_mhz = known_from<int>(value, "sm_clock_lo_mhz");
  c.sm_clock_hi_mhz = known_from<int>(value, "sm_clock_hi_mhz");
  read_shared(value, c);
  return c;
}

std::string disturbance_text(const MeasureConditions& c) {
  if (c.repeated + c.disturbed == 0) {
    return {};
  }
  return format("{} of {} passes were disturbed ({}): {} taken again, {} counted all the same", c.repeated + c.disturbed,
                c.repeated + c.passes, c.why, c.repeated, c.disturbed);
}

bool RepeatRule::takes_again(bool is_disturbed) noexcept {
  const bool is_repeat = attempts_ > 0;
  if (is_disturbed) {
    in_vain_ += is_repeat ? 1 : 0;
    const bool may =
        attempts_ < kRepeatsOfAPass && repeated_ < kFreeRepeats + counted_ / kPassesForARepeat && in_vain_ < kInVain;
    if (may) {
      ++attempts_;
      ++repeated_;
      return true;
    }
  } else {
    in_vain_ = 0;
  }
  attempts_ = 0;
  ++counted_;
  return false;
}

}  // namespace octile
