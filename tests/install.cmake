# SPDX-License-Identifier: Apache-2.0
# Installs the build into a fresh prefix, then builds and runs the examples against it, outside of the tree.
if(NOT OCTILE_SANITIZE)
  add_test(NAME install
    COMMAND ${CMAKE_COMMAND}
      -DBUILD=${PROJECT_BINARY_DIR} -DSOURCE=${PROJECT_SOURCE_DIR} -DWORK=${PROJECT_BINARY_DIR}/install_test
      -DC_COMPILER=${CMAKE_C_COMPILER} -DCXX_COMPILER=${CMAKE_CXX_COMPILER} -DNM=${CMAKE_NM}
      -DBINDIR=${CMAKE_INSTALL_BINDIR} -DLIBDIR=${CMAKE_INSTALL_LIBDIR} -DDATADIR=${CMAKE_INSTALL_DATADIR}
      -P ${CMAKE_CURRENT_SOURCE_DIR}/install/run.cmake)
  set_tests_properties(install PROPERTIES TIMEOUT 300 LABELS install)
endif()
