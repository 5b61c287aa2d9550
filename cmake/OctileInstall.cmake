# SPDX-License-Identifier: Apache-2.0
# Install rules: the shared library, the headers, the tables, and what find_package(octile) and pkg-config read. The command
# and the components install themselves.
include(CMakePackageConfigHelpers)

# Of everything that is linked in, only Octile's public names leave the library.
set(octile_version_script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/octile.map)
if(NOT OCTILE_SANITIZE)  # A sanitizer's run-time lives in the program.
  set(octile_no_undefined LINKER:-z,defs)
endif()
target_link_options(octile PRIVATE "LINKER:--version-script=${octile_version_script}" ${octile_no_undefined})
set_target_properties(octile PROPERTIES LINK_DEPENDS ${octile_version_script})
target_compile_features(octile INTERFACE cxx_std_17)

install(TARGETS octile EXPORT octileTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/octile DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(DIRECTORY tables/ DESTINATION ${CMAKE_INSTALL_DATADIR}/octile/tables PATTERN .octile.lock EXCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(octile_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octile)
install(EXPORT octileTargets NAMESPACE octile:: DESTINATION ${octile_cmake_dir})
configure_package_config_file(cmake/octileConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/generated/octileConfig.cmake
  INSTALL_DESTINATION ${octile_cmake_dir})
# Before 1.0 a new minor version may break.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/generated/octileConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/generated/octileConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/generated/octileConfigVersion.cmake
        DESTINATION ${octile_cmake_dir})

# Paths in octile.pc start at the file's own place, so that an installed tree can be moved.
file(RELATIVE_PATH octile_pc_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
configure_file(cmake/octile.pc.in ${CMAKE_CURRENT_BINARY_DIR}/generated/octile.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/generated/octile.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
