// SPDX-License-Identifier: Apache-2.0
// Somebody else's kernel on a GPU: a slow copy that keeps the rules of programmatic dependent launch, or knows nothing of
// them.
#pragma once

#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "support/gpu.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

namespace octile::test {

struct Manners {
  bool triggers = false;  // Lets the kernel behind it start at once.
  bool follows = false;   // Is launched with the attribute, and waits before its first access.
  std::string to_string() const {
    return std::string(triggers ? "triggers" : "does not trigger") + (follows ? ", starts early itself" : "");
  }
};

class ForeignCopy {
 public:
  ForeignCopy() {
    // `delay` cycles before the first access: whoever reads too early reads what was there before.
    constexpr const char* kText = R"(
#include "ptx.cuh"
extern "C" __global__ void foreign_copy(const uint4* source, uint4* target, i64 count, u32 triggers, u32 follows, i64 delay) {
  if (triggers != 0) launch_dependents();
  if (follows != 0) dependency_wait();
  for (const i64 begin = clock64(); clock64() - begin < delay;) {
  }
  for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) target[i] = source[i];
})";
    const cuda::DeviceContext& context = *gpu().context;
    const auto compiled =
        cuda::compile_text({cuda::compile_arch(context.info.arch), "foreign_copy", {}, "foreign_copy"}, kText);
    if (!compiled) {
      ADD_FAILURE() << compiled.error().message;
      return;
    }
    auto loaded = cuda::load_kernel(context, *compiled);
    EXPECT_TRUE(loaded) << loaded.error().message;
    if (loaded) {
      kernel_ = std::move(*loaded);
    }
  }

  // Copies `bytes`, a multiple of 16, about 10 us after it could. The device's context must be current.
  Expected<void> enqueue(cuda::CUdeviceptr source, cuda::CUdeviceptr target, std::int64_t bytes, const Manners& manners,
                         cuda::CUstream stream) const {
    cuda::LaunchShape shape;
    shape.grid = {8, 1, 1};
    shape.block = {256, 1, 1};
    shape.pdl = manners.follows;
    constexpr std::int64_t kDelay = 18'000;  // Cycles.
    return cuda::launch_with(kernel_, shape, stream, source, target, bytes / 16, std::uint32_t{manners.triggers},
                             std::uint32_t{manners.follows}, kDelay);
  }

 private:
  cuda::LoadedKernel kernel_;
};

}  // namespace octile::test
