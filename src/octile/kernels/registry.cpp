// SPDX-License-Identifier: Apache-2.0
// The list of backends, and look-ups across all of them.
#include "octile/core/format.h"
#include "octile/kernels/backend.h"
#include "octile/kernels/cpu/cpu_backend.h"
#include "octile/kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <array>
#include <string>

namespace octile {

std::span<const Backend* const> backends() {
  static const std::array<const Backend*, 2> all = {&cpu::cpu_backend(), &cuda::cuda_backend()};
  return all;
}

Expected<Device> find_device(std::string_view id) {
  std::string known;
  std::string reasons;
  for (const Backend* backend : backends()) {
    if (const std::string reason = backend->no_device_reason(); !reason.empty()) {
      reasons += "; " + reason;
    }
    for (DeviceInfo& info : backend->devices()) {
      if (info.id == id) {
        return Device{.backend = backend, .info = std::move(info)};
      }
      known += (known.empty() ? "" : ", ") + info.id;
    }
  }
  return make_error(ErrorCode::invalid_argument, "no device '{}' here: want one of {}{}", id, known, reasons);
}

const KernelFamily* find_family(std::string_view name) {
  for (const Backend* backend : backends()) {
    if (const KernelFamily* family = find_family(*backend, name); family != nullptr) {
      return family;
    }
  }
  return nullptr;
}

const KernelFamily* find_family(const Backend& backend, std::string_view name) {
  const auto families = backend.families();
  const auto found = std::ranges::find(families, name, &KernelFamily::name);
  return found == families.end() ? nullptr : *found;
}

}  // namespace octile
