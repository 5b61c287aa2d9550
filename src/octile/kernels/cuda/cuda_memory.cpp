// SPDX-License-Identifier: Apache-2.0
// Device memory and copies.
#include "octile/kernels/cuda/cuda_memory.h"

#include "octile/core/format.h"

#include <algorithm>
#include <utility>

namespace octile::cuda {
namespace {

// Runs `call` with the device's context current and outside any capture of this thread.
template <class Call>
Expected<void> on_device(const DeviceContext& context, const char* what, std::int64_t bytes, Call call) {
  const CurrentContext current(context);
  if (auto made = current.made(); !made) {
    return made.error();
  }
  const OutsideCapture outside(*context.driver);
  if (const CUresult result = call(*context.driver); result != CUDA_SUCCESS) {
    return device_error(context, result, format("{} of {} bytes", what, bytes));
  }
  return {};
}

std::size_t size_of_bytes(std::int64_t bytes) noexcept { return static_cast<std::size_t>(bytes); }

// A copy of rows to a device, but for where they come from.
CUDA_MEMCPY2D copy_of_rows(CUdeviceptr destination, std::int64_t destination_stride, std::int64_t source_stride,
                           std::int64_t row_bytes, std::int64_t rows) noexcept {
  CUDA_MEMCPY2D copy = {};
  copy.srcPitch = size_of_bytes(source_stride);
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = destination;
  copy.dstPitch = size_of_bytes(destination_stride);
  copy.WidthInBytes = size_of_bytes(row_bytes);
  copy.Height = size_of_bytes(rows);
  return copy;
}

}  // namespace

CudaBuffer::~CudaBuffer() {
  const CurrentContext current(*context_);
  const OutsideCapture outside(*context_->driver);
  context_->driver->mem_free(pointer_);
}

void* CudaBuffer::data() const noexcept { return to_pointer(pointer_); }

void* to_pointer(CUdeviceptr pointer) noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer));  // NOLINT(performance-no-int-to-ptr)
}

CUdeviceptr to_device_pointer(const void* pointer) noexcept {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(pointer));
}

Expected<std::unique_ptr<CudaBuffer>> allocate_device(const DeviceContext& context, std::int64_t bytes) {
  if (bytes < 0) {
    return make_error(ErrorCode::invalid_argument, "cannot allocate {} bytes", bytes);
  }
  const std::int64_t taken = std::max<std::int64_t>(bytes, 256);
  CUdeviceptr pointer = 0;
  std::size_t free_bytes = 0;
  auto done = on_device(context, "cuMemAlloc", taken, [&](const Driver& driver) {
    const CUresult result = driver.mem_alloc(&pointer, size_of_bytes(taken));
    if (result != CUDA_SUCCESS) {
      std::size_t total_bytes = 0;
      driver.mem_get_info(&free_bytes, &total_bytes);
    }
    return result;
  });
  if (!done) {
    Error error = std::move(done).error();
    error.message += format("; {} bytes are free", free_bytes);
    return error;
  }
  return std::make_unique<CudaBuffer>(context, pointer, taken);
}

Expected<void> upload_bytes(const DeviceContext& context, CUdeviceptr destination, const void* source, std::int64_t bytes) {
  if (bytes == 0) {
    return {};
  }
  return on_device(context, "copy to the device", bytes,
                   [&](const Driver& driver) { return driver.memcpy_htod(destination, source, size_of_bytes(bytes)); });
}

Expected<void> download_bytes(const DeviceContext& context, void* destination, CUdeviceptr source, std::int64_t bytes) {
  if (bytes == 0) {
    return {};
  }
  return on_device(context, "copy from the device", bytes,
                   [&](const Driver& driver) { return driver.memcpy_dtoh(destination, source, size_of_bytes(bytes)); });
}

Expected<void> upload_rows(const DeviceContext& context, CUdeviceptr destination, std::int64_t destination_stride,
                           const void* source, std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows) {
  CUDA_MEMCPY2D copy = copy_of_rows(destination, destination_stride, source_stride, row_bytes, rows);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source;
  return on_device(context, "copy of rows to the device", row_bytes * rows,
                   [&](const Driver& driver) { return driver.memcpy_2d(&copy); });
}

CUresult copy_rows_from_host_async(const Driver& driver, CUdeviceptr destination, std::int64_t destination_stride,
                                   const void* source, std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows,
                                   CUstream stream) noexcept {
  CUDA_MEMCPY2D copy = copy_of_rows(destination, destination_stride, source_stride, row_bytes, rows);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source;
  return driver.memcpy_2d_async(&copy, stream);
}

CUresult copy_rows_to_host_async(const Driver& driver, void* destination, std::int64_t destination_stride,
                                 CUdeviceptr source, std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows,
                                 CUstream stream) noexcept {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = source;
  copy.srcPitch = size_of_bytes(source_stride);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = destination;
  copy.dstPitch = size_of_bytes(destination_stride);
  copy.WidthInBytes = size_of_bytes(row_bytes);
  copy.Height = size_of_bytes(rows);
  return driver.memcpy_2d_async(&copy, stream);
}

CUresult copy_rows_async(const Driver& driver, CUdeviceptr destination, std::int64_t destination_stride, CUdeviceptr source,
                         std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows, CUstream stream) noexcept {
  CUDA_MEMCPY2D copy = copy_of_rows(destination, destination_stride, source_stride, row_bytes, rows);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = source;
  return driver.memcpy_2d_async(&copy, stream);
}

Expected<void> fill_bytes(const DeviceContext& context, CUdeviceptr destination, unsigned char value, std::int64_t bytes) {
  return on_device(context, "fill", bytes,
                   [&](const Driver& driver) { return driver.memset_d8(destination, value, size_of_bytes(bytes)); });
}

}  // namespace octile::cuda
