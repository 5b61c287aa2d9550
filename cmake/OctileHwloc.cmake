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
add_library(octile_hwloc MODULE src/components/hwloc/hwloc_component.cpp)
set_target_properties(octile_hwloc PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" INSTALL_RPATH_USE_LINK_PATH ON)
target_include_directories(octile_hwloc PRIVATE src)
target_include_directories(octile_hwloc SYSTEM PRIVATE "${OCTILE_HWLOC_INCLUDE_DIR}")
target_link_libraries(octile_hwloc PRIVATE octile_options "${OCTILE_HWLOC_LIBRARY}")
# Whoever builds the library has the component beside it.
add_dependencies(octile_static octile_hwloc)
add_dependencies(octile octile_hwloc)
install(TARGETS octile_hwloc LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/octile")
