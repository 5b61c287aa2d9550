# SPDX-License-Identifier: Apache-2.0
# liboctile_hwloc.so: which NUMA node a core belongs to and where pages of a weight go. Without it all memory is treated as
# one node's.
if(NOT OCTILE_WITH_HWLOC)
  return()
endif()
find_path(OCTILE_HWLOC_INCLUDE_DIR hwloc.h)
find_library(OCTILE_HWLOC_LIBRARY NAMES hwloc)
mark_as_advanced(OCTILE_HWLOC_INCLUDE_DIR OCTILE_HWLOC_LIBRARY)
if(NOT OCTILE_HWLOC_INCLUDE_DIR OR NOT OCTILE_HWLOC_LIBRARY)
  message(STATUS "hwloc: not found (Debian: apt-get install libhwloc-dev): weights are not placed on NUMA nodes")
  return()
endif()
message(STATUS "hwloc: ${OCTILE_HWLOC_LIBRARY}")
octile_add_component(octile_hwloc src/components/hwloc/hwloc_component.cpp "${OCTILE_HWLOC_INCLUDE_DIR}" "${OCTILE_HWLOC_LIBRARY}")
