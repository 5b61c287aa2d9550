// SPDX-License-Identifier: Apache-2.0
// What a backend, and a family, does where it says nothing else.
#include "octile/kernels/backend.h"

#include "octile/core/format.h"

#include <algorithm>

namespace octile {

Expected<void> limit_sms(const DeviceInfo& device, int max_sms, Problem& problem) {
  if (max_sms == 0) {
    return {};
  }
  if (device.kind == DeviceKind::cpu) {
    return make_error(ErrorCode::invalid_argument,
                      "max_sms: want 0 on a CPU, which has no multiprocessors to leave to others, got {}", max_sms);
  }
  if (max_sms < 0 || (device.sm_count > 0 && max_sms > device.sm_count)) {
    return make_error(ErrorCode::invalid_argument,
                      "max_sms: want 1 to the {} multiprocessors of {}, or 0 for no limit, got {}", device.sm_count,
                      device.name, max_sms);
  }
  if (max_sms != device.sm_count) {
    problem.max_sms = max_sms;
    problem.pdl = std::min(problem.pdl, Pdl::consume);
  }
  return {};
}

Expected<void> KernelFamily::check_sm_limit(const Problem& problem, const TileConfig& /*config*/,
                                            std::int64_t /*max_m*/) const {
  return make_error(ErrorCode::unavailable, "{} cannot be held to {} multiprocessors", name(), problem.max_sms);
}

Expected<BareVendor> Backend::prepare_bare_vendor(const DeviceInfo& device, const Problem& /*problem*/,
                                                  std::int64_t /*max_m*/) const {
  return make_error(ErrorCode::unavailable, "{} has no vendor product to time alone", device.id);
}

Expected<void> Backend::update(const DeviceInfo& device, PackedWeight& weight, const WeightSource& /*source*/,
                               SourceMemory /*memory*/, void* /*stream*/) const {
  return make_error(ErrorCode::unavailable, "{} cannot update a weight in layout {} in place: create a new one", device.id,
                    weight.layout());
}

Expected<void> Backend::unpack(const DeviceInfo& device, const PackedWeight& weight, const UnpackTarget& /*target*/,
                               void* /*stream*/) const {
  return make_error(ErrorCode::unavailable, "{} cannot unpack a weight in layout {}", device.id, weight.layout());
}

Expected<std::unique_ptr<Producer>> Backend::prepare_producer(const DeviceInfo& device, const ProducerSpec& spec) const {
  return make_error(ErrorCode::unavailable, "{} has no producer {}", device.id, to_string(spec.kind));
}

Expected<void> Backend::fill(const DeviceInfo& device, void* destination, std::uint8_t value, std::int64_t bytes) const {
  const std::vector<std::uint8_t> values(static_cast<std::size_t>(bytes), value);
  return upload(device, destination, values.data(), bytes);
}

WarmupResult Backend::warm_up(const DeviceInfo& /*device*/, std::span<const WarmupItem> /*items*/,
                              const WarmupOptions& /*options*/) const {
  return {};
}

}  // namespace octile
