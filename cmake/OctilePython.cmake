# SPDX-License-Identifier: Apache-2.0
# The module octile._core and what a wheel holds besides, all of component "python": liboctile under its soname, the
# command, the components and the tables, in one tree below the package, so that each finds the others by its own place.
# Built by pip (pyproject.toml), which sets the install prefix to the package.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB octile_python_sources CONFIGURE_DEPENDS python/src/*.cpp)
nanobind_add_module(octile_core STABLE_ABI NB_STATIC NB_SUPPRESS_WARNINGS ${octile_python_sources})
set_target_properties(octile_core PROPERTIES OUTPUT_NAME _core INSTALL_RPATH "$ORIGIN/lib")
target_link_libraries(octile_core PRIVATE octile octile_options)

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
install(DIRECTORY tables/ DESTINATION share/octile/tables COMPONENT python)
foreach(component octile_onednn octile_cutlass)
  if(TARGET ${component})
    add_dependencies(octile_python ${component})
    install(TARGETS ${component} LIBRARY DESTINATION lib/octile COMPONENT python)
  endif()
endforeach()
