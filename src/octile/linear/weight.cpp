// SPDX-License-Identifier: Apache-2.0
// Fp8Weight: checks what a checkpoint holds and packs it into the layouts that its plan reads.
#include "octile/linear/weight.h"

#include "octile/core/env.h"
#include "octile/core/float_mode.h"
#include "octile/core/format.h"
#include "octile/linear/choose.h"
#include "octile/linear/engine_kernel.h"
#include "octile/quant/weight_source.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace octile {

namespace {

// Dimensions fit 31 bits, as the vendors' interfaces ask, and a weight 2^48 bytes, so that no offset overflows.
constexpr std::int64_t kMaxDimension = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;

// Sizes that are too small, check_weight_source() refuses.
Expected<void> check_sizes(const WeightSource& source) {
  if (source.n > kMaxDimension || source.k > kMaxDimension || source.row_stride > kMaxDimension ||
      std::max<std::int64_t>(source.n, 0) * std::max({source.k, source.row_stride, std::int64_t{0}}) > kMaxBytes) {
    return make_error(ErrorCode::invalid_argument,
                      "weight: want N, K and row stride <= {} and at most {} bytes, got [{}, {}] with row stride {}",
                      kMaxDimension, kMaxBytes, source.n, source.k, source.row_stride);
  }
  return {};
}

Expected<void> check_options(const WeightOptions& options) {
  if (options.out_dtype != DType::bf16 && options.out_dtype != DType::fp16 && options.out_dtype != DType::fp32) {
    return make_error(ErrorCode::invalid_argument, "output: want bf16, fp16 or fp32, got {}", to_string(options.out_dtype));
  }
  return {};
}

// The source with one fp32 scale a row, so that no packer widens or expands for itself. `scales` holds them.
WeightSource with_plain_scales(const WeightSource& source, std::vector<float>& scales) {
  scales.resize(static_cast<std::size_t>(source.n));
  for (std::int64_t row = 0; row < source.n; ++row) {
    scales[static_cast<std::size_t>(row)] = weight_scale(source, row);
  }
  WeightSource plain = source;
  plain.row_stride = weight_row_stride(source);
  plain.scales = scales.data();
  plain.scale_dtype = DType::fp32;
  plain.scale_count = source.n;
  return plain;
}

// What create() and update() ask of a source.
Expected<void> check_source(const WeightSource& source) {
  if (auto ok = check_sizes(source); !ok) {
    return ok;
  }
  return check_weight_source(source);
}

// Of memory that the host cannot read: pointers, shape and types alone.
Expected<void> check_device_source(const WeightSource& source) {
  if (source.codes == nullptr || source.scales == nullptr || source.code_dtype != DType::e4m3 ||
      source.scale_dtype != DType::fp32 || source.scale_count != source.n) {
    return make_error(ErrorCode::invalid_argument,
                      "update from device memory: want e4m3 codes and [n] = {} fp32 scales, got {} codes at {} and {} {} "
                      "scales at {}",
                      source.n, to_string(source.code_dtype), source.codes, source.scale_count,
                      to_string(source.scale_dtype), source.scales);
  }
  if (source.row_stride != 0 && source.row_stride < source.k) {
    return make_error(ErrorCode::invalid_argument, "update: want a row stride >= K = {}, got {}", source.k,
                      source.row_stride);
  }
  return check_sizes(source);
}

Expected<void> update(Fp8Weight::Impl& weight, const WeightSource& source, SourceMemory memory, void* stream) {
  const Problem& problem = weight.problem;
  if (source.n != problem.n || source.k != problem.k) {
    return make_error(ErrorCode::invalid_argument, "update: want the weight's shape [{}, {}], got [{}, {}]", problem.n,
                      problem.k, source.n, source.k);
  }
  if (auto ok = memory == SourceMemory::host ? check_source(source) : check_device_source(source); !ok) {
    return ok;
  }
  std::vector<float> scales;
  WeightSource plain = source;
  if (memory == SourceMemory::host) {
    plain = with_plain_scales(source, scales);
  }
  for (const auto& packed : weight.packed) {
    if (packed->layout() == kEngineLayout) {
      return make_error(ErrorCode::unavailable,
                        "update: the registered baseline has a copy of its own of weight [{}, {}]; create a new weight",
                        problem.n, problem.k);
    }
  }
  weight.updates.fetch_add(1, std::memory_order_acq_rel);  // Before the first byte is written.
  for (const auto& packed : weight.packed) {
    if (auto ok = weight.device.backend->update(weight.device.info, *packed, plain, memory, stream); !ok) {
      return ok;
    }
  }
  return {};
}

Expected<Fp8Weight> pack(const Device& device, const WeightSource& source, const WeightOptions& options) {
  if (auto ok = check_source(source); !ok) {
    return ok.error();
  }
  if (auto ok = check_options(options); !ok) {
    return ok.error();
  }
  const auto tuned = tuning_enabled();
  if (!tuned) {
    return tuned.error();
  }
  auto impl = std::make_shared<Fp8Weight::Impl>();
  impl->device = device;
  impl->problem = Problem{.n = source.n,
                          .k = source.k,
                          .out_dtype = options.out_dtype,
                          .bias = false,
                          .accumulate = options.accumulate,
                          .numerics = options.numerics,
                          .batch_invariant = options.batch_invariant,
                          .pdl = options.pdl,
                          .layout = options.layout};
  impl->tables = options.tables;
  impl->tuned = *tuned;

  if (*tuned) {
    if (auto ok = check_weight_layout(*device.backend, device.info, impl->problem); !ok) {
      return ok.error();
    }
  }
  const Plan plan = Plan::make(device.backend, device.info, impl->problem, impl->tables, impl->tuned);
  const auto layouts = plan.layouts(std::numeric_limits<std::int64_t>::max());
  if (layouts.empty()) {
    return make_error(ErrorCode::unavailable, "weight [{}, {}] on {}: {}", source.n, source.k, device.info.name,
                      plan.choose(1).reason);
  }
  std::vector<float> scales;
  const WeightSource plain = with_plain_scales(source, scales);
  for (const std::string& layout : layouts) {
    auto packed = layout == kEngineLayout ? pack_for_engine(*device.backend, device.info, plain)
                                          : device.backend->pack(device.info, layout, plain);
    if (!packed) {
      return std::move(packed).error();
    }
    impl->bytes += (*packed)->bytes();
    impl->packed.push_back(std::move(*packed));
  }
  return Fp8Weight(std::move(impl));
}

}  // namespace

