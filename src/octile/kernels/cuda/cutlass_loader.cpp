// SPDX-License-Identifier: Apache-2.0
// Opening the CUTLASS component. What it says of itself is checked before it is believed: it is another compiler's work, and
// may be of another version.
#include "octile/kernels/cuda/cutlass_loader.h"

#include "octile/core/format.h"

namespace octile::cuda {
namespace {

constexpr std::int32_t kMostConfigs = 1024;

bool complete(const OctileCutlassApi& api) {
  return api.version != nullptr && api.source_hash != nullptr && api.config != nullptr && api.kernels_for != nullptr &&
         api.prepare != nullptr && api.can_run != nullptr && api.workspace_bytes != nullptr && api.run != nullptr &&
         api.error_text != nullptr;
}

bool sane(const OctileCutlassConfig& config) {
  return config.tile_m > 0 && config.tile_n > 0 && config.tile_k > 0 && config.warp_m > 0 && config.warp_n > 0 &&
         config.warp_k > 0 && config.stages > 0 && config.threads > 0 && config.shared_bytes >= 0;
}

// "" where `api` can serve.
std::string problem_of(const OctileCutlassApi* api, const std::string& path) {
  if (api == nullptr) {
    return format("{}: it gives no interface", path);
  }
  if (api->abi != OCTILE_CUTLASS_ABI) {
    return format("{}: want component interface {}, got {}: build it again (make cutlass)", path, OCTILE_CUTLASS_ABI,
                  api->abi);
  }
  if (api->struct_bytes < sizeof(OctileCutlassApi)) {
    return format("{}: want an interface of {} bytes, got {}: build it again (make cutlass)", path, sizeof(OctileCutlassApi),
                  api->struct_bytes);
  }
  if (!complete(*api)) {
    return format("{}: a function of its interface is missing", path);
  }
  if (api->config_count < 1 || api->config_count > kMostConfigs) {
    return format("{}: want 1 to {} kernels, got {}", path, kMostConfigs, api->config_count);
  }
  for (std::int32_t index = 0; index < api->config_count; ++index) {
    const OctileCutlassConfig* config = api->config(index);
    if (config == nullptr || config->struct_bytes < sizeof(OctileCutlassConfig) || !sane(*config)) {
      return format("{}: kernel {} of {} is not described as this interface asks", path, index, api->config_count);
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> cutlass_candidates() { return component_candidates("OCTILE_CUTLASS_PATH", kCutlassComponentFile); }

CutlassComponent open_cutlass(const std::vector<std::string>& candidates) {
  return open_component_api<OctileCutlassApi>(candidates, OCTILE_CUTLASS_ENTRY, problem_of);
}

const CutlassComponent& cutlass_component() {
  static const CutlassComponent component = open_cutlass(cutlass_candidates());
  return component;
}

}  // namespace octile::cuda
