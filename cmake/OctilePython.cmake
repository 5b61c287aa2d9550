# SPDX-License-Identifier: Apache-2.0
# The module octile._core and what a wheel holds besides, all of component "python": liboctile under its soname, the
# command, the components and the tables, in one tree below the package, so that each finds the others by its own place.
# Built by pip (pyproject.toml), which sets the install prefix to the package.
include(cmake/OctilePythonModule.cmake)

# Type stubs of the module, from the module itself.
nanobind_add_stub(octile_core_stub MODULE _core OUTPUT ${PROJECT_BINARY_DIR}/_core.pyi
  PYTHON_PATH $<TARGET_FILE_DIR:octile_core> DEPENDS octile_core)

add_custom_target(octile_python DEPENDS octile_core octile_core_stub octile octile_cli)
install(TARGETS octile_core LIBRARY DESTINATION . COMPONENT python)
install(FILES ${PROJECT_BINARY_DIR}/_core.pyi DESTINATION . COMPONENT python)
# A wheel holds no links, so the library goes in under the one name that is asked for.
install(PROGRAMS $<TARGET_FILE:octile> DESTINATION lib RENAME $<TARGET_SONAME_FILE_NAME:octile> COMPONENT python)
install(TARGETS octile_cli RUNTIME DESTINATION bin COMPONENT python)
if(octile_d3_files)
  install(FILES ${OCTILE_D3_LICENCE} DESTINATION share/doc/octile RENAME d3.copyright COMPONENT python)
endif()
install(DIRECTORY tables/ DESTINATION share/octile/tables COMPONENT python PATTERN .octile.lock EXCLUDE)
foreach(component octile_onednn octile_hwloc octile_cutlass)
  if(TARGET ${component})
    add_dependencies(octile_python ${component})
    install(TARGETS ${component} LIBRARY DESTINATION lib/octile COMPONENT python)
  endif()
endforeach()
