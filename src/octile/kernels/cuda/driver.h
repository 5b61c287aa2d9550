// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time: its functions, its errors in words, and each device's primary context.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cuda_abi.h"
#include "octile/kernels/device.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {

// The oldest CUDA version whose driver serves: 12.0.
inline constexpr int kMinDriverVersion = 12000;

// libcuda.so.1, initialised, with the functions that are used. Never unloaded.
struct Driver {
  OCTILE_CUDA_DRIVER_FUNCTIONS(OCTILE_FUNCTION_FIELD)
  int version = 0;   // 13000 for CUDA 13.0: the newest API the driver speaks.
  std::string path;  // The file it came from.
};

// The process' driver: opened and initialised on the first call (an attempt that fails is remembered, too). Errors
// (unavailable) say what is missing: the library, a symbol, a new enough version, or quote cuInit's own words.
Expected<const Driver*> driver();
// Opens and initialises the library at `path` ("": searches as driver() does), without remembering it.
Expected<std::unique_ptr<Driver>> open_driver(const std::string& path);

// "13.0" of 13000.
std::string version_text(int version);
// The driver's own release, as "580.159.04", from the kernel module's file; "" where there is no such file (no /sys), or one
// that holds no version.
std::string driver_release(const std::string& file = "/sys/module/nvidia/version");
// "cuMemAlloc of 1024 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory)", with a fitting code.
Error driver_error(const Driver& driver, CUresult result, std::string_view what);

// One device with its primary context, which is retained once and kept for the life of the process.
struct DeviceContext {
  const Driver* driver = nullptr;
  CUdevice device = 0;
  CUcontext context = nullptr;
  DeviceInfo info;
};

// Every device of `driver`, without making a context. Errors: what the driver refused. No device: an empty list.
Expected<std::vector<DeviceInfo>> list_devices(const Driver& driver);
// The context of device `index` of driver(): made on the first call, about 100-300 ms. Thread-safe.
Expected<const DeviceContext*> device_context(int index);
// A context of `driver` that is the caller's to keep; the primary context stays retained. For tests of other drivers.
Expected<std::unique_ptr<DeviceContext>> open_device(const Driver& driver, int index);

// driver_error() of what was done on the device of `context`, which it names: "cuStreamCreate on cuda:0: ...".
Error device_error(const DeviceContext& context, CUresult result, std::string_view what);

// Makes a device's context current for the life of the object, and then the previous one again.
class CurrentContext {
 public:
  explicit CurrentContext(const DeviceContext& context) noexcept;
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  // The driver's words where the context could not be made current.
  Expected<void> made() const;

 private:
  const DeviceContext* context_;
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

// While it lives, this thread may allocate, load and synchronise although another thread captures a graph in global mode:
// such calls belong to no capture. Not for calls that are themselves to be captured.
class OutsideCapture {
 public:
  explicit OutsideCapture(const Driver& driver) noexcept;
  ~OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  const Driver* driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace octile::cuda
