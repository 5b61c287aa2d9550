// SPDX-License-Identifier: Apache-2.0
// A weight resident on a GPU. The layout "row_major" is what every family on a GPU reads.
#include "octile/kernels/cuda/cuda_weight.h"

#include "octile/core/format.h"
#include "octile/kernels/known_devices.h"
#include "octile/quant/weight_source.h"

#include <cstddef>
#include <vector>

namespace octile::cuda {
namespace {

constexpr int kFirstWithBoxes = 90;  // The copy engine came with sm_90.

}  // namespace

Expected<const CudaWeight*> as_cuda_weight(const PackedWeight& weight, const DeviceContext& context) {
  const auto* cuda_weight = dynamic_cast<const CudaWeight*>(&weight);
  if (cuda_weight == nullptr) {
    return make_error(ErrorCode::invalid_argument, "wanted a weight in layout {} on {}, got layout {}", kRowMajor,
                      context.info.id, weight.layout());
  }
  if (&cuda_weight->context() != &context) {
    return make_error(ErrorCode::invalid_argument, "the weight is on {} and the kernel was prepared on {}",
                      cuda_weight->context().info.id, context.info.id);
  }
  return cuda_weight;
}

Expected<void> update_row_major(const CudaWeight& weight, const WeightSource& source, SourceMemory memory, CUstream stream) {
  const DeviceContext& context = weight.context();
  const Driver& driver = *context.driver;
  const CurrentContext current(context);
  if (auto made = current.made(); !made) {
    return made;
  }
  const auto scale_bytes = weight.n() * static_cast<std::int64_t>(sizeof(float));
  const bool on_host = memory == SourceMemory::host;
  // Rows of bytes to where the weight holds them.
  const auto copy = [&](CUdeviceptr to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
                        std::int64_t row_bytes, std::int64_t rows) {
    return on_host ? copy_rows_from_host_async(driver, to, to_stride, from, from_stride, row_bytes, rows, stream)
                   : copy_rows_async(driver, to, to_stride, to_device_pointer(from), from_stride, row_bytes, rows, stream);
  };
  CUresult result = copy(weight.codes(), weight.k_padded(), source.codes, weight_row_stride(source), weight.k(), weight.n());
  if (result == CUDA_SUCCESS) {
    result = copy(weight.scales(), scale_bytes, source.scales, scale_bytes, scale_bytes, 1);
  }
  if (result == CUDA_SUCCESS && on_host) {
    result = driver.stream_synchronize(stream);  // The caller may free the source.
  }
  if (result != CUDA_SUCCESS) {
    return driver_error(driver, result,
                        format("update of weight [{}, {}] on {}, whose codes may be partly the new ones", weight.n(),
                               weight.k(), context.info.id));
  }
  return {};
}

Expected<std::shared_ptr<CudaWeight>> pack_row_major(const DeviceContext& context, const WeightSource& source) {
  const std::int64_t n_padded = round_up(source.n, kWeightPadding);
  const std::int64_t k_padded = round_up(source.k, kWeightPadding);
  const std::int64_t code_bytes = round_up(n_padded * k_padded, 256);
  auto memory = allocate_device(context, code_bytes + n_padded * static_cast<std::int64_t>(sizeof(float)));
  if (!memory) {
    return memory.error();
  }
  auto weight = std::make_shared<CudaWeight>(context, std::move(*memory), source.n, source.k);
  if (n_padded != source.n || k_padded != source.k) {
    if (auto filled = fill_bytes(context, weight->codes(), 0, code_bytes); !filled) {
      return filled.error();
    }
  }
  if (auto copied =
          upload_rows(context, weight->codes(), k_padded, source.codes, weight_row_stride(source), source.k, source.n);
      !copied) {
    return copied.error();
  }
  std::vector<float> scales(static_cast<std::size_t>(n_padded), 0.0F);
  for (std::int64_t row = 0; row < source.n; ++row) {
    scales[static_cast<std::size_t>(row)] = weight_scale(source, row);
  }
  if (auto copied =
          upload_bytes(context, weight->scales(), scales.data(), n_padded * static_cast<std::int64_t>(sizeof(float)));
      !copied) {
    return copied.error();
  }
  if (compute_capability(context.info.arch) < kFirstWithBoxes) {
    return weight;
  }
  if (const auto encoder = find_tensor_map_encoder(*context.driver); encoder) {
    const CurrentContext current(context);  // The driver checks the address against it.
    if (auto made = current.made(); !made) {
      return made.error();
    }
    CudaWeight::RowBoxes boxes = {};
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      if (auto ok = encode_rows(*encoder, weight->codes(), source.n, source.k, k_padded, kWeightBoxRows[i], boxes[i]); !ok) {
        return ok.error();
      }
    }
    weight->set_row_boxes(boxes);
  }
  return weight;
}

}  // namespace octile::cuda
