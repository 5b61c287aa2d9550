// SPDX-License-Identifier: Apache-2.0
// The CPU backend: puts together the families, the packers, memory and the clock.
#include "octile/kernels/cpu/cpu_backend.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/cpu_conditions.h"
#include "octile/kernels/cpu/cpu_device.h"
#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/host_memory.h"
#include "octile/kernels/cpu/onednn_family.h"
#include "octile/kernels/cpu/producers.h"
#include "octile/kernels/cpu/stream_floor.h"
#include "octile/kernels/cpu/timed_loop.h"

#include <array>
#include <cstring>
#include <utility>

namespace octile::cpu {
namespace {

class HostBuffer final : public DeviceBuffer {
 public:
  explicit HostBuffer(HostMemory memory) noexcept : memory_(std::move(memory)) {}
  void* data() const noexcept override { return memory_.data(); }
  std::int64_t bytes() const noexcept override { return memory_.bytes(); }

 private:
  HostMemory memory_;
};

Expected<void> copy(const char* what, void* destination, const void* source, std::int64_t bytes) {
  if (bytes < 0 || (bytes > 0 && (destination == nullptr || source == nullptr))) {
    return make_error(ErrorCode::invalid_argument, "{}: want two addresses and 0 bytes or more, got {} bytes from {} to {}",
                      what, bytes, source, destination);
  }
  if (bytes > 0) {
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  }
  return {};
}

class CpuBackend final : public Backend {
 public:
  DeviceKind kind() const noexcept override { return DeviceKind::cpu; }

  std::vector<DeviceInfo> devices() const override {
    static const DeviceInfo cpu = describe_cpu(read_small_file);
    return {cpu};
  }

  std::span<const KernelFamily* const> families() const noexcept override {
    static const std::array<const KernelFamily*, 5> all = {&amx_family(), &avx512_family(), &avx2_family(),
                                                           &reference_family(), &onednn_family()};
    return all;
  }

  DeviceConditions conditions(const DeviceInfo&) const override {
    static const CpuConditions watch(read_small_file, affinity_cpus());
    return watch.now();
  }

  std::vector<VendorStatus> vendors(const DeviceInfo&) const override { return {onednn_status()}; }

  const KernelFamily* baseline(const DeviceInfo& device, const Problem& problem) const override {
    return onednn_family().check(device, problem, {}) ? &onednn_family() : nullptr;
  }

  Expected<std::shared_ptr<PackedWeight>> pack(const DeviceInfo&, std::string_view layout,
                                               const WeightSource& source) const override {
    if (layout == kCpuPackedLayout) {
      return pack_cpu(source);
    }
    if (layout == kOnednnLayout) {
      return pack_onednn(source);
    }
    return make_error(ErrorCode::invalid_argument, "no weight layout '{}' on a CPU: want {} or {}", layout, kCpuPackedLayout,
                      kOnednnLayout);
  }

  Expected<std::unique_ptr<Kernel>> prepare_stream_floor(const DeviceInfo&) const override {
    const Expected<Isa> isa = usable_isa();
    if (!isa) {
      return isa.error();
    }
    return make_stream_floor(*isa);
  }

  Expected<BareVendor> prepare_bare_vendor(const DeviceInfo& device, const Problem& problem,
                                           std::int64_t max_m) const override {
    Expected<std::unique_ptr<Kernel>> kernel = prepare_bare_onednn(device, problem, max_m);
    if (!kernel) {
      return kernel.error();
    }
    return BareVendor{.name = "onednn matmul", .layout = kOnednnLayout, .kernel = *std::move(kernel)};
  }

  Expected<std::unique_ptr<Producer>> prepare_producer(const DeviceInfo&, const ProducerSpec& spec) const override {
    return make_producer(spec);
  }

  Expected<std::unique_ptr<DeviceBuffer>> allocate(const DeviceInfo&, std::int64_t bytes) const override {
    if (bytes < 0) {
      return make_error(ErrorCode::invalid_argument, "memory: want 0 bytes or more, got {}", bytes);
    }
    Expected<HostMemory> memory = HostMemory::allocate(bytes);
    if (!memory) {
      return memory.error();
    }
    return std::unique_ptr<DeviceBuffer>(std::make_unique<HostBuffer>(*std::move(memory)));
  }

  Expected<void> upload(const DeviceInfo&, void* destination, const void* source, std::int64_t bytes) const override {
    return copy("upload", destination, source, bytes);
  }
  Expected<void> download(const DeviceInfo&, void* destination, const void* source, std::int64_t bytes) const override {
    return copy("download", destination, source, bytes);
  }
  Expected<void> fill(const DeviceInfo&, void* destination, std::uint8_t value, std::int64_t bytes) const override {
    std::memset(destination, value, static_cast<std::size_t>(bytes));
    return {};
  }

  Expected<std::unique_ptr<TimedSequence>> make_sequence(const DeviceInfo&, std::vector<TimedCall> calls) const override {
    return make_timed_loop(std::move(calls));
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace octile::cpu
