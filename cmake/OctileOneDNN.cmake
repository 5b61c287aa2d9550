# SPDX-License-Identifier: Apache-2.0
# The oneDNN component, the vendor on the CPU.
octile_source_hash(octile_hash_onednn onednn_abi.h onednn_family.cpp onednn_matmuls.cpp onednn_matmuls.h onednn_weight.cpp
  row_epilogue.cpp row_values.cpp quantize_avx2.cpp ../../../components/onednn/onednn_component.cpp)
set_property(SOURCE src/octile/kernels/cpu/onednn_family.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  OCTILE_HASH_ONEDNN="${octile_hash_onednn}")

if(NOT OCTILE_WITH_ONEDNN)
  return()
endif()

# liboctile_onednn.so, built against the oneDNN that is found: Debian's libdnnl-dev, or a newer one named by dnnl_ROOT or
# DNNL_ROOT. oneDNN's own CMake package is not used, since Debian's wants OpenCL's development files and fails without them.
find_path(OCTILE_ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp
  HINTS ${dnnl_ROOT} ${DNNL_ROOT} ENV dnnl_ROOT ENV DNNL_ROOT PATH_SUFFIXES include)
find_library(OCTILE_ONEDNN_LIBRARY NAMES dnnl
  HINTS ${dnnl_ROOT} ${DNNL_ROOT} ENV dnnl_ROOT ENV DNNL_ROOT PATH_SUFFIXES lib lib64)
mark_as_advanced(OCTILE_ONEDNN_INCLUDE_DIR OCTILE_ONEDNN_LIBRARY)

set(octile_onednn_problem "")
if(NOT OCTILE_ONEDNN_INCLUDE_DIR OR NOT OCTILE_ONEDNN_LIBRARY)
  set(octile_onednn_problem "not found (Debian: apt-get install libdnnl-dev; elsewhere: set dnnl_ROOT)")
else()
  file(STRINGS "${OCTILE_ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" octile_onednn_lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" octile_onednn_version "${octile_onednn_lines}")
  file(STRINGS "${OCTILE_ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h" octile_onednn_runtime REGEX "define DNNL_CPU_RUNTIME ")
  if(octile_onednn_version VERSION_LESS 2.6)
    set(octile_onednn_problem "version ${octile_onednn_version} at ${OCTILE_ONEDNN_INCLUDE_DIR} is older than 2.6")
  elseif(NOT octile_onednn_runtime MATCHES "DNNL_RUNTIME_OMP")
    set(octile_onednn_problem "${octile_onednn_version} at ${OCTILE_ONEDNN_INCLUDE_DIR} does not use OpenMP on the CPU (${octile_onednn_runtime})")
  endif()
endif()

if(octile_onednn_problem)
  message(STATUS "oneDNN: ${octile_onednn_problem}: no CPU baseline from it")
  return()
endif()
message(STATUS "oneDNN: ${octile_onednn_version}, ${OCTILE_ONEDNN_LIBRARY}")

octile_add_component(octile_onednn src/components/onednn/onednn_component.cpp "${OCTILE_ONEDNN_INCLUDE_DIR}" "${OCTILE_ONEDNN_LIBRARY}")
