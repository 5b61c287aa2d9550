// SPDX-License-Identifier: Apache-2.0
// What a backend does where it says nothing else.
#include "octile/kernels/backend.h"

#include "octile/core/format.h"

namespace octile {

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
                              const std::string& /*export_directory*/) const {
  return {};
}

}  // namespace octile
