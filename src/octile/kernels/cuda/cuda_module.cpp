// SPDX-License-Identifier: Apache-2.0
// A compiled kernel on a device: loaded, its limits raised, launched.
#include "octile/kernels/cuda/cuda_module.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/warmup.h"

#include <utility>

namespace octile::cuda {

Expected<LoadedKernel> load_kernel(const DeviceContext& context, const CompiledKernel& compiled,
                                   unsigned max_dynamic_shared_bytes) {
  const std::int64_t shared_bytes = std::int64_t{compiled.static_shared_bytes} + max_dynamic_shared_bytes;
  if (shared_bytes > context.info.shared_memory_bytes) {
    return make_error(ErrorCode::invalid_argument, "kernel {} wants {} bytes of shared memory a block; {} allows {}",
                      compiled.kernel, shared_bytes, context.info.name, context.info.shared_memory_bytes);
  }
  auto module = load_module(context, compiled, max_dynamic_shared_bytes);
  if (!module) {
    return module.error();
  }
  return LoadedKernel(context, std::move(*module));
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
    return device_error(
        kernel.context(), result,
        format("cuLaunchKernelEx(grid {}x{}x{}, block {}x{}x{}, cluster {}x{}x{}, {} bytes of shared memory, {} dependent "
               "launch)",
               shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0], shape.block[1], shape.block[2], shape.cluster[0],
               shape.cluster[1], shape.cluster[2], shape.dynamic_shared_bytes, shape.pdl ? "with" : "without"));
  }
  return {};
}

}  // namespace octile::cuda
