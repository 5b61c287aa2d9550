// SPDX-License-Identifier: Apache-2.0
// Finding components and opening them with dlopen.
#include "octile/core/component.h"

#include "octile/core/env.h"
#include "octile/core/format.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace octile {
namespace {

// Absolute, since dlopen looks for a bare name in the system's folders instead of the current one.
std::string file_or_inside(const std::string& wanted, std::string_view file) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(wanted, error);
  return (std::filesystem::is_directory(path, error) ? path / file : path).string();
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

std::string last_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

// "" where the component was taken.
std::string open_one(const std::string& path, const char* entry_symbol, const AcceptComponent& accept) {
  // Local: the vendor's and its run-time's symbols must not become those of the program.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return last_dl_error();
  }
  void* entry = dlsym(library, entry_symbol);
  std::string reason = entry == nullptr ? format("{} has no symbol {}", path, entry_symbol) : accept(entry, path);
  if (!reason.empty()) {
    dlclose(library);
  }
  return reason;
}

}  // namespace

std::vector<std::string> component_candidates(std::string_view variable, std::string_view file) {
  const Expected<std::string> wanted = env::get_text(variable);
  if (wanted && !wanted->empty()) {
    return {file_or_inside(*wanted, file)};
  }
  std::vector<std::string> candidates;
  const auto add = [&](const std::string& folder) {
    std::string path = folder + "/" + std::string(file);
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

Component open_component(const std::vector<std::string>& candidates, const char* entry_symbol,
                         const AcceptComponent& accept) {
  Component component;
  for (const std::string& path : candidates) {
    std::string reason = "not found: " + path;
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      reason = open_one(path, entry_symbol, accept);
      if (reason.empty()) {
        return {path, ""};
      }
    }
    component.reason += (component.reason.empty() ? "" : "; ") + reason;
  }
  return component;
}

}  // namespace octile
