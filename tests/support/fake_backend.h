// SPDX-License-Identifier: Apache-2.0
// A backend whose kernels compute the contract in plain code, and whose families are what a test says: for look-up rules and
// for failures that real kernels do not show on demand.
#pragma once

#include "octile/kernels/backend.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace octile::test {

// Ours multiplies the sum by the weight's scale first, as the contract says, a vendor's by the activation's, so that their
// bits differ.
class FakeFamily final : public KernelFamily {
 public:
  struct Prepared {
    TileConfig config;
    std::int64_t max_m = 0;
  };
  struct Launch {
    TileConfig config;
    std::int64_t m = 0;
    bool raw = false;
  };

  std::string its_name = "fake";
  std::string its_layout = "packed";
  bool vendor = false;
  std::string its_version;
  std::string its_hash = "hash-of-fake";
  std::optional<std::string> unavailable;
  double us_per_row = 1.0;
  std::int64_t largest_tile = 256;           // Of the one config key, "tile".
  std::optional<std::int64_t> held_up_to_m;  // The largest M at which it keeps to a limit of multiprocessors; none: never.
  bool batch_invariant = true;               // Whether check() takes a problem that asks for it.
  std::optional<Error> prepare_error;
  std::optional<Error> run_error;
  std::vector<TileConfig> more_space;                       // After the heuristic's.
  std::function<TileConfig(std::int64_t m)> its_heuristic;  // Default: tile = min(m, largest_tile); a vendor's: empty.

  std::vector<Prepared> prepared() const;
  std::vector<Launch> launches() const;
  void record(Launch launch) const;
  void clear();

  std::string_view name() const noexcept override { return its_name; }
  bool is_vendor() const noexcept override { return vendor; }
  std::string version() const override { return its_version; }
  std::string source_hash() const override { return its_hash; }
  Expected<void> available(const DeviceInfo& device) const override;
  std::string_view layout() const noexcept override { return its_layout; }
  Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const override;
  Expected<void> check_sm_limit(const Problem& problem, const TileConfig& config, std::int64_t max_m) const override;
  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override;
  TileConfig heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override;
  double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                    const TileConfig& config) const override;
  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                            std::int64_t max_m) const override;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<Prepared> prepared_;
  mutable std::vector<Launch> launches_;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(DeviceKind kind = DeviceKind::cpu);

  FakeFamily& add(std::string name, std::string layout = "packed");
  FakeFamily& add_vendor(std::string name, std::string layout = "vendor_layout");
  const FakeFamily* its_baseline = nullptr;
  DeviceInfo info;
  std::vector<VendorStatus> its_vendors;
  Device device() const { return {this, info}; }

  DeviceKind kind() const noexcept override { return info.kind; }
  std::vector<DeviceInfo> devices() const override { return {info}; }
  std::span<const KernelFamily* const> families() const noexcept override { return pointers_; }
  std::vector<VendorStatus> vendors(const DeviceInfo& device) const override;
  const KernelFamily* baseline(const DeviceInfo& device, const Problem& problem) const override;
  Expected<std::shared_ptr<PackedWeight>> pack(const DeviceInfo& device, std::string_view layout,
                                               const WeightSource& source) const override;
  Expected<std::unique_ptr<Kernel>> prepare_stream_floor(const DeviceInfo& device) const override;
  Expected<std::unique_ptr<DeviceBuffer>> allocate(const DeviceInfo& device, std::int64_t bytes) const override;
  Expected<void> upload(const DeviceInfo& device, void* destination, const void* source, std::int64_t bytes) const override;
  Expected<void> download(const DeviceInfo& device, void* destination, const void* source,
                          std::int64_t bytes) const override;
  Expected<std::unique_ptr<TimedSequence>> make_sequence(const DeviceInfo& device,
                                                         std::vector<TimedCall> calls) const override;
  WarmupResult warm_up(const DeviceInfo& device, std::span<const WarmupItem> items,
                       const WarmupOptions& options) const override;
  mutable std::vector<std::vector<TileConfig>> warmed_up;  // Of each call.
  mutable std::vector<bool> cache_was_trusted;             // By each call.

 private:
  std::deque<FakeFamily> families_;
  std::vector<const KernelFamily*> pointers_;
};

}  // namespace octile::test
