// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time: its functions, its errors in words, and each device's primary context.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cuda_abi.h"
#include "octile/kernels/device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {

// libcuda.so.1, initialised, with the functions that are used. Never unloaded.
struct Driver {
  OCTILE_CUDA_DRIVER_FUNCTIONS(OCTILE_FUNCTION_FIELD)
  int version = 0;          // 13000 for CUDA 13.0: the newest API the driver speaks.
  std::string version_text; // "13.0".
  std::string path;         // The file it came from.
};

// The process' driver: opened and initialised on the first call (an attempt that fails is remembered, too). Errors
// (unavailable) say what is missing: the library, a symbol, a new enough version (kMinDriverVersion), cuInit's own words.
Expected<const Driver*> driver();
inline constexpr int kMinDriverVersion = 12000;

// Opens and initialises the driver library at `path` ("" searches as driver() does), without remembering it. For tests.
Expected<std::unique_ptr<Driver>> open_driver(const std::string& path);

// "cuMemAlloc(1024 bytes): CUDA_ERROR_OUT_OF_MEMORY (out of memory)", with a fitting code.
Error driver_error(const Driver& driver, CUresult result, std::string_view what);

// One device with its primary context, which is retained once and kept for the life of the process.
struct DeviceContext {
  const Driver* driver = nullptr;
  int index = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  DeviceInfo info;
};

// Every device of `driver` without touching a context.
Expected<std::vector<DeviceInfo>> list_devices(const Driver& driver);
// The context of device `index` of driver(): made on the first call, about 100-300 ms. Thread-safe.
Expected<const DeviceContext*> device_context(int index);

// Makes a device's context current for the life of the object and then the previous one again.
class CurrentContext {
 public:
  explicit CurrentContext(const DeviceContext& context) noexcept;
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  // CUDA_SUCCESS, or why the context could not be made current.
  CUresult result() const noexcept { return result_; }

 private:
  const Driver* driver_;
  CUresult result_;
};

}  // namespace octile::cuda
