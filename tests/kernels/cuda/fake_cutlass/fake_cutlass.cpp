// SPDX-License-Identifier: Apache-2.0
// A stand-in for liboctile_cutlass.so. Defines make it a component that must be refused: OCTILE_FAKE_ABI its interface
// number, OCTILE_FAKE_STRUCT_BYTES its struct's size, OCTILE_FAKE_WITHOUT_RUN a missing function, OCTILE_FAKE_BAD_CONFIG a
// kernel without stages, OCTILE_FAKE_WITHOUT_KERNELS none at all, OCTILE_FAKE_NULL no interface.
#include "fake_cutlass.h"

#include "octile/core/float_formats.h"

#include <vector>

namespace octile::cuda::fake {
namespace {

CutlassState& state() {
  static CutlassState instance;
  return instance;
}

const std::vector<OctileCutlassConfig>& configs() {
  static const std::vector<OctileCutlassConfig> all = [] {
    std::vector<OctileCutlassConfig> made;
    const auto add = [&](int m, int n, int k, int warp_m, int warp_n, int warp_k, int stages) {
      OctileCutlassConfig config = {};
      config.struct_bytes = sizeof(config);
      config.tile_m = m;
      config.tile_n = n;
      config.tile_k = k;
      config.warp_m = warp_m;
      config.warp_n = warp_n;
      config.warp_k = warp_k;
      config.stages = stages;
      config.threads = m / warp_m * (n / warp_n) * (k / warp_k) * 32;
      config.shared_bytes = (m + n) * k * stages;
      config.precise = warp_m * warp_n <= 64 * 32 ? 1 : 0;
      made.push_back(config);
    };
#define OCTILE_CUTLASS_TILE(...) add(__VA_ARGS__);
#include "components/cutlass/tiles.def"
#undef OCTILE_CUTLASS_TILE
#ifdef OCTILE_FAKE_BAD_CONFIG
    made.back().stages = 0;
#endif
    return made;
  }();
  return all;
}

const OctileCutlassConfig* config(std::int32_t index) {
  const bool exists = index >= 0 && index < static_cast<std::int32_t>(configs().size());
  return exists ? &configs()[static_cast<std::size_t>(index)] : nullptr;
}

// sm_89 as machine code, anything newer but sm_121 through PTX.
int kernels_for(std::int32_t capability) {
  if (capability == 89) {
    return OCTILE_CUTLASS_NATIVE_KERNELS;
  }
  return capability > 89 && capability != 121 ? OCTILE_CUTLASS_PTX_KERNELS : OCTILE_CUTLASS_NO_KERNELS;
}

int prepare(std::int32_t index, std::int32_t /*precise*/) {
  state().prepared.push_back(index);
  return state().prepare_code;
}

int can_run(std::int32_t /*index*/, const OctileCutlassProduct* product) { return product->k % 16 == 0 ? 0 : 7; }

std::int64_t workspace_bytes(std::int32_t /*index*/, const OctileCutlassProduct* /*product*/) {
  return state().workspace_bytes;
}

[[maybe_unused]] int run(std::int32_t index, const OctileCutlassProduct* product, void* workspace, void* /*stream*/) {
  if (state().run_code != 0) {
    return state().run_code;
  }
  state().runs.push_back({index, *product, workspace != nullptr});
  const OctileCutlassProduct& p = *product;
  const auto out = p.out == OCTILE_CUTLASS_BF16 ? DType::bf16 : (p.out == OCTILE_CUTLASS_FP16 ? DType::fp16 : DType::fp32);
  for (std::int64_t m = 0; m < p.m; ++m) {
    const auto* x = static_cast<const std::uint8_t*>(p.x) + m * p.x_stride;
    for (std::int64_t n = 0; n < p.n; ++n) {
      const auto* w = static_cast<const std::uint8_t*>(p.w) + n * p.w_stride;
      float sum = 0.0F;
      for (std::int64_t k = 0; k < p.k; ++k) {
        sum += e4m3_to_float(x[k]) * e4m3_to_float(w[k]);
      }
      float value = sum * p.scales_w[n];
      value *= state().ignores_scales_x ? 1.0F : p.scales_x[m];
      value += p.bias == nullptr ? -0.0F : p.bias[n];
      store_from_float(p.y, out, m * p.y_stride + n, value);
    }
  }
  return 0;
}

const char* error_text(int code) { return code == 0 ? "done" : "a fake component's failure"; }

}  // namespace
}  // namespace octile::cuda::fake

#ifndef OCTILE_FAKE_ABI
#define OCTILE_FAKE_ABI OCTILE_CUTLASS_ABI
#endif
#ifndef OCTILE_FAKE_STRUCT_BYTES
#define OCTILE_FAKE_STRUCT_BYTES sizeof(OctileCutlassApi)
#endif
#define OCTILE_FAKE extern "C" __attribute__((visibility("default")))

OCTILE_FAKE octile::cuda::fake::CutlassState* octile_fake_cutlass_state() { return &octile::cuda::fake::state(); }

OCTILE_FAKE const OctileCutlassApi* octile_cutlass_api() {
  namespace fake = octile::cuda::fake;
  static OctileCutlassApi api = {};
  api.abi = OCTILE_FAKE_ABI;
  api.struct_bytes = OCTILE_FAKE_STRUCT_BYTES;
  api.version = "4.2.0";
  api.source_hash = "0123456789abcdef";
  api.config_count = static_cast<std::int32_t>(fake::configs().size());
  api.config = fake::config;
  api.kernels_for = fake::kernels_for;
  api.prepare = fake::prepare;
  api.can_run = fake::can_run;
  api.workspace_bytes = fake::workspace_bytes;
  api.error_text = fake::error_text;
#ifndef OCTILE_FAKE_WITHOUT_RUN
  api.run = fake::run;
#endif
#ifdef OCTILE_FAKE_WITHOUT_KERNELS
  api.config_count = 0;
#endif
#ifdef OCTILE_FAKE_NULL
  constexpr bool kGivesNothing = true;
#else
  constexpr bool kGivesNothing = false;
#endif
  return kGivesNothing ? nullptr : &api;
}
