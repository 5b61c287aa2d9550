// SPDX-License-Identifier: Apache-2.0
// Decoding a weight and handing it to oneDNN to pack.
#include "octile/kernels/cpu/onednn_weight.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/onednn_family.h"
#include "octile/kernels/cpu/onednn_loader.h"
#include "octile/kernels/cpu/onednn_matmuls.h"
#include "octile/kernels/cpu/row_values.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "octile/quant/weight_source.h"

#include <utility>

namespace octile::cpu {

DType onednn_value_dtype() {
  const CpuFeatures& features = cpu_features();
  const Expected<Isa> isa = usable_isa();
  return (features.avx512_bf16 || features.amx_bf16) && isa && *isa >= Isa::avx512 ? DType::bf16 : DType::fp32;
}

OnednnWeight::OnednnWeight(std::int64_t n, std::int64_t k, DType dtype, HostMemory packed, OctileOnednnWeight* handle,
                           std::vector<float> scales)
    : n_(n), k_(k), dtype_(dtype), packed_(std::move(packed)), handle_(handle), scales_(std::move(scales)) {}

OnednnWeight::~OnednnWeight() { onednn_component().api->destroy_weight(handle_); }

std::int64_t OnednnWeight::bytes() const noexcept { return packed_.bytes() + n_ * 4; }

std::string_view OnednnWeight::layout() const noexcept { return kOnednnLayout; }

Expected<std::shared_ptr<PackedWeight>> pack_onednn(const WeightSource& source) {
  if (Expected<void> ok = check_weight_source(source); !ok) {
    return ok.error();
  }
  const VendorStatus status = onednn_status();
  if (!status.available) {
    return make_error(ErrorCode::unavailable, "oneDNN: {}", status.reason);
  }
  const DType dtype = onednn_value_dtype();
  const OctileOnednnApi& api = *onednn_component().api;
  ThreadPool& pool = ThreadPool::instance();
  const OctileOnednnShape shape = {.m = 1,
                                   .n = source.n,
                                   .k = source.k,
                                   .dtype = dtype == DType::bf16 ? OCTILE_ONEDNN_BF16 : OCTILE_ONEDNN_F32,
                                   .threads = pool.size()};
  OctileOnednnError error{};
  std::int64_t packed_bytes = 0;
  if (api.packed_bytes(&shape, &packed_bytes, &error) != 0) {
    return make_error(ErrorCode::failed, "{} (N={}, K={})", error.text, source.n, source.k);
  }
  const std::int64_t row_bytes = source.k * size_of(dtype);
  Expected<HostMemory> rows = HostMemory::allocate(source.n * row_bytes);
  Expected<HostMemory> packed = HostMemory::allocate(packed_bytes);
  if (!rows || !packed) {
    return rows ? packed.error() : rows.error();
  }
  const auto* codes = static_cast<const std::uint8_t*>(source.codes);
  auto* decoded = static_cast<std::byte*>(rows->data());
  // As the component does: a small weight is packed by the caller alone.
  const int parts = source.n * source.k <= OCTILE_ONEDNN_SMALL_WEIGHT ? 1 : pool.size() * 4;
  const auto decode = [&](int part) {
    for (std::int64_t row = source.n * part / parts; row < source.n * (part + 1) / parts; ++row) {
      decode_codes(codes + row * weight_row_stride(source), source.k, dtype, decoded + row * row_bytes);
    }
  };
  pool.run(parts, decode);
  OctileOnednnWeight* handle = nullptr;
  {
    const OnednnTurn turn;
    if (api.pack(&shape, decoded, packed->data(), &handle, &error) != 0) {
      return make_error(ErrorCode::failed, "{} (N={}, K={})", error.text, source.n, source.k);
    }
  }
  std::vector<float> scales(static_cast<std::size_t>(source.n));
  for (std::int64_t row = 0; row < source.n; ++row) {
    scales[static_cast<std::size_t>(row)] = weight_scale(source, row);
  }
  return std::shared_ptr<PackedWeight>(
      std::make_shared<OnednnWeight>(source.n, source.k, dtype, *std::move(packed), handle, std::move(scales)));
}

VendorStatus onednn_status() {
  const OnednnComponent& component = onednn_component();
  return {.name = "onednn",
          .version = component.api == nullptr ? "" : component.api->version,
          .available = component.api != nullptr,
          .reason = component.reason};
}

}  // namespace octile::cpu
