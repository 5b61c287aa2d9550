// SPDX-License-Identifier: Apache-2.0
// Packing, updating and unpacking weights on a GPU.
#include "octile/kernels/cuda/cuda_weight.h"

#include "octile/core/format.h"
#include "octile/kernels/known_devices.h"
#include "octile/quant/weight_source.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

constexpr int kFirstWithBoxes = 90;  // The copy engine came with sm_90.
// Rows on their way into or out of slabs: copied while the rows before are being permuted.
constexpr std::int64_t kStagingBytes = std::int64_t{32} << 20;
constexpr std::int64_t kScaleBytes = sizeof(float);

std::int64_t code_bytes_of(std::int64_t n, std::int64_t k) noexcept {
  return round_up(round_up(n, kWeightPadding) * round_up(k, kWeightPadding), 256);
}

// Memory for a weight of that shape, none of it written.
Expected<std::shared_ptr<CudaWeight>> allocate_weight(const DeviceContext& context, std::string_view layout, std::int64_t n,
                                                      std::int64_t k) {
  auto memory = allocate_device(context, code_bytes_of(n, k) + round_up(n, kWeightPadding) * kScaleBytes);
  if (!memory) {
    return memory.error();
  }
  return std::make_shared<CudaWeight>(context, layout, std::move(*memory), n, k);
}

Expected<void> upload_scales(const CudaWeight& weight, const WeightSource& source) {
  std::vector<float> scales(static_cast<std::size_t>(weight.n_padded()), 0.0F);
  for (std::int64_t row = 0; row < source.n; ++row) {
    scales[static_cast<std::size_t>(row)] = weight_scale(source, row);
  }
  return upload_bytes(weight.context(), weight.scales(), scales.data(), weight.n_padded() * kScaleBytes);
}

// The maps of a weight, where the device's copy engine takes any: `encode(encoder, i, map)` makes map i of `count`.
template <class Encode>
Expected<void> make_boxes(CudaWeight& weight, std::size_t count, const Encode& encode) {
  std::vector<TensorMap> boxes(count);
  const DeviceContext& context = weight.context();
  if (compute_capability(context.info.arch) >= kFirstWithBoxes) {
    if (const auto encoder = find_tensor_map_encoder(context); encoder) {
      const CurrentContext current(context);  // The driver checks the address against it.
      if (auto made = current.made(); !made) {
        return made;
      }
      for (std::size_t i = 0; i < count; ++i) {
        if (Expected<void> encoded = encode(*encoder, i, boxes[i]); !encoded) {
          return encoded;
        }
      }
    }
  }
  weight.set_boxes(std::move(boxes));
  return {};
}

