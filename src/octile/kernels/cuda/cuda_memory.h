// SPDX-License-Identifier: Apache-2.0
// Device memory and copies.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/driver.h"

#include <cstdint>
#include <memory>

namespace octile::cuda {

// Memory of one device, freed with the object. 256-byte aligned.
class CudaBuffer final : public DeviceBuffer {
 public:
  CudaBuffer(const DeviceContext& context, CUdeviceptr pointer, std::int64_t bytes) noexcept
      : context_(&context), pointer_(pointer), bytes_(bytes) {}
  ~CudaBuffer() override;
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  void* data() const noexcept override;
  std::int64_t bytes() const noexcept override { return bytes_; }
  CUdeviceptr pointer() const noexcept { return pointer_; }

 private:
  const DeviceContext* context_;
  CUdeviceptr pointer_;
  std::int64_t bytes_;
};

// A device pointer as the interfaces' void*, and back.
void* to_pointer(CUdeviceptr pointer) noexcept;
CUdeviceptr to_device_pointer(const void* pointer) noexcept;

// `bytes` >= 0; at least 256 are taken. Errors: out_of_memory with what was asked for and what is free.
Expected<std::unique_ptr<CudaBuffer>> allocate_device(const DeviceContext& context, std::int64_t bytes);
// Synchronous copies between host and device.
Expected<void> upload_bytes(const DeviceContext& context, CUdeviceptr destination, const void* source, std::int64_t bytes);
Expected<void> download_bytes(const DeviceContext& context, void* destination, CUdeviceptr source, std::int64_t bytes);
// `rows` rows of `row_bytes` each from host memory with `source_stride` bytes between rows.
Expected<void> upload_rows(const DeviceContext& context, CUdeviceptr destination, std::int64_t destination_stride,
                           const void* source, std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows);
// Enqueues a copy of `rows` rows of `row_bytes` each from or to the host's memory, or within that of the current context's
// device; strides in bytes.
CUresult copy_rows_from_host_async(const Driver& driver, CUdeviceptr destination, std::int64_t destination_stride,
                                   const void* source, std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows,
                                   CUstream stream) noexcept;
CUresult copy_rows_to_host_async(const Driver& driver, void* destination, std::int64_t destination_stride,
                                 CUdeviceptr source, std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows,
                                 CUstream stream) noexcept;
CUresult copy_rows_async(const Driver& driver, CUdeviceptr destination, std::int64_t destination_stride, CUdeviceptr source,
                         std::int64_t source_stride, std::int64_t row_bytes, std::int64_t rows, CUstream stream) noexcept;
Expected<void> fill_bytes(const DeviceContext& context, CUdeviceptr destination, unsigned char value, std::int64_t bytes);

}  // namespace octile::cuda
