// SPDX-License-Identifier: Apache-2.0
// The modules that are loaded on each device: machine code is loaded once, however many linears use it, and its sum stays
// within a budget, which `octile devices` states.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/driver.h"

#include <cstdint>
#include <memory>

namespace octile::cuda {

// Bytes of cubins that may be loaded on one device at a time. A kernel's is 10 to 60 KB and a model needs tens of them.
inline constexpr std::int64_t kModuleBudgetBytes = std::int64_t{32} << 20;

// Device memory that a vendor's library keeps on its own, at most: the code of its kernels, which are loaded as they are
// first used. Its workspace is part of the caller's.
inline constexpr std::int64_t kVendorResidentBytes = std::int64_t{24} << 20;

// One loaded kernel. Shared by everyone who asked for the same machine code on the same device, unloaded with the last.
struct LoadedModule {
  LoadedModule(const DeviceContext& its_context, CUmodule its_module, CUfunction its_function,
               std::int64_t its_bytes) noexcept
      : context(&its_context), module(its_module), function(its_function), bytes(its_bytes) {}
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const DeviceContext* context;
  CUmodule module;
  CUfunction function;
  std::int64_t bytes;              // Of the cubin.
  unsigned max_dynamic_bytes = 0;  // Of shared memory a block, as the driver was told. Guarded by the store's lock.
};

// Loads at once (never lazily), or finds what is loaded, and allows `max_dynamic_shared_bytes` a block. Thread-safe. Errors:
// out_of_memory beyond the budget, failed with the driver's words.
Expected<std::shared_ptr<const LoadedModule>> load_module(const DeviceContext& context, const CompiledKernel& compiled,
                                                          unsigned max_dynamic_shared_bytes);

// Bytes of the cubins that are loaded on the device of `context`.
std::int64_t loaded_module_bytes(const DeviceContext& context);

}  // namespace octile::cuda
