// SPDX-License-Identifier: Apache-2.0
// Names and sizes of the public enumerations, and the quantiser's presets.
#include <octile/types.hpp>

#include "octile/core/format.h"

#include <string_view>

namespace octile {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::not_prepared:
      return "not_prepared";
    case ErrorCode::io:
      return "io";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::failed:
      return "failed";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
  }
  return "unknown";
}

const char* to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::fp32:
      return "fp32";
    case DType::e4m3:
      return "e4m3";
    case DType::e4m3fnuz:
      return "e4m3fnuz";
  }
  return "unknown";
}

std::int64_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::fp32:
      return 4;
    case DType::e4m3:
    case DType::e4m3fnuz:
      return 1;
  }
  return 0;
}

const char* to_string(WeightLayout layout) noexcept {
  switch (layout) {
    case WeightLayout::automatic:
      return "automatic";
    case WeightLayout::row_major:
      return "row_major";
    case WeightLayout::slab64:
      return "slab64";
  }
  return "unknown";
}

const char* to_string(Pdl pdl) noexcept {
  switch (pdl) {
    case Pdl::off:
      return "off";
    case Pdl::consume:
      return "consume";
    case Pdl::full:
      return "full";
  }
  return "unknown";
}

const char* to_string(Accumulate accumulate) noexcept {
  switch (accumulate) {
    case Accumulate::device_default:
      return "device_default";
    case Accumulate::fast:
      return "fast";
    case Accumulate::precise:
      return "precise";
  }
  return "unknown";
}

const char* to_string(Numerics numerics) noexcept { return numerics == Numerics::baseline ? "baseline" : "deterministic"; }

Expected<QuantizeOptions> quantize_preset(const char* engine) {
  const std::string_view name = engine == nullptr ? "" : engine;
  QuantizeOptions options;
  if (name == "octile") {
    return options;
  }
  // vLLM's dynamic per-token kernel bounds the scale (not amax) from below by 1 / (448 * 512) and divides by it.
  if (name == "vllm") {
    options.floor = 1.0F / 512.0F;
    return options;
  }
  // SGLang's per-token kernel has no floor and multiplies by 448 / amax; a row of zeros gets scale 0 there, which the
  // contract forbids, so the smallest floor stays.
  if (name == "sglang") {
    options.division = Division::reciprocal;
    return options;
  }
  return make_error(ErrorCode::invalid_argument, "no quantisation preset '{}': known are octile, vllm, sglang", name);
}

}  // namespace octile
