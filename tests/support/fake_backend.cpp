// SPDX-License-Identifier: Apache-2.0
#include "support/fake_backend.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/quant/quantize.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace octile::test {
namespace {

constexpr std::int64_t kAlignment = 64;

class FakeWeight final : public PackedWeight {
 public:
  FakeWeight(std::string layout, const WeightSource& source)
      : n_(source.n), k_(source.k), layout_(std::move(layout)), codes_(static_cast<std::size_t>(n_ * k_)) {
    for (std::int64_t row = 0; row < n_; ++row) {
      std::memcpy(codes_.data() + row * k_, static_cast<const std::uint8_t*>(source.codes) + row * source.row_stride,
                  static_cast<std::size_t>(k_));
      scales_.push_back(load_as_float(source.scales, source.scale_dtype, source.scale_count == 1 ? 0 : row));
    }
  }
  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override { return n_ * k_ + n_ * static_cast<std::int64_t>(sizeof(float)); }
  std::string_view layout() const noexcept override { return layout_; }
  const std::uint8_t* row(std::int64_t n) const noexcept { return codes_.data() + n * k_; }
  float scale(std::int64_t n) const noexcept { return scales_[static_cast<std::size_t>(n)]; }

 private:
  std::int64_t n_;
  std::int64_t k_;
  std::string layout_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
};

class FakeKernel final : public Kernel {
 public:
  FakeKernel(const FakeFamily& family, Problem problem, TileConfig config, std::int64_t max_m)
      : family_(family), problem_(problem), config_(std::move(config)), max_m_(max_m) {}

  // Codes and scales of the activations, and as much again as a tile needs.
  std::int64_t workspace_bytes(std::int64_t m) const noexcept override {
    return m * problem_.k + m * static_cast<std::int64_t>(sizeof(float)) + config_.get("tile", 0) * kAlignment;
  }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    const ConstMatrixView& x = args.activation.x;
    const bool raw = args.activation.scales == nullptr;
    family_.record({config_, x.rows, raw});
    if (family_.run_error) {
      return *family_.run_error;
    }
    if (weight.layout() != family_.layout() || x.rows > max_m_ || args.workspace_bytes < workspace_bytes(x.rows)) {
      return make_error(ErrorCode::failed, "{}: called against the contract: layout {}, M = {} of {}, workspace {} of {}",
                        family_.name(), weight.layout(), x.rows, max_m_, args.workspace_bytes, workspace_bytes(x.rows));
    }
    std::memset(args.workspace, 0xA5, static_cast<std::size_t>(workspace_bytes(x.rows)));
    for (std::int64_t row = 0; row < x.rows; ++row) {
      run_row(static_cast<const FakeWeight&>(weight), args, row);
    }
    return {};
  }

 private:
  void run_row(const FakeWeight& weight, const LaunchArgs& args, std::int64_t row) const {
    const Activation& activation = args.activation;
    const auto* source =
        static_cast<const std::uint8_t*>(activation.x.data) + row * activation.x.row_stride * size_of(activation.x.dtype);
    auto* codes = static_cast<std::uint8_t*>(args.workspace) + row * problem_.k;
    float scale = 0.0F;
    if (activation.scales != nullptr) {
      std::memcpy(codes, source, static_cast<std::size_t>(problem_.k));
      scale = activation.scales[row];
    } else if (activation.static_scale > 0.0F) {
      scale = quantize_row_static(source, activation.x.dtype, problem_.k, codes, activation.static_scale);
    } else {
      scale = quantize_row(source, activation.x.dtype, problem_.k, codes, activation.quantize);
    }
    for (std::int64_t n = 0; n < problem_.n; ++n) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < problem_.k; ++k) {
        sum += e4m3_to_float(codes[k]) * e4m3_to_float(weight.row(n)[k]);
      }
      const float scaled = family_.is_vendor() ? sum * scale * weight.scale(n) : sum * weight.scale(n) * scale;
      store_from_float(args.y.data, args.y.dtype, row * args.y.row_stride + n,
                       args.bias == nullptr ? scaled : scaled + args.bias[n]);
    }
  }

  const FakeFamily& family_;
  Problem problem_;
  TileConfig config_;
  std::int64_t max_m_;
};

class HostBuffer final : public DeviceBuffer {
 public:
  explicit HostBuffer(std::int64_t bytes)
      : data_(std::aligned_alloc(kAlignment, static_cast<std::size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment))),
        bytes_(bytes) {
    if (data_ == nullptr) {
      throw std::bad_alloc();
    }
  }
  ~HostBuffer() override { std::free(data_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void* data() const noexcept override { return data_; }
  std::int64_t bytes() const noexcept override { return bytes_; }

 private:
  void* data_;
  std::int64_t bytes_;
};

}  // namespace

std::vector<FakeFamily::Prepared> FakeFamily::prepared() const {
  const std::lock_guard lock(mutex_);
  return prepared_;
}
std::vector<FakeFamily::Launch> FakeFamily::launches() const {
  const std::lock_guard lock(mutex_);
  return launches_;
}
void FakeFamily::record(Launch launch) const {
  const std::lock_guard lock(mutex_);
  launches_.push_back(std::move(launch));
}
void FakeFamily::clear() {
  const std::lock_guard lock(mutex_);
  prepared_.clear();
  launches_.clear();
}

Expected<void> FakeFamily::available(const DeviceInfo& /*device*/) const {
  if (unavailable) {
    return Error{ErrorCode::unavailable, *unavailable};
  }
  return {};
}

