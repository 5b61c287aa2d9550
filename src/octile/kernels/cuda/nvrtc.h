// SPDX-License-Identifier: Apache-2.0
// NVIDIA's run-time compiler, opened at run time.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cuda_abi.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {

// The oldest that serves: 12.0 knows sm_90a.
inline constexpr int kMinNvrtcVersion = 12000;

struct Nvrtc {
  OCTILE_NVRTC_FUNCTIONS(OCTILE_FUNCTION_FIELD)
  int version = 0;         // 13000 for 13.0.
  std::vector<int> archs;  // What it compiles for: 75, 80, ... 120.
  std::string path;
};

// The process' NVRTC: opened on the first call, and remembered, also as a failure. Errors (unavailable): not found, too old,
// broken.
Expected<const Nvrtc*> nvrtc();
// Why a driver of CUDA `driver_version` (12000 for 12.0) may not load what `nvrtc` compiles; "" where it loads all.
std::string beyond_driver(const Nvrtc& nvrtc, int driver_version);
// Opens the library at `path` ("": searches as nvrtc() does), without remembering it.
Expected<std::unique_ptr<Nvrtc>> open_nvrtc(const std::string& path);

// One translation unit for NVRTC: `source` may #include the headers by their names.
struct NvrtcHeader {
  std::string_view name;
  std::string_view text;
};
struct NvrtcInput {
  std::string name;
  std::string source;
  std::vector<NvrtcHeader> headers;
  std::vector<std::string> options;
};
struct NvrtcOutput {
  std::string cubin;
  std::string ptx;
  std::string log;
};
// Compiles; thread-safe for distinct inputs. Errors: failed with the compiler's log, out_of_memory.
Expected<NvrtcOutput> run_nvrtc(const Nvrtc& nvrtc, const NvrtcInput& input);

}  // namespace octile::cuda
