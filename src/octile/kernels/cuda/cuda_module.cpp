// SPDX-License-Identifier: Apache-2.0
// A compiled kernel on a device: loaded, its limits raised, launched.
#include "octile/kernels/cuda/cuda_module.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/warmup.h"

#include <utility>

namespace octile::cuda {

LoadedKernel::LoadedKernel(const DeviceContext& context, CUmodule module) noexcept : context_(&context), module_(module) {}

LoadedKernel::~LoadedKernel() {
  if (module_ != nullptr) {
    // The driver may be gone already when static objects are destroyed; there is nobody to tell then.
    const CurrentContext current(*context_);
    context_->driver->module_unload(module_);
  }
}

LoadedKernel::LoadedKernel(LoadedKernel&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      module_(std::exchange(other.module_, nullptr)),
      function_(std::exchange(other.function_, nullptr)) {}

LoadedKernel& LoadedKernel::operator=(LoadedKernel&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(module_, other.module_);
  std::swap(function_, other.function_);
  return *this;
}

Expected<LoadedKernel> load_kernel(const DeviceContext& context, const CompiledKernel& compiled,
                                   unsigned max_dynamic_shared_bytes) {
  const Driver& driver = *context.driver;
  const std::int64_t shared_bytes = std::int64_t{compiled.static_shared_bytes} + max_dynamic_shared_bytes;
  if (shared_bytes > context.info.shared_memory_bytes) {
    return make_error(ErrorCode::invalid_argument, "kernel {} wants {} bytes of shared memory a block; {} allows {}",
                      compiled.kernel, shared_bytes, context.info.name, context.info.shared_memory_bytes);
  }
  const CurrentContext current(context);
  if (current.result() != CUDA_SUCCESS) {
    return driver_error(driver, current.result(), "cuCtxPushCurrent");
  }
  const OutsideCapture outside(driver);
  CUmodule module = nullptr;
  if (const CUresult result = driver.module_load_data(&module, compiled.cubin.data()); result != CUDA_SUCCESS) {
    return driver_error(driver, result,
                        format("loading kernel {} for {} on {}", compiled.kernel, compiled.arch, context.info.id));
  }
  LoadedKernel kernel(context, module);
  CUfunction function = nullptr;
  if (const CUresult result = driver.module_get_function(&function, module, compiled.kernel.c_str());
      result != CUDA_SUCCESS) {
    return driver_error(driver, result, format("cuModuleGetFunction({})", compiled.kernel));
  }
  // Asking for an attribute makes a driver that loads lazily load now, not at the first launch.
  int registers = 0;
  if (const CUresult result = driver.func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
      result != CUDA_SUCCESS) {
    return driver_error(driver, result, format("cuFuncGetAttribute({}, NUM_REGS)", compiled.kernel));
  }
  if (max_dynamic_shared_bytes > 0) {
    if (const CUresult result = driver.func_set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                          static_cast<int>(max_dynamic_shared_bytes));
        result != CUDA_SUCCESS) {
      return driver_error(
          driver, result,
          format("allowing {} bytes of dynamic shared memory for {}", max_dynamic_shared_bytes, compiled.kernel));
    }
  }
  kernel.set_function(function);
  return kernel;
}

Expected<LoadedKernel> compile_and_load(const DeviceContext& context, CompileRequest request,
                                        unsigned max_dynamic_shared_bytes) {
  if (request.arch.empty()) {
    request.arch = compile_arch(context.info.arch);
  }
  if (CompileRecorder* recorder = CompileRecorder::active()) {
    recorder->note(std::move(request));
    return LoadedKernel(context, nullptr);
  }
  auto compiled = compile(request);
  if (!compiled) {
    return compiled.error();
  }
  return load_kernel(context, *compiled, max_dynamic_shared_bytes);
}

Expected<void> launch(const LoadedKernel& kernel, const LaunchShape& shape, CUstream stream,
                      std::span<void* const> arguments) {
  std::array<CUlaunchAttribute, 2> attributes = {};
  unsigned count = 0;
  if (shape.cluster != std::array<unsigned, 3>{1, 1, 1}) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {shape.cluster[0], shape.cluster[1], shape.cluster[2]};
  }
  if (shape.pdl) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  const CUlaunchConfig config = {shape.grid[0],
                                 shape.grid[1],
                                 shape.grid[2],
                                 shape.block[0],
                                 shape.block[1],
                                 shape.block[2],
                                 shape.dynamic_shared_bytes,
                                 stream,
                                 attributes.data(),
                                 count};
  // The driver reads the parameters and changes none of them; its signature is older than const.
  void** parameters = const_cast<void**>(arguments.data());
  if (const CUresult result = kernel.context().driver->launch_kernel(&config, kernel.function(), parameters, nullptr);
      result != CUDA_SUCCESS) {
    return driver_error(
        *kernel.context().driver, result,
        format("cuLaunchKernelEx(grid {}x{}x{}, block {}x{}x{}, {} bytes of shared memory)", shape.grid[0], shape.grid[1],
               shape.grid[2], shape.block[0], shape.block[1], shape.block[2], shape.dynamic_shared_bytes));
  }
  return {};
}

}  // namespace octile::cuda
