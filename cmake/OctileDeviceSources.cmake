# SPDX-License-Identifier: Apache-2.0
# Embeds every kernels/cuda/*.cuh as a string: the definition of octile::cuda::device_sources(). Written when CMake runs, and
# again whenever one of them changes; needs no tool but CMake.
file(GLOB octile_device_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/octile/kernels/cuda/*.cuh)
list(SORT octile_device_sources)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${octile_device_sources})

set(octile_embedded "// Written by cmake/OctileDeviceSources.cmake; do not edit.\n#include \"octile/kernels/cuda/compile.h\"\n\n")
string(APPEND octile_embedded "#include <array>\n\nnamespace octile::cuda {\n\nstd::span<const DeviceSource> device_sources() noexcept {\n")
list(LENGTH octile_device_sources octile_device_source_count)
string(APPEND octile_embedded "  static constexpr std::array<DeviceSource, ${octile_device_source_count}> kSources = {{\n")
foreach(device_source IN LISTS octile_device_sources)
  get_filename_component(device_source_name ${device_source} NAME)
  file(READ ${device_source} device_source_text)
  if(device_source_text MATCHES "\\)octile_cuh\"")
    message(FATAL_ERROR "${device_source} holds the delimiter of its own embedding, )octile_cuh\"")
  endif()
  string(APPEND octile_embedded "      DeviceSource{\"${device_source_name}\", R\"octile_cuh(${device_source_text})octile_cuh\"},\n")
endforeach()
string(APPEND octile_embedded "  }};\n  return kSources;\n}\n\n}  // namespace octile::cuda\n")

set(octile_embedded_file ${CMAKE_CURRENT_BINARY_DIR}/generated/device_sources.cpp)
octile_write_file(${octile_embedded_file} "${octile_embedded}")
target_sources(octile_objects PRIVATE ${octile_embedded_file})

# Header-only: nothing of it is needed at run time.
find_path(OCTILE_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
target_include_directories(octile_objects SYSTEM PRIVATE ${OCTILE_XXHASH_INCLUDE_DIR})
