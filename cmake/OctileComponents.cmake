# SPDX-License-Identifier: Apache-2.0
# Where the library looks for its components (oneDNN, CUTLASS, MPI), built here or not.
file(RELATIVE_PATH octile_components_from_bin "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}/octile")
set_property(SOURCE src/octile/core/component.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  OCTILE_COMPONENTS_FROM_BIN="${octile_components_from_bin}" OCTILE_COMPONENTS_BUILT="${PROJECT_BINARY_DIR}"
  OCTILE_COMPONENTS_INSTALLED="${CMAKE_INSTALL_FULL_LIBDIR}/octile")

# A component of one source file, built against the library at the headers in `include`. Whoever builds the library has it
# beside it.
function(octile_add_component target source include library)
  add_library(${target} MODULE ${source})
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" INSTALL_RPATH_USE_LINK_PATH ON)
  target_include_directories(${target} PRIVATE src)
  target_include_directories(${target} SYSTEM PRIVATE "${include}")
  target_link_libraries(${target} PRIVATE octile_options "${library}" ${CMAKE_DL_LIBS})
  add_dependencies(octile_static ${target})
  add_dependencies(octile ${target})
  install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/octile")
endfunction()
