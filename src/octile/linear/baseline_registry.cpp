// SPDX-License-Identifier: Apache-2.0
// The registry of engines' baselines.
#include "octile/linear/baseline_registry.h"

#include "octile/core/format.h"

#include <array>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace octile {

namespace {

struct Registry {
  std::mutex mutex;
  std::array<std::shared_ptr<const EngineBaseline>, 2> slots;  // By DeviceKind.
};

Registry& registry() {
  static Registry instance;
  return instance;
}

std::optional<DeviceKind> kind_named(std::string_view name) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    if (name == to_string(kind)) {
      return kind;
    }
  }
  return std::nullopt;
}

}  // namespace

Expected<void> register_engine_baseline(const char* device_kind, const char* name,
                                        std::function<int(const BaselineCall& call)> call) {
  const std::string_view kind_name = device_kind == nullptr ? "" : device_kind;
  const auto kind = kind_named(kind_name);
  if (!kind) {
    return make_error(ErrorCode::invalid_argument, "device kind: want cpu or cuda, got '{}'", kind_name);
  }
  std::shared_ptr<const EngineBaseline> entry;
  if (call) {
    if (name == nullptr || *name == '\0') {
      return make_error(ErrorCode::invalid_argument,
                        "an engine's baseline needs a name for explain to print, got an empty one");
    }
    entry = std::make_shared<const EngineBaseline>(EngineBaseline{name, std::move(call)});
  }
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::swap(r.slots.at(static_cast<std::size_t>(*kind)), entry);
  return {};
}

std::shared_ptr<const EngineBaseline> engine_baseline(DeviceKind kind) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.slots.at(static_cast<std::size_t>(kind));
}

Expected<void> register_baseline(const char* device_kind, const char* name, BaselineFunction function, void* user) {
  if (function == nullptr) {
    return register_engine_baseline(device_kind, name, nullptr);
  }
  return register_engine_baseline(device_kind, name,
                                  [function, user](const BaselineCall& call) { return function(call, user); });
}

}  // namespace octile
