# SPDX-License-Identifier: Apache-2.0
# liboctile_openmpi.so and liboctile_mpich.so, for `octile tune --mpi`: one source, built against each of the two that
# pkg-config finds. Both may be installed side by side, as Debian's packages are; the command is linked to neither.
if(NOT OCTILE_WITH_MPI)
  return()
endif()
find_package(PkgConfig QUIET)

function(octile_mpi_component library module debian)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(octile_${library} QUIET ${module})
  endif()
  if(NOT octile_${library}_FOUND)
    message(STATUS "MPI: ${library} not found by pkg-config as ${module} (Debian: apt-get install ${debian}; elsewhere: set PKG_CONFIG_PATH)")
    return()
  endif()
  message(STATUS "MPI: ${library} ${octile_${library}_VERSION}")
  add_library(octile_mpi_${library} MODULE src/components/mpi/mpi_component.cpp)
  set_target_properties(octile_mpi_${library} PROPERTIES OUTPUT_NAME octile_${library}
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" INSTALL_RPATH_USE_LINK_PATH ON)
  target_compile_definitions(octile_mpi_${library} PRIVATE OCTILE_MPI_LIBRARY="${library}" OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_include_directories(octile_mpi_${library} PRIVATE src)
  target_include_directories(octile_mpi_${library} SYSTEM PRIVATE ${octile_${library}_INCLUDE_DIRS})
  # MPI's headers cast their constants the way of C.
  target_compile_options(octile_mpi_${library} PRIVATE -Wno-old-style-cast -Wno-cast-qual)
  # Not what the MPI library needs for itself (hwloc, UCX, ...): it brings that along.
  foreach(name IN LISTS octile_${library}_LIBRARIES)
    if(name MATCHES "^mpi")
      find_library(OCTILE_${library}_LIBRARY NAMES ${name} HINTS ${octile_${library}_LIBRARY_DIRS} NO_CACHE)
      target_link_libraries(octile_mpi_${library} PRIVATE ${OCTILE_${library}_LIBRARY})
    endif()
  endforeach()
  target_link_libraries(octile_mpi_${library} PRIVATE octile_options ${CMAKE_DL_LIBS})
  # Whoever builds the command has the component beside it.
  add_dependencies(octile_static octile_mpi_${library})
  install(TARGETS octile_mpi_${library} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/octile")
endfunction()

octile_mpi_component(openmpi ompi-c "libopenmpi-dev openmpi-bin")
octile_mpi_component(mpich mpich "libmpich-dev mpich")
