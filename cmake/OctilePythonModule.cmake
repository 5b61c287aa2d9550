# SPDX-License-Identifier: Apache-2.0
# The module octile._core, for the target octile::octile that is there: built with it, or found (python/CMakeLists.txt).
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB octile_python_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../python/src/*.cpp)
nanobind_add_module(octile_core STABLE_ABI NB_STATIC NB_SUPPRESS_WARNINGS PROTECT_STACK ${octile_python_sources})
set_target_properties(octile_core PROPERTIES OUTPUT_NAME _core INSTALL_RPATH "$ORIGIN/lib")
target_link_libraries(octile_core PRIVATE octile::octile octile_options)
