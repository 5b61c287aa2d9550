// SPDX-License-Identifier: Apache-2.0
// A device that exists in the tests only: right results from the reference, times from a simulated clock, and faults on
// order. A scenario is a text, so that a worker process can be given the same device by its arguments.
#pragma once

#include "octile/kernels/backend.h"

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace octile::test {

// Items separated by commas; V is the value of "v" in a config of the family "fake_tile" (its space is v = 0..4, its
// heuristic v = 0), B stands for the baseline family "fake_vendor".
//   ratio:V:R       config V runs R times as fast as the baseline (default 1)
//   ratio:V:R@M     ... from that M on
//   warm:V:R        config V runs R times as fast where its weight is among the last used that fit the cache
//   abort:V hang:V wrong:V unwritten:V guard:V workspace:V error:V throw:V    what the first run does
//   abort_timed:V hang_timed:V error_timed:V                                  what a later run does
//   pack_abort      packing for the tiles aborts
//   novendor        no baseline family
//   algorithms:N    beside its own choice the vendor has v = 1..N, of which the other words speak as A1 to AN
//   field           the tiles' family has the name and the keys of the field's table format; all its configs are V = 0
//   noise:X         relative noise of every time (default 0.01)
//   cost:X          multiplies all simulated times
//   prepare:V:S     to prepare config V takes S seconds of the simulated time, the first time
//   sleep:MS        every run really sleeps
//   seed:N          of the noise
//   gone:ID:FILE    once FILE exists, the device ID cannot be found and what runs on it aborts
//   sms:ID:N        the device ID has N multiprocessors (default 1)
//   compiles:FILE   the device is a GPU as far as anyone asks, and its kernels are compiled: FILE gets a line each of
//                   "compiling N V", "compiled N V" and, where it is made ready to run, "prepared N V"
//   compile_waits:N:FILE  compilers of kernels for N channels wait until FILE exists
//   compile_abort:V       the compiler aborts at config V
//   throttle:R:A:B  from look A to look B at its conditions the device gives the throttle reasons R (two looks a pass); with
//                   this word it has a clock of 1980 MHz
struct Scenario {
  struct Speed {
    std::int64_t from_m = 1;
    double ratio = 1;
  };
  std::map<std::string, std::vector<Speed>> speeds;
  std::map<std::string, double> warm_ratios;
  std::map<std::string, std::string> faults;
  bool has_vendor = true;
  bool pack_aborts = false;
  bool has_field_tiles = false;
  double noise = 0.01;
  double cost = 1;
  int sleep_ms = 0;
  std::map<std::string, double> prepare_s;
  std::int64_t algorithms = 0;
  std::uint64_t seed = 1;
  std::map<std::string, std::string> gone;  // Device -> file.
  std::map<std::string, int> sm_counts;
  std::string compile_log;                            // Empty: nothing is compiled.
  std::map<std::int64_t, std::string> compile_waits;  // Channels -> file.
  struct Throttling {
    std::uint64_t reasons = 0;
    std::int64_t first_look = 0, last_look = 0;
  };
  std::vector<Throttling> throttling;
};
// Aborts with a message for a word it does not know: a test's own mistake.
Scenario parse_scenario(std::string_view text);

class SimulatedBackend final : public Backend {
 public:
  explicit SimulatedBackend(const Scenario& scenario);
  ~SimulatedBackend() override;

  DeviceInfo info() const;
  // There are "fake", "fake1" to "fake7", all alike. What runs from now on runs on the one that was found last.
  Expected<Device> find(std::string_view id) const;
  double now_s() const;            // The simulated clock.
  void advance_s(double seconds);  // Lets simulated time pass.
  std::int64_t runs() const;       // Kernel runs so far.
  // Simulated microseconds of one call without noise: "B" or a value of "v".
  double true_us(const std::string& who, std::int64_t n, std::int64_t k, std::int64_t m) const;

  DeviceKind kind() const noexcept override { return DeviceKind::cpu; }
  std::vector<DeviceInfo> devices() const override { return {info()}; }
  std::span<const KernelFamily* const> families() const noexcept override { return family_pointers_; }
  std::vector<VendorStatus> vendors(const DeviceInfo& device) const override;
  const KernelFamily* baseline(const DeviceInfo& device, const Problem& problem) const override;
  Expected<std::shared_ptr<PackedWeight>> pack(const DeviceInfo& device, std::string_view layout,
                                               const WeightSource& source) const override;
  Expected<std::unique_ptr<Kernel>> prepare_stream_floor(const DeviceInfo& device) const override;
  Expected<BareVendor> prepare_bare_vendor(const DeviceInfo& device, const Problem& problem,
                                           std::int64_t max_m) const override;
  Expected<std::unique_ptr<DeviceBuffer>> allocate(const DeviceInfo& device, std::int64_t bytes) const override;
  Expected<void> upload(const DeviceInfo& device, void* destination, const void* source, std::int64_t bytes) const override;
  Expected<void> download(const DeviceInfo& device, void* destination, const void* source,
                          std::int64_t bytes) const override;
  DeviceConditions conditions(const DeviceInfo& device) const override;
  WarmupResult warm_up(const DeviceInfo& device, std::span<const WarmupItem> items,
                       const WarmupOptions& options) const override;
  Expected<std::unique_ptr<TimedSequence>> make_sequence(const DeviceInfo& device,
                                                         std::vector<TimedCall> calls) const override;

  struct State;

 private:
  std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<KernelFamily>> families_;
  std::vector<const KernelFamily*> family_pointers_;
};

}  // namespace octile::test
