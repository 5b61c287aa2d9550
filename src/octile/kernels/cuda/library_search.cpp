// SPDX-License-Identifier: Apache-2.0
// Finds and opens a CUDA library at run time: a copy already in the process first, then where toolkits and wheels put them.
#include "octile/kernels/cuda/library_search.h"

#include "octile/core/env.h"
#include "octile/core/format.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace octile::cuda {
namespace fs = std::filesystem;
namespace {

std::string mapped_path(void* handle, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr && map->l_name != nullptr &&
      *map->l_name != '\0') {
    return map->l_name;
  }
  return fallback;
}

std::string loader_words() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// Subdirectories of `directory` in order of their names; empty where it cannot be read.
std::vector<fs::path> children(const fs::path& directory) {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    result.push_back(it->path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

// cu14, cu13 (the layout of one directory a release), then one directory a component.
bool newest_bundle_first(const fs::path& a, const fs::path& b) {
  const auto is_bundle = [](const std::string& name) {
    return name.size() > 2 && name.starts_with("cu") && name[2] >= '1' && name[2] <= '9';
  };
  const std::string x = a.filename().string();
  const std::string y = b.filename().string();
  if (is_bundle(x) != is_bundle(y)) {
    return is_bundle(x);
  }
  return is_bundle(x) ? y < x : x < y;
}

class DirectoryList {
 public:
  void add(const fs::path& directory) {
    std::error_code error;
    if (!directory.is_absolute() || !fs::is_directory(directory, error)) {
      return;
    }
    std::string text = directory.lexically_normal().string();
    if (std::find(list_.begin(), list_.end(), text) == list_.end()) {
      list_.push_back(std::move(text));
    }
  }
  // A toolkit's root, or a directory of libraries.
  void add_root(const fs::path& root) {
    add(root / "lib64");
    add(root / "lib");
    add(root / "targets" / "x86_64-linux" / "lib");
    add(root);
  }
  // The wheels below a Python prefix: nvidia/cu13/lib since CUDA 13, nvidia/<component>/lib before.
  void add_python_prefix(const fs::path& prefix) {
    for (const char* lib : {"lib", "lib64", "local/lib"}) {
      for (const fs::path& python : children(prefix / lib)) {
        if (!python.filename().string().starts_with("python3")) {
          continue;
        }
        for (const char* packages : {"site-packages", "dist-packages"}) {
          std::vector<fs::path> wheels = children(python / packages / "nvidia");
          std::sort(wheels.begin(), wheels.end(), newest_bundle_first);
          for (const fs::path& wheel : wheels) {
            add(wheel / "lib");
          }
        }
      }
    }
  }

  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

// The prefix of the first python3 in PATH, with links resolved only as far as a virtual environment's own directory.
fs::path python_prefix() {
  const std::string path = environment("PATH");
  std::string_view rest = path;
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const fs::path directory(rest.substr(0, colon));
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    std::error_code error;
    if (!directory.empty() && fs::exists(directory / "python3", error)) {
      return directory.parent_path();
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> own_library_directories() {
  DirectoryList list;
  const auto own = env::get_text("OCTILE_CUDA_PATH");
  std::string_view rest = own ? std::string_view(*own) : std::string_view();
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    list.add_root(fs::path(rest.substr(0, colon)));
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return list.take();
}

std::vector<std::string> cuda_library_directories() {
  DirectoryList list;
  for (const std::string& directory : own_library_directories()) {
    list.add(directory);
  }
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string root = environment(name); !root.empty()) {
      list.add_root(root);
    }
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = environment(name); !prefix.empty()) {
      list.add_python_prefix(prefix);
    }
  }
  list.add_root("/usr/local/cuda");
  std::vector<fs::path> toolkits = children("/usr/local");
  std::reverse(toolkits.begin(), toolkits.end());
  for (const fs::path& toolkit : toolkits) {
    if (toolkit.filename().string().starts_with("cuda-")) {
      list.add_root(toolkit);
    }
  }
  if (const fs::path prefix = python_prefix(); !prefix.empty()) {
    list.add_python_prefix(prefix);
  }
  list.add_python_prefix("/usr/local");
  list.add_python_prefix("/usr");
  if (const std::string home = environment("HOME"); !home.empty()) {
    list.add_python_prefix(fs::path(home) / ".local");
  }
  return list.take();
}

Expected<SharedLibrary> open_library_file(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return make_error(ErrorCode::unavailable, "cannot load {}: {}", path, loader_words());
  }
  return SharedLibrary{handle, mapped_path(handle, path), false};
}

Expected<SharedLibrary> open_library(const LibraryName& name) {
  for (const std::string& soname : name.sonames) {
    if (void* handle = dlopen(soname.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
      return SharedLibrary{handle, mapped_path(handle, soname), true};
    }
  }
  std::string failures;
  const std::vector<std::string> directories = name.in_toolkit ? cuda_library_directories() : own_library_directories();
  for (const std::string& directory : directories) {
    for (const std::string& soname : name.sonames) {
      const fs::path file = fs::path(directory) / soname;
      std::error_code error;
      if (!fs::exists(file, error)) {
        continue;
      }
      auto library = open_library_file(file.string());
      if (library) {
        return library;
      }
      failures += "; " + library.error().message;
    }
  }
  for (const std::string& soname : name.sonames) {
    auto library = open_library_file(soname);
    if (library) {
      return library;
    }
    if (library.error().message.find("No such file") == std::string::npos) {
      failures += "; " + library.error().message;
    }
  }
  std::string names;
  for (const std::string& soname : name.sonames) {
    names += (names.empty() ? "" : " or ") + soname;
  }
  return make_error(ErrorCode::unavailable, "{} not found: no {} in {} directories nor on the loader's path{}", name.label,
                    names, directories.size(), failures);
}

void* find_symbol(const SharedLibrary& library, const char* symbol) noexcept { return dlsym(library.handle, symbol); }

}  // namespace octile::cuda
