// SPDX-License-Identifier: Apache-2.0
// The modules that are loaded on each device.
#include "octile/kernels/cuda/module_store.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cubin_cache.h"
#include "octile/kernels/cuda/nvrtc.h"

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace octile::cuda {
namespace {

// The device, the digest of the cubin, the kernel's name.
using ModuleKey = std::tuple<const DeviceContext*, std::string, std::string>;

struct Store {
  std::mutex mutex;
  std::map<ModuleKey, std::weak_ptr<LoadedModule>> modules;
  std::map<const DeviceContext*, std::int64_t> bytes;
};

// Never destroyed: kernels of static objects may be unloaded while the process exits.
Store& store() {
  static auto* const instance = new Store;
  return *instance;
}

// A module with its function; unloaded unless it is released.
class FreshModule {
 public:
  explicit FreshModule(const Driver& driver) noexcept : driver_(driver) {}
  ~FreshModule() {
    if (module_ != nullptr) {
      driver_.module_unload(module_);
    }
  }
  FreshModule(const FreshModule&) = delete;
  FreshModule& operator=(const FreshModule&) = delete;

  Expected<void> load(const DeviceContext& context, const CompiledKernel& compiled) {
    if (const CUresult result = driver_.module_load_data(&module_, compiled.cubin.data()); result != CUDA_SUCCESS) {
      module_ = nullptr;
      Error error = device_error(context, result, format("loading kernel {} for {}", compiled.kernel, compiled.arch));
      if (auto compiler = nvrtc()) {
        const std::string why = beyond_driver(**compiler, driver_.version);
        error.message += why.empty() ? "" : "; " + why;
      }
      return error;
    }
    if (const CUresult result = driver_.module_get_function(&function_, module_, compiled.kernel.c_str());
        result != CUDA_SUCCESS) {
      return device_error(context, result, format("cuModuleGetFunction({})", compiled.kernel));
    }
    // Asking for an attribute makes a driver that loads lazily load now, not at the first launch.
    int registers = 0;
    if (const CUresult result = driver_.func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function_);
        result != CUDA_SUCCESS) {
      return device_error(context, result, format("cuFuncGetAttribute({}, NUM_REGS)", compiled.kernel));
    }
    return {};
  }
  CUfunction function() const noexcept { return function_; }
  CUmodule release() noexcept { return std::exchange(module_, nullptr); }

 private:
  const Driver& driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

std::string_view text_of(const CompiledKernel& compiled) {
  return {reinterpret_cast<const char*>(compiled.cubin.data()), compiled.cubin.size()};
}

// The caller holds the lock.
Expected<std::shared_ptr<LoadedModule>> find_or_load(const DeviceContext& context, const CompiledKernel& compiled) {
  Store& all = store();
  std::weak_ptr<LoadedModule>& place = all.modules[{&context, digest_of(text_of(compiled)), compiled.kernel}];
  if (auto known = place.lock()) {
    return known;
  }
  const auto bytes = static_cast<std::int64_t>(compiled.cubin.size());
  std::int64_t& loaded = all.bytes[&context];
  if (loaded + bytes > kModuleBudgetBytes) {
    return make_error(
        ErrorCode::out_of_memory,
        "kernel {} of {} bytes: the kernels that are loaded on {} take {} bytes already, at most {} are allowed",
        compiled.kernel, bytes, context.info.id, loaded, kModuleBudgetBytes);
  }
  FreshModule fresh(*context.driver);
  if (auto ok = fresh.load(context, compiled); !ok) {
    return ok.error();
  }
  auto made = std::make_shared<LoadedModule>(context, nullptr, fresh.function(), bytes);
  made->module = fresh.release();
  loaded += bytes;
  place = made;
  return made;
}

}  // namespace

LoadedModule::~LoadedModule() {
  {
    // The driver may be gone already when static objects are destroyed; there is nobody to tell then.
    // Another thread may be capturing.
    const OutsideCapture outside(*context->driver);
    const CurrentContext current(*context);
    context->driver->module_unload(module);
  }
  Store& all = store();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.bytes.find(context); found != all.bytes.end()) {
    found->second -= bytes;
    if (found->second == 0) {
      all.bytes.erase(found);
    }
  }
  std::erase_if(all.modules, [](const auto& entry) { return entry.second.expired(); });
}

Expected<std::shared_ptr<const LoadedModule>> load_module(const DeviceContext& context, const CompiledKernel& compiled,
                                                          unsigned max_dynamic_shared_bytes) {
  const CurrentContext current(context);
  if (auto made = current.made(); !made) {
    return made.error();
  }
  const OutsideCapture outside(*context.driver);
  std::shared_ptr<LoadedModule> module;  // Outlives the lock: if it dies here, its destructor takes the lock itself.
  const std::lock_guard lock(store().mutex);
  auto found = find_or_load(context, compiled);
  if (!found) {
    return std::move(found).error();
  }
  module = *found;
  if (max_dynamic_shared_bytes > module->max_dynamic_bytes) {
    if (const CUresult result = context.driver->func_set_attribute(
            module->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(max_dynamic_shared_bytes));
        result != CUDA_SUCCESS) {
      return device_error(
          context, result,
          format("allowing {} bytes of dynamic shared memory for {}", max_dynamic_shared_bytes, compiled.kernel));
    }
    module->max_dynamic_bytes = max_dynamic_shared_bytes;
  }
  return std::shared_ptr<const LoadedModule>(module);
}

std::int64_t loaded_module_bytes(const DeviceContext& context) {
  Store& all = store();
  const std::lock_guard lock(all.mutex);
  const auto found = all.bytes.find(&context);
  return found == all.bytes.end() ? 0 : found->second;
}

}  // namespace octile::cuda
