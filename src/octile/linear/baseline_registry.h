// SPDX-License-Identifier: Apache-2.0
// The functions that engines registered as baseline, one a kind of device; behind register_baseline() of both interfaces.
#pragma once

#include <octile/linear.hpp>

#include "octile/kernels/device.h"

#include <functional>
#include <memory>
#include <string>

namespace octile {

struct EngineBaseline {
  std::string name;
  std::function<int(const BaselineCall& call)> call;  // Never empty.
};

// Replaces the registration of `device_kind` ("cpu", "cuda"); an empty `call` removes it. Thread-safe.
Expected<void> register_engine_baseline(const char* device_kind, const char* name,
                                        std::function<int(const BaselineCall& call)> call);
// nullptr where none is registered. Plans keep what they got, so that a later registration does not change them.
std::shared_ptr<const EngineBaseline> engine_baseline(DeviceKind kind);

}  // namespace octile
