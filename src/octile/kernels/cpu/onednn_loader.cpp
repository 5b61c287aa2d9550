// SPDX-License-Identifier: Apache-2.0
// Opening the oneDNN component with dlopen.
#include "octile/kernels/cpu/onednn_loader.h"

#include "octile/core/env.h"
#include "octile/core/format.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace octile::cpu {
namespace {

// Absolute, since dlopen looks for a bare name in the system's folders instead of the current one.
std::string file_or_inside(const std::string& wanted) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(wanted, error);
  return (std::filesystem::is_directory(path, error) ? path / kOnednnComponentFile : path).string();
}

// The folder of the shared library or executable that holds this code.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(info.dli_fname, error);
    if (!error) {
      return path.parent_path().string();
    }
  }
  return {};
}

std::string executable_folder() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.parent_path().string();
}

bool complete(const OctileOnednnApi& api) {
  return api.version != nullptr && api.packed_bytes != nullptr && api.pack != nullptr && api.destroy_weight != nullptr &&
         api.create != nullptr && api.destroy != nullptr && api.scratchpad_bytes != nullptr &&
         api.implementation != nullptr && api.execute != nullptr && api.parallel != nullptr &&
         api.release_threads != nullptr;
}

struct Opened {
  const OctileOnednnApi* api = nullptr;
  std::string reason;
};

std::string last_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

Opened open_one(const std::string& path) {
  // Local: oneDNN's and OpenMP's symbols must not become those of the program.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {.reason = last_dl_error()};
  }
  const auto entry = reinterpret_cast<OctileOnednnEntry>(dlsym(library, OCTILE_ONEDNN_ENTRY));
  Opened opened;
  if (entry == nullptr) {
    opened.reason = format("{} has no symbol {}", path, OCTILE_ONEDNN_ENTRY);
  } else if (const OctileOnednnApi* api = entry(); api == nullptr) {
    opened.reason = format("{}: its oneDNN brings no OpenMP library that Octile can use", path);
  } else if (api->abi != OCTILE_ONEDNN_ABI) {
    opened.reason = format("{}: want component interface {}, got {}", path, OCTILE_ONEDNN_ABI, api->abi);
  } else if (!complete(*api)) {
    opened.reason = format("{}: a function of its interface is missing", path);
  } else {
    opened.api = api;
    return opened;
  }
  dlclose(library);
  return opened;
}

}  // namespace

std::vector<std::string> onednn_candidates() {
  const Expected<std::string> wanted = env::get_text("OCTILE_ONEDNN_PATH");
  if (wanted && !wanted->empty()) {
    return {file_or_inside(*wanted)};
  }
  std::vector<std::string> candidates;
  const auto add = [&](const std::string& folder) {
    std::string path = folder + "/" + kOnednnComponentFile;
    if (!folder.empty() && std::ranges::find(candidates, path) == candidates.end()) {
      candidates.push_back(std::move(path));
    }
  };
  for (const std::string& folder : {own_folder(), executable_folder()}) {
    if (!folder.empty()) {
      add(folder);
      add(folder + "/octile");                       // Beside liboctile.so in the library folder.
      add(folder + "/" OCTILE_COMPONENTS_FROM_BIN);  // From bin/ to the library folder, wherever it was moved.
    }
  }
  add(OCTILE_COMPONENTS_BUILT);
  add(OCTILE_COMPONENTS_INSTALLED);
  return candidates;
}

OnednnComponent open_onednn(const std::vector<std::string>& candidates) {
  OnednnComponent component;
  for (const std::string& path : candidates) {
    std::string reason = "not found: " + path;
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      const Opened opened = open_one(path);
      if (opened.api != nullptr) {
        component.api = opened.api;
        component.path = path;
        component.reason.clear();
        return component;
      }
      reason = opened.reason;
    }
    component.reason += (component.reason.empty() ? "" : "; ") + reason;
  }
  return component;
}

const OnednnComponent& onednn_component() {
  static const OnednnComponent component = open_onednn(onednn_candidates());
  return component;
}

}  // namespace octile::cpu
