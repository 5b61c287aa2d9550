// SPDX-License-Identifier: Apache-2.0
// A compiled kernel on a device: loaded, its limits raised, launched.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/cuda/module_store.h"

#include <array>
#include <memory>
#include <span>
#include <utility>

namespace octile::cuda {

// How a kernel is launched; sizes in CUDA's units.
struct LaunchShape {
  std::array<unsigned, 3> grid = {1, 1, 1};     // Blocks.
  std::array<unsigned, 3> block = {1, 1, 1};    // Threads.
  std::array<unsigned, 3> cluster = {1, 1, 1};  // Blocks a cluster; {1, 1, 1}: no attribute. Needs sm_90.
  unsigned dynamic_shared_bytes = 0;            // At most what load_kernel() was told.
  bool pdl = false;                             // Programmatic dependent launch (programmatic stream serialisation); sm_90.
};

// One __global__ function, of a module that it shares with whoever loaded the same machine code.
class LoadedKernel {
 public:
  LoadedKernel() noexcept = default;  // Empty: loaded() is false.
  LoadedKernel(const DeviceContext& context, std::shared_ptr<const LoadedModule> module) noexcept
      : context_(&context), module_(std::move(module)) {}

  bool loaded() const noexcept { return module_ != nullptr; }
  CUfunction function() const noexcept { return module_ == nullptr ? nullptr : module_->function; }
  const DeviceContext& context() const noexcept { return *context_; }

 private:
  const DeviceContext* context_ = nullptr;
  std::shared_ptr<const LoadedModule> module_;
};

// load_module(), after a check of the shared memory. Errors: of load_module(); invalid_argument where the device allows
// less shared memory.
Expected<LoadedKernel> load_kernel(const DeviceContext& context, const CompiledKernel& compiled,
                                   unsigned max_dynamic_shared_bytes = 0);
// compile() for the context's device, then load_kernel(). `request.arch` may be empty: the device's.
Expected<LoadedKernel> compile_and_load(const DeviceContext& context, CompileRequest request,
                                        unsigned max_dynamic_shared_bytes = 0);

// Enqueues on `stream` (nullptr: the legacy default stream of the kernel's device). The device's context must be current:
// hold a CurrentContext. `arguments[i]` points to the value of parameter i. Allocates nothing.
Expected<void> launch(const LoadedKernel& kernel, const LaunchShape& shape, CUstream stream,
                      std::span<void* const> arguments);

// launch(kernel, shape, stream, a, b, c): the parameters by value, whose types must be exactly the kernel's.
template <class... Arguments>
Expected<void> launch_with(const LoadedKernel& kernel, const LaunchShape& shape, CUstream stream, Arguments... arguments) {
  const std::array<void*, sizeof...(Arguments)> pointers = {static_cast<void*>(&arguments)...};
  return launch(kernel, shape, stream, pointers);
}

}  // namespace octile::cuda