Expected<void> FakeFamily::check(const DeviceInfo& /*device*/, const Problem& problem, const TileConfig& config) const {
  if (problem.batch_invariant && !batch_invariant) {
    return make_error(ErrorCode::invalid_argument, "{} is not batch-invariant", its_name);
  }
  for (const auto& [key, value] : config.values) {
    if (key != "tile" || value < 1 || value > largest_tile) {
      return make_error(ErrorCode::invalid_argument, "{}: {} = {} is out of range [1, {}]", its_name, key, value,
                        largest_tile);
    }
  }
  return {};
}

Expected<void> FakeFamily::check_sm_limit(const Problem& problem, const TileConfig& config, std::int64_t max_m) const {
  return held_up_to_m && max_m <= *held_up_to_m ? Expected<void>() : KernelFamily::check_sm_limit(problem, config, max_m);
}

std::vector<TileConfig> FakeFamily::space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const {
  std::vector<TileConfig> configs{heuristic(device, problem, m)};
  configs.insert(configs.end(), more_space.begin(), more_space.end());
  return configs;
}

TileConfig FakeFamily::heuristic(const DeviceInfo& /*device*/, const Problem& /*problem*/, std::int64_t m) const {
  if (its_heuristic) {
    return its_heuristic(m);
  }
  TileConfig config;
  if (!vendor) {
    config.set("tile", std::min(m, largest_tile));
  }
  return config;
}

double FakeFamily::predict_us(const DeviceInfo& /*device*/, const Problem& /*problem*/, std::int64_t m,
                              const TileConfig& /*config*/) const {
  return us_per_row * static_cast<double>(m);
}

Expected<std::unique_ptr<Kernel>> FakeFamily::prepare(const DeviceInfo& /*device*/, const Problem& problem,
                                                      const TileConfig& config, std::int64_t max_m) const {
  {
    const std::lock_guard lock(mutex_);
    prepared_.push_back({config, max_m});
  }
  if (prepare_error) {
    return *prepare_error;
  }
  return std::unique_ptr<Kernel>(std::make_unique<FakeKernel>(*this, problem, config, max_m));
}

FakeBackend::FakeBackend(DeviceKind kind) {
  info.kind = kind;
  info.id = kind == DeviceKind::cpu ? "cpu" : "cuda:0";
  info.name = kind == DeviceKind::cpu ? "Fake_CPU-avx2-2t" : "NVIDIA_Fake";
  info.arch = kind == DeviceKind::cpu ? "avx2" : "sm_90";
  info.model = kind == DeviceKind::cpu ? "Fake CPU" : "NVIDIA Fake";
  info.sm_count = kind == DeviceKind::cpu ? 2 : 132;
}

FakeFamily& FakeBackend::add(std::string name, std::string layout) {
  FakeFamily& family = families_.emplace_back();
  family.its_name = std::move(name);
  family.its_layout = std::move(layout);
  pointers_.push_back(&family);
  return family;
}

FakeFamily& FakeBackend::add_vendor(std::string name, std::string layout) {
  FakeFamily& family = add(std::move(name), std::move(layout));
  family.vendor = true;
  family.its_version = "3.1";
  its_baseline = &family;
  its_vendors.push_back({family.its_name, family.its_version, true, ""});
  return family;
}

std::vector<VendorStatus> FakeBackend::vendors(const DeviceInfo& /*device*/) const { return its_vendors; }

const KernelFamily* FakeBackend::baseline(const DeviceInfo& /*device*/, const Problem& /*problem*/) const {
  return its_baseline;
}

Expected<std::shared_ptr<PackedWeight>> FakeBackend::pack(const DeviceInfo& /*device*/, std::string_view layout,
                                                          const WeightSource& source) const {
  return std::shared_ptr<PackedWeight>(std::make_shared<FakeWeight>(std::string(layout), source));
}

Expected<std::unique_ptr<Kernel>> FakeBackend::prepare_stream_floor(const DeviceInfo& device) const {
  return make_error(ErrorCode::unavailable, "{} has no memory to stream", device.id);
}

Expected<std::unique_ptr<DeviceBuffer>> FakeBackend::allocate(const DeviceInfo& /*device*/, std::int64_t bytes) const {
  return std::unique_ptr<DeviceBuffer>(std::make_unique<HostBuffer>(bytes));
}

Expected<void> FakeBackend::upload(const DeviceInfo& /*device*/, void* destination, const void* source,
                                   std::int64_t bytes) const {
  std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  return {};
}

Expected<void> FakeBackend::download(const DeviceInfo& /*device*/, void* destination, const void* source,
                                     std::int64_t bytes) const {
  std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  return {};
}

Expected<std::unique_ptr<TimedSequence>> FakeBackend::make_sequence(const DeviceInfo& device,
                                                                    std::vector<TimedCall> /*calls*/) const {
  return make_error(ErrorCode::unavailable, "{} has no clock", device.id);
}

WarmupResult FakeBackend::warm_up(const DeviceInfo& /*device*/, std::span<const WarmupItem> items,
                                  const WarmupOptions& options) const {
  cache_was_trusted.push_back(options.trusts_cache);
  std::vector<TileConfig>& configs = warmed_up.emplace_back();
  for (const WarmupItem& item : items) {
    configs.push_back(item.config);
  }
  return {};
}

}  // namespace octile::test