// A stream that waits for no other and is drained at its end. The device's context must be current throughout.
class OwnStream {
 public:
  explicit OwnStream(const Driver& driver) noexcept : driver_(&driver) {
    created_ = driver.stream_create(&stream_, CU_STREAM_NON_BLOCKING);
  }
  ~OwnStream() {
    if (stream_ != nullptr) {
      driver_->stream_synchronize(stream_);
      driver_->stream_destroy(stream_);
    }
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  CUresult created() const noexcept { return created_; }
  CUstream get() const noexcept { return stream_; }

 private:
  const Driver* driver_;
  CUstream stream_ = nullptr;
  CUresult created_;
};

// Calls body(first, rows) for as many whole slabs at a time as the staging buffer holds.
template <class Body>
Expected<void> for_each_batch(const CudaWeight& weight, const CudaBuffer& staging, const Body& body) {
  const std::int64_t batch = staging.bytes() / (kSlabChannels * weight.k()) * kSlabChannels;
  for (std::int64_t first = 0; first < weight.n(); first += batch) {
    if (Expected<void> done = body(first, std::min(batch, weight.n() - first)); !done) {
      return done;
    }
  }
  return {};
}

Expected<std::unique_ptr<CudaBuffer>> allocate_staging(const CudaWeight& weight) {
  const std::int64_t slab = kSlabChannels * weight.k();
  return allocate_device(weight.context(), std::min(weight.n() * weight.k(), std::max(slab, kStagingBytes / slab * slab)));
}

// The part of a weight in slabs that holds `rows` channels from `first` on; its rows are at `rows_at`.
SlabCodes part_of(const CudaWeight& weight, std::int64_t first, std::int64_t rows, CUdeviceptr rows_at,
                  std::int64_t stride) noexcept {
  return {rows_at, stride, weight.codes() + static_cast<CUdeviceptr>(first * weight.k()), rows, weight.k()};
}

// Codes of the host or of the device into slabs, on `stream`. Codes of the host have been read when this returns.
Expected<void> fill_slabs(const CudaWeight& weight, const WeightSource& source, SourceMemory memory, CUstream stream) {
  const Driver& driver = *weight.context().driver;
  const std::int64_t stride = weight_row_stride(source);
  if (memory == SourceMemory::device) {
    return permute_slabs(weight.rows_to_slabs(), part_of(weight, 0, weight.n(), to_device_pointer(source.codes), stride),
                         stream);
  }
  const auto staging = allocate_staging(weight);
  if (!staging) {
    return staging.error();
  }
  Expected<void> filled = for_each_batch(weight, **staging, [&](std::int64_t first, std::int64_t rows) -> Expected<void> {
    const auto* const codes = static_cast<const std::uint8_t*>(source.codes) + first * stride;
    if (const CUresult result =
            copy_rows_from_host_async(driver, (*staging)->pointer(), weight.k(), codes, stride, weight.k(), rows, stream);
        result != CUDA_SUCCESS) {
      return device_error(weight.context(), result, format("copy of {} rows of {} codes to the device", rows, weight.k()));
    }
    return permute_slabs(weight.rows_to_slabs(), part_of(weight, first, rows, (*staging)->pointer(), weight.k()), stream);
  });
  // Also after a failure: what was enqueued reads the staging buffer and the caller's memory.
  const CUresult drained = driver.stream_synchronize(stream);
  if (filled && drained != CUDA_SUCCESS) {
    return device_error(weight.context(), drained, format("filling weight [{}, {}] in slabs", weight.n(), weight.k()));
  }
  return filled;
}

// Rows of bytes to the target of an unpacking.
CUresult copy_out(const Driver& driver, SourceMemory memory, void* to, std::int64_t to_stride, CUdeviceptr from,
                  std::int64_t from_stride, std::int64_t row_bytes, std::int64_t rows, CUstream stream) noexcept {
  return memory == SourceMemory::host
             ? copy_rows_to_host_async(driver, to, to_stride, from, from_stride, row_bytes, rows, stream)
             : copy_rows_async(driver, to_device_pointer(to), to_stride, from, from_stride, row_bytes, rows, stream);
}

// Slabs to rows of the host, by way of a staging buffer.
Expected<void> unpack_slabs_to_host(const CudaWeight& weight, const LoadedKernel& kernel, const UnpackTarget& target,
                                    std::int64_t stride, CUstream stream) {
  const Driver& driver = *weight.context().driver;
  const auto staging = allocate_staging(weight);
  if (!staging) {
    return staging.error();
  }
  Expected<void> copied = for_each_batch(weight, **staging, [&](std::int64_t first, std::int64_t rows) -> Expected<void> {
    const CUdeviceptr at = (*staging)->pointer();
    if (Expected<void> permuted = permute_slabs(kernel, part_of(weight, first, rows, at, weight.k()), stream); !permuted) {
      return permuted;
    }
    auto* const codes = static_cast<std::uint8_t*>(target.codes) + first * stride;
    if (const CUresult result = copy_out(driver, target.memory, codes, stride, at, weight.k(), weight.k(), rows, stream);
        result != CUDA_SUCCESS) {
      return device_error(weight.context(), result, format("copy of {} rows of {} codes from the device", rows, weight.k()));
    }
    return {};
  });
  const CUresult drained = driver.stream_synchronize(stream);
  if (copied && drained != CUDA_SUCCESS) {
    return device_error(weight.context(), drained, format("unpacking weight [{}, {}]", weight.n(), weight.k()));
  }
  return copied;
}

}  // namespace

Expected<const CudaWeight*> as_cuda_weight(const PackedWeight& weight, const DeviceContext& context) {
  const auto* cuda_weight = dynamic_cast<const CudaWeight*>(&weight);
  if (cuda_weight == nullptr) {
    return make_error(ErrorCode::invalid_argument, "wanted a weight in layout {} or {} on {}, got layout {}", kRowMajor,
                      kSlab64, context.info.id, weight.layout());
  }
  if (&cuda_weight->context() != &context) {
    return make_error(ErrorCode::invalid_argument, "the weight is on {} and the kernel was prepared on {}",
                      cuda_weight->context().info.id, context.info.id);
  }
  return cuda_weight;
}