Expected<Fp8Weight> pack_weight(const Device& device, const WeightSource& source, const WeightOptions& options) try {
  return pack(device, source, options);
} catch (const std::bad_alloc&) {
  return out_of_memory("weight [{}, {}]: out of memory", source.n, source.k);
}

const PackedWeight* packed_in_layout(const Fp8Weight::Impl& weight, std::string_view layout) noexcept {
  for (const auto& packed : weight.packed) {
    if (packed->layout() == layout) {
      return packed.get();
    }
  }
  return nullptr;
}

Expected<bool> tuning_enabled() {
  env::warn_of_misspelt();
  return env::get_bool("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE");
}

Expected<Fp8Weight> Fp8Weight::create(const WeightSource& source, const WeightOptions& options) try {
  const ScopedFloatMode mode;  // Subnormal scales are not 0.
  auto device = find_device(options.device);
  if (!device) {
    return Error{ErrorCode::unavailable, std::move(device).error().message};
  }
  return pack_weight(*device, source, options);
} catch (const std::bad_alloc&) {
  return out_of_memory("weight [{}, {}]: out of memory", source.n, source.k);
}

Expected<void> Fp8Weight::update(const WeightSource& source, SourceMemory memory, void* stream) try {
  const ScopedFloatMode mode;
  if (impl_ == nullptr) {
    return make_error(ErrorCode::invalid_argument, "update: the weight was moved from");
  }
  return octile::update(*impl_, source, memory, stream);
} catch (const std::bad_alloc&) {
  return out_of_memory("update of weight [{}, {}]: out of memory", source.n, source.k);
}

Expected<void> Fp8Weight::unpack(const UnpackTarget& target, void* stream) const try {
  if (impl_ == nullptr) {
    return make_error(ErrorCode::invalid_argument, "unpack: the weight was moved from");
  }
  const Problem& problem = impl_->problem;
  if (target.codes == nullptr || (target.row_stride != 0 && target.row_stride < problem.k)) {
    return make_error(ErrorCode::invalid_argument,
                      "unpack of weight [{}, {}]: want codes and a row stride of 0 or >= K, got codes at {}, row stride {}",
                      problem.n, problem.k, target.codes, target.row_stride);
  }
  return impl_->device.backend->unpack(impl_->device.info, *impl_->packed.front(), target, stream);
} catch (const std::bad_alloc&) {
  return make_error(ErrorCode::out_of_memory, "unpack of weight [{}, {}]: out of memory", impl_->problem.n,
                    impl_->problem.k);
}

std::string Fp8Weight::layout() const { return std::string(impl_->packed.front()->layout()); }
std::int64_t Fp8Weight::n() const noexcept { return impl_->problem.n; }
std::int64_t Fp8Weight::k() const noexcept { return impl_->problem.k; }
std::int64_t Fp8Weight::bytes() const noexcept { return impl_->bytes; }

}  // namespace octile
