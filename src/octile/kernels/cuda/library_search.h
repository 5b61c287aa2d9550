// SPDX-License-Identifier: Apache-2.0
// Finds and opens a CUDA library at run time: a copy already in the process first, then where toolkits and wheels put them.
#pragma once

#include <octile/error.hpp>

#include <span>
#include <string>
#include <vector>

namespace octile::cuda {

// A shared library held open for the life of the process: NVIDIA's libraries keep threads and must not be unloaded.
struct SharedLibrary {
  void* handle = nullptr;
  std::string path;  // The file it was mapped from.
  bool already_loaded = false;
};

// A library by its file names, the newest first ("libnvrtc.so.13", "libnvrtc.so.12").
struct LibraryName {
  std::string label;  // For messages: "NVRTC".
  std::vector<std::string> sonames;
  bool in_toolkit = true;  // Toolkits and wheels carry it; libcuda comes with the driver alone.
};

// Directories of OCTILE_CUDA_PATH: directories with ':' between them, or roots of toolkits. Only those that exist.
std::vector<std::string> own_library_directories();
// All that are searched for a toolkit's library, in order: own_library_directories(), CUDA_HOME and CUDA_PATH, nvidia/*/lib
// in the site-packages of VIRTUAL_ENV and CONDA_PREFIX, /usr/local/cuda and /usr/local/cuda-*, the newest first, and the
// site-packages of the first python3 in PATH, the system and the user. Only those that exist. libcuda is never looked for in
// toolkits, whose copy is a stub.
std::vector<std::string> cuda_library_directories();

// Opens the first that loads. Errors (unavailable) name the library, how many directories were searched, and the loader's
// words for each file that exists and does not load.
Expected<SharedLibrary> open_library(const LibraryName& name);
// Opens this file alone.
Expected<SharedLibrary> open_library_file(const std::string& path);

// The address of `symbol`, or nullptr.
void* find_symbol(const SharedLibrary& library, const char* symbol) noexcept;

}  // namespace octile::cuda