Expected<void> update_weight(const CudaWeight& weight, const WeightSource& source, SourceMemory memory, CUstream stream) {
  const DeviceContext& context = weight.context();
  const Driver& driver = *context.driver;
  const CurrentContext current(context);
  if (auto made = current.made(); !made) {
    return made;
  }
  const auto scale_bytes = weight.n() * kScaleBytes;
  const bool on_host = memory == SourceMemory::host;
  // Rows of bytes to where the weight holds them.
  const auto copy = [&](CUdeviceptr to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
                        std::int64_t row_bytes, std::int64_t rows) {
    return on_host ? copy_rows_from_host_async(driver, to, to_stride, from, from_stride, row_bytes, rows, stream)
                   : copy_rows_async(driver, to, to_stride, to_device_pointer(from), from_stride, row_bytes, rows, stream);
  };
  CUresult result = CUDA_SUCCESS;
  if (weight.layout() == kSlab64) {
    if (auto filled = fill_slabs(weight, source, memory, stream); !filled) {
      return filled;
    }
  } else {
    result = copy(weight.codes(), weight.k_padded(), source.codes, weight_row_stride(source), weight.k(), weight.n());
  }
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

Expected<void> unpack_weight(const CudaWeight& weight, const UnpackTarget& target, CUstream stream) {
  const DeviceContext& context = weight.context();
  const Driver& driver = *context.driver;
  const std::int64_t stride = target.row_stride == 0 ? weight.k() : target.row_stride;
  const std::int64_t scale_bytes = weight.n() * kScaleBytes;
  LoadedKernel slabs_to_rows;
  if (weight.layout() == kSlab64) {
    auto loaded = load_slabs_to_rows(context);
    if (!loaded) {
      return loaded.error();
    }
    slabs_to_rows = std::move(*loaded);
  }
  const CurrentContext current(context);
  if (auto made = current.made(); !made) {
    return made;
  }
  CUresult result = CUDA_SUCCESS;
  if (weight.layout() != kSlab64) {
    result = copy_out(driver, target.memory, target.codes, stride, weight.codes(), weight.k_padded(), weight.k(), weight.n(),
                      stream);
  } else if (Expected<void> unpacked =
                 target.memory == SourceMemory::host
                     ? unpack_slabs_to_host(weight, slabs_to_rows, target, stride, stream)
                     : permute_slabs(slabs_to_rows, part_of(weight, 0, weight.n(), to_device_pointer(target.codes), stride),
                                     stream);
             !unpacked) {
    return unpacked;
  }
  if (result == CUDA_SUCCESS && target.scales != nullptr) {
    result =
        copy_out(driver, target.memory, target.scales, scale_bytes, weight.scales(), scale_bytes, scale_bytes, 1, stream);
  }
  if (result == CUDA_SUCCESS && target.memory == SourceMemory::host) {
    result = driver.stream_synchronize(stream);
  }
  if (result != CUDA_SUCCESS) {
    return device_error(context, result, format("unpacking weight [{}, {}]", weight.n(), weight.k()));
  }
  return {};
}

Expected<std::shared_ptr<CudaWeight>> pack_row_major(const DeviceContext& context, const WeightSource& source) {
  auto made = allocate_weight(context, kRowMajor, source.n, source.k);
  if (!made) {
    return made;
  }
  CudaWeight& weight = **made;
  if (weight.n_padded() != source.n || weight.k_padded() != source.k) {
    if (auto filled = fill_bytes(context, weight.codes(), 0, code_bytes_of(source.n, source.k)); !filled) {
      return filled.error();
    }
  }
  if (auto copied = upload_rows(context, weight.codes(), weight.k_padded(), source.codes, weight_row_stride(source),
                                source.k, source.n);
      !copied) {
    return copied.error();
  }
  if (auto copied = upload_scales(weight, source); !copied) {
    return copied.error();
  }
  const auto encode = [&](const TensorMapEncoder& encoder, std::size_t i, TensorMap& map) {
    return encode_rows(encoder, weight.codes(), source.n, source.k, weight.k_padded(), kWeightBoxRows[i], map);
  };
  if (auto boxed = make_boxes(weight, kWeightBoxRows.size(), encode); !boxed) {
    return boxed.error();
  }
  return made;
}

Expected<std::shared_ptr<CudaWeight>> pack_slab64(const DeviceContext& context, const WeightSource& source) {
  if (auto ok = check_slab64_shape(source.n, source.k); !ok) {
    return ok.error();
  }
  auto kernel = load_rows_to_slabs(context);
  if (!kernel) {
    return kernel.error();
  }
  auto made = allocate_weight(context, kSlab64, source.n, source.k);
  if (!made) {
    return made;
  }
  CudaWeight& weight = **made;
  weight.set_rows_to_slabs(std::move(*kernel));
  {
    const CurrentContext current(context);
    const OutsideCapture outside(*context.driver);
    if (auto ready = current.made(); !ready) {
      return ready.error();
    }
    const OwnStream stream(*context.driver);
    if (stream.created() != CUDA_SUCCESS) {
      return device_error(context, stream.created(), "cuStreamCreate");
    }
    if (auto filled = fill_slabs(weight, source, SourceMemory::host, stream.get()); !filled) {
      return filled.error();
    }
  }
  if (auto copied = upload_scales(weight, source); !copied) {
    return copied.error();
  }
  const auto encode = [&](const TensorMapEncoder& encoder, std::size_t i, TensorMap& map) {
    const SlabBox box = slab_box(i);
    return encode_slabs(encoder, weight.codes(), source.n, source.k, box.rows, box.chunks, map);
  };
  if (auto boxed = make_boxes(weight, kSlabBoxes, encode); !boxed) {
    return boxed.error();
  }
  return made;
}

}  // namespace octile::cuda
