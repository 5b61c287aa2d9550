// SPDX-License-Identifier: Apache-2.0
// Opening the oneDNN component.
#include "octile/kernels/cpu/onednn_loader.h"

#include "octile/core/format.h"

namespace octile::cpu {
namespace {

bool complete(const OctileOnednnApi& api) {
  return api.version != nullptr && api.packed_bytes != nullptr && api.pack != nullptr && api.destroy_weight != nullptr &&
         api.create != nullptr && api.destroy != nullptr && api.scratchpad_bytes != nullptr &&
         api.implementation != nullptr && api.execute != nullptr && api.parallel != nullptr &&
         api.release_threads != nullptr;
}

// "" where `api` can serve.
std::string problem_of(const OctileOnednnApi* api, const std::string& path) {
  if (api == nullptr) {
    return format("{}: its oneDNN brings no OpenMP library that Octile can use", path);
  }
  if (api->abi != OCTILE_ONEDNN_ABI) {
    return format("{}: want component interface {}, got {}", path, OCTILE_ONEDNN_ABI, api->abi);
  }
  if (!complete(*api)) {
    return format("{}: a function of its interface is missing", path);
  }
  return {};
}

}  // namespace

std::vector<std::string> onednn_candidates() { return component_candidates("OCTILE_ONEDNN_PATH", kOnednnComponentFile); }

OnednnComponent open_onednn(const std::vector<std::string>& candidates) {
  return open_component_api<OctileOnednnApi>(candidates, OCTILE_ONEDNN_ENTRY, problem_of);
}

const OnednnComponent& onednn_component() {
  static const OnednnComponent component = open_onednn(onednn_candidates());
  return component;
}

}  // namespace octile::cpu
