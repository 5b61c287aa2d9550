// SPDX-License-Identifier: Apache-2.0
// Compiling ahead of serving: every kernel that a set of choices needs, for a device that need not be here.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/driver.h"

#include <span>
#include <string>
#include <vector>

namespace octile::cuda {

// Compiles into the cache; a machine without NVRTC names the directory that is exported to in OCTILE_CUBIN_PATH. Needs
// NVRTC, no GPU, and makes no context on one.
WarmupResult warm_up(const DeviceInfo& device, std::span<const WarmupItem> items, const WarmupOptions& options);

// While it lives, KernelFamily::prepare() on this thread compiles and loads nothing: device_context() gives a context that
// stands for `device`, and compile_and_load() notes what it was asked for. A kernel prepared so must not be run.
class CompileRecorder {
 public:
  explicit CompileRecorder(const DeviceInfo& device);
  ~CompileRecorder();
  CompileRecorder(const CompileRecorder&) = delete;
  CompileRecorder& operator=(const CompileRecorder&) = delete;
  // The one of this thread, or nullptr.
  static CompileRecorder* active() noexcept;

  const DeviceContext& context() const noexcept { return context_; }
  void note(CompileRequest request) { requests_.push_back(std::move(request)); }
  const std::vector<CompileRequest>& requests() const noexcept { return requests_; }

 private:
  DeviceContext context_;
  std::vector<CompileRequest> requests_;
  CompileRecorder* outer_;
};

}  // namespace octile::cuda
