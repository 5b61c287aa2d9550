# SPDX-License-Identifier: Apache-2.0
# Where the library looks for its components (oneDNN, CUTLASS, MPI), built here or not.
file(RELATIVE_PATH octile_components_from_bin "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}/octile")
set_property(SOURCE src/octile/core/component.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  OCTILE_COMPONENTS_FROM_BIN="${octile_components_from_bin}" OCTILE_COMPONENTS_BUILT="${PROJECT_BINARY_DIR}"
  OCTILE_COMPONENTS_INSTALLED="${CMAKE_INSTALL_FULL_LIBDIR}/octile")
