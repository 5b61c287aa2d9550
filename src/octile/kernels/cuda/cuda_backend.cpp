// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs as a backend.
#include "octile/kernels/cuda/cuda_backend.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/ada_mma_family.h"
#include "octile/kernels/cuda/cublaslt.h"
#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/cuda_graph.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/cutlass_family.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "octile/kernels/cuda/hopper_wgmma_family.h"
#include "octile/kernels/cuda/module_store.h"
#include "octile/kernels/cuda/nvml.h"
#include "octile/kernels/cuda/nvrtc.h"
#include "octile/kernels/cuda/producer_kernel.h"
#include "octile/kernels/cuda/stream_floor.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/quant/weight_source.h"

#include <unistd.h>

#include <array>
#include <utility>

namespace octile::cuda {
namespace {

// The devices of driver(), asked for once.
const Expected<std::vector<DeviceInfo>>& all_devices() {
  static const auto* const devices = new Expected<std::vector<DeviceInfo>>([]() -> Expected<std::vector<DeviceInfo>> {
    auto opened = driver();
    if (!opened) {
      return opened.error();
    }
    return list_devices(**opened);
  }());
  return *devices;
}

class CudaBackend final : public Backend {
 public:
  DeviceKind kind() const noexcept override { return DeviceKind::cuda; }

  std::vector<DeviceInfo> devices() const override {
    const auto& devices = all_devices();
    return devices ? *devices : std::vector<DeviceInfo>{};
  }

  std::string no_device_reason() const override { return octile::cuda::no_device_reason(); }

  std::span<const KernelFamily* const> families() const noexcept override {
    static const std::array<const KernelFamily*, 5> kFamilies = {&hopper_decode_family(), &hopper_wgmma_family(),
                                                                 &ada_mma_family(), &cublaslt_family(), &cutlass_family()};
    return kFamilies;
  }

  DeviceConditions conditions(const DeviceInfo& device) const override {
    const auto& library = nvml();
    if (!library) {
      return {};
    }
    // A worker and the process that started it, which may have a context for the vendor's heuristics.
    static auto* const watch =
        new GpuConditions(**library, {static_cast<unsigned>(::getpid()), static_cast<unsigned>(::getppid())});
    return watch->now(device.uuid);
  }

  std::vector<VendorStatus> vendors(const DeviceInfo& device) const override {
    std::vector<VendorStatus> result;
    for (const KernelFamily* family : {&cublaslt_family(), &cutlass_family()}) {
      VendorStatus& vendor = result.emplace_back(VendorStatus{std::string(family->name()), family->version(), true, ""});
      if (auto available = family->available(device); !available) {
        vendor.available = false;
        vendor.reason = available.error().message;
      }
    }
    // No vendor of products, but without it nothing new can be compiled.
    VendorStatus compiler{"nvrtc", "", false, ""};
    if (auto api = nvrtc()) {
      compiler.version = version_text((*api)->version);
      compiler.available = true;
      if (auto loaded = driver()) {
        compiler.reason = beyond_driver(**api, (*loaded)->version);
      }
    } else {
      compiler.reason = api.error().message;
    }
    result.push_back(compiler);
    // What a measurement should name; unknown without /sys. Read once: every linear with a table asks.
    static const std::string release = driver_release();
    if (!release.empty()) {
      result.push_back({"driver", release, true, ""});
    }
    return result;
  }

  std::optional<std::int64_t> overhead_bytes(const DeviceInfo& device) const override {
    static_assert(kModuleBudgetBytes + kVendorResidentBytes < std::int64_t{64} << 20);
    return kModuleBudgetBytes + (baseline(device, {}) != nullptr ? kVendorResidentBytes : 0);
  }

  const KernelFamily* baseline(const DeviceInfo& device, const Problem& /*problem*/) const override {
    if (cublaslt_family().available(device)) {
      return &cublaslt_family();
    }
    return cutlass_is_baseline_on(device.arch) && cutlass_family().available(device) ? &cutlass_family() : nullptr;
  }

  Expected<void> update(const DeviceInfo& device, PackedWeight& weight, const WeightSource& source, SourceMemory memory,
                        void* stream) const override {
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    if (auto ours = as_cuda_weight(weight, **context); !ours) {
      return ours.error();
    }
    return update_weight(static_cast<const CudaWeight&>(weight), source, memory, static_cast<CUstream>(stream));
  }

  Expected<void> unpack(const DeviceInfo& device, const PackedWeight& weight, const UnpackTarget& target,
                        void* stream) const override {
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    const auto ours = as_cuda_weight(weight, **context);
    return ours ? unpack_weight(**ours, target, static_cast<CUstream>(stream)) : ours.error();
  }

  Expected<std::shared_ptr<PackedWeight>> pack(const DeviceInfo& device, std::string_view layout,
                                               const WeightSource& source) const override {
    if (layout != kRowMajor && layout != kSlab64) {
      return make_error(ErrorCode::invalid_argument, "{} has no weight layout '{}': known are {} and {}", device.id, layout,
                        kRowMajor, kSlab64);
    }
    if (auto valid = check_weight_source(source); !valid) {
      return valid.error();
    }
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    auto weight = layout == kSlab64 ? pack_slab64(**context, source) : pack_row_major(**context, source);
    if (!weight) {
      return weight.error();
    }
    return std::shared_ptr<PackedWeight>(std::move(*weight));
  }

  Expected<std::unique_ptr<Kernel>> prepare_stream_floor(const DeviceInfo& device) const override {
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    return prepare_stream_floor_kernel(**context);
  }

  Expected<std::unique_ptr<Producer>> prepare_producer(const DeviceInfo& device, const ProducerSpec& spec) const override {
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    return octile::cuda::prepare_producer(**context, spec);
  }

  Expected<std::unique_ptr<DeviceBuffer>> allocate(const DeviceInfo& device, std::int64_t bytes) const override {
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    auto buffer = allocate_device(**context, bytes);
    if (!buffer) {
      return buffer.error();
    }
    return std::unique_ptr<DeviceBuffer>(std::move(*buffer));
  }

  Expected<void> upload(const DeviceInfo& device, void* destination, const void* source, std::int64_t bytes) const override {
    auto context = device_context(device.index);
    return context ? upload_bytes(**context, to_device_pointer(destination), source, bytes) : context.error();
  }

  Expected<void> download(const DeviceInfo& device, void* destination, const void* source,
                          std::int64_t bytes) const override {
    auto context = device_context(device.index);
    return context ? download_bytes(**context, destination, to_device_pointer(source), bytes) : context.error();
  }

  Expected<void> fill(const DeviceInfo& device, void* destination, std::uint8_t value, std::int64_t bytes) const override {
    auto context = device_context(device.index);
    return context ? fill_bytes(**context, to_device_pointer(destination), value, bytes) : context.error();
  }

  WarmupResult warm_up(const DeviceInfo& device, std::span<const WarmupItem> items,
                       const WarmupOptions& options) const override {
    return octile::cuda::warm_up(device, items, options);
  }

  Expected<std::unique_ptr<TimedSequence>> make_sequence(const DeviceInfo& device,
                                                         std::vector<TimedCall> calls) const override {
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    return capture_sequence(**context, calls);
  }
};

}  // namespace

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

std::string no_device_reason() {
  const auto& devices = all_devices();
  if (!devices) {
    return devices.error().message;
  }
  return devices->empty() ? "the CUDA driver shows no device" : "";
}

}  // namespace octile::cuda
