// SPDX-License-Identifier: Apache-2.0
// A backend: the devices of one kind, their kernel families, memory and clocks. `cpu/` and `cuda/` each implement it.
#pragma once

#include "octile/kernels/conditions.h"
#include "octile/kernels/family.h"
#include "octile/kernels/producer.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// Memory on a device, freed with the object. On the CPU: 64-byte aligned, huge pages asked for from 2 MiB up.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const noexcept = 0;
  virtual std::int64_t bytes() const noexcept = 0;
};

// One library that a backend opens at run time, for `octile devices`.
struct VendorStatus {
  std::string name;     // "onednn", "cublaslt".
  std::string version;  // Empty where it is not available.
  bool available = false;
  std::string reason;  // Why not; empty where available.
};

// One call to be timed: enqueues work on `stream` (nullptr on the CPU, where it runs synchronously).
using TimedCall = std::function<Expected<void>(void* stream)>;

// A fixed sequence of calls that is timed as one: a loop on the CPU, a graph on a GPU.
class TimedSequence {
 public:
  virtual ~TimedSequence() = default;
  // Runs the sequence once; mean microseconds a call.
  virtual Expected<double> time_us() = 0;
};

// The vendor's product alone, as other benchmarks time it: no quantisation, no scales. `bench` prints it beside the
// baseline.
struct BareVendor {
  std::string name;    // "onednn matmul".
  std::string layout;  // Of the weight it reads.
  std::unique_ptr<Kernel> kernel;
};

// One choice of a table, or a candidate of the tuner.
struct WarmupItem {
  const KernelFamily* family = nullptr;
  Problem problem;
  TileConfig config;
};

struct WarmupResult {
  int kernels = 0;              // Distinct ones that the items need.
  int compiled = 0;             // Of these, not yet in the cache.
  int cached = 0;               // Found there. The rest does not compile: a failure each.
  int exported = 0;             // Written to the export directory.
  std::vector<Error> failures;  // Items that are illegal on the device, kernels that do not compile.
};

struct WarmupOptions {
  std::string export_directory;  // Not empty: every kernel is also written there.
  // Cores of the process that no compiler takes, as far as half of them are left to compile; at least one compiles.
  int spare_cores = 0;
  // What is in the cache is not read to see that it is whole: whoever loads it finds out.
  bool trusts_cache = false;
  // Told how many items, from the first on, have all their kernels, as that grows: one call at a time, on any thread.
  std::function<void(std::size_t items)> progress = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceKind kind() const noexcept = 0;
  // The devices present. Cheap after the first call.
  virtual std::vector<DeviceInfo> devices() const = 0;
  // Why devices() is empty; "" where it is not.
  virtual std::string no_device_reason() const { return {}; }
  // Every family of this kind of device, available here or not: ours first, vendors last.
  virtual std::span<const KernelFamily* const> families() const noexcept = 0;
  virtual std::vector<VendorStatus> vendors(const DeviceInfo& device) const = 0;
  // What the device runs under at this moment; costs up to a millisecond.
  virtual DeviceConditions conditions(const DeviceInfo& /*device*/) const { return {}; }
  // The most device memory that is kept, once linears are prepared, beyond weights (with scales and biases) and the
  // workspaces of callers; nullopt where devices have no memory of their own.
  virtual std::optional<std::int64_t> overhead_bytes(const DeviceInfo& /*device*/) const { return std::nullopt; }

  // The vendor whose own choice is the baseline, or nullptr where none exists (then the first available family's heuristic
  // serves).
  virtual const KernelFamily* baseline(const DeviceInfo& device, const Problem& problem) const = 0;

  // Packs row-major codes (validated by the caller) into `layout`. Channels whose codes hold a NaN give NaN outputs.
  virtual Expected<std::shared_ptr<PackedWeight>> pack(const DeviceInfo& device, std::string_view layout,
                                                       const WeightSource& source) const = 0;
  // Writes codes and scales of `source`, which has the weight's shape and one fp32 scale a row, over those of `weight`,
  // whose address and layout stay. Ordered on `stream`; memory of the host may be freed when this returns. Errors:
  // unavailable where weights are packed anew instead, failed.
  virtual Expected<void> update(const DeviceInfo& device, PackedWeight& weight, const WeightSource& source,
                                SourceMemory memory, void* stream) const;
  // Writes the codes of `weight` as rows [n, k] with `row_stride` elements between them, and its scales, [n] fp32 (nullptr:
  // not wanted). Ordered on `stream`; memory of the host has them when this returns. Errors: unavailable where the layout
  // has no way back, failed.
  virtual Expected<void> unpack(const DeviceInfo& device, const PackedWeight& weight, const UnpackTarget& target,
                                void* stream) const;
  // A kernel whose run() reads the weight once and does nothing else: the floor that `bench` prints.
  virtual Expected<std::unique_ptr<Kernel>> prepare_stream_floor(const DeviceInfo& device) const = 0;

  // For M up to max_m, called as the baseline is (raw or quantised activations). Error (unavailable): this backend has none.
  virtual Expected<BareVendor> prepare_bare_vendor(const DeviceInfo& device, const Problem& problem,
                                                   std::int64_t max_m) const;

  // Slow: compiles and loads. `spec` has passed check_producer_spec(). Error (unavailable): this backend has none.
  virtual Expected<std::unique_ptr<Producer>> prepare_producer(const DeviceInfo& device, const ProducerSpec& spec) const;

  virtual Expected<std::unique_ptr<DeviceBuffer>> allocate(const DeviceInfo& device, std::int64_t bytes) const = 0;
  virtual Expected<void> upload(const DeviceInfo& device, void* destination, const void* source,
                                std::int64_t bytes) const = 0;
  virtual Expected<void> download(const DeviceInfo& device, void* destination, const void* source,
                                  std::int64_t bytes) const = 0;
  // Sets `bytes` bytes of device memory to `value`.
  virtual Expected<void> fill(const DeviceInfo& device, void* destination, std::uint8_t value, std::int64_t bytes) const;
  // Compiles into the cache, on all usable cores, what prepare() of these items would compile, about in their order; the
  // device need not be here. Nothing on a device that needs no compiler.
  virtual WarmupResult warm_up(const DeviceInfo& device, std::span<const WarmupItem> items,
                               const WarmupOptions& options) const;
  virtual Expected<std::unique_ptr<TimedSequence>> make_sequence(const DeviceInfo& device,
                                                                 std::vector<TimedCall> calls) const = 0;
};

// Every backend of this build, the CPU first.
std::span<const Backend* const> backends();
// The backend and device of an id such as "cpu" or "cuda:0"; the Error lists the ids that exist.
struct Device {
  const Backend* backend = nullptr;
  DeviceInfo info;
};
Expected<Device> find_device(std::string_view id);
// The family of that name in any backend, or in one; nullptr where there is none.
const KernelFamily* find_family(std::string_view name);
const KernelFamily* find_family(const Backend& backend, std::string_view name);

}  // namespace octile
