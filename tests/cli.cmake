# SPDX-License-Identifier: Apache-2.0
# The command as its users meet it: a process with arguments, standard streams and an exit status.
if(TARGET octile_cli)
  file(GLOB octile_cli_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cli/*.cpp)
  add_executable(cli_tests ${octile_cli_tests})
  add_dependencies(cli_tests octile_cli)
  target_link_libraries(cli_tests PRIVATE octile_cli_objects octile_static GTest::gmock_main)
  octile_test_program(cli_tests)
  target_include_directories(cli_tests PRIVATE ${CMAKE_CURRENT_LIST_DIR})
  target_compile_definitions(cli_tests PRIVATE
    OCTILE_TEST_COMMAND="$<TARGET_FILE:octile_cli>" OCTILE_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME cli COMMAND cli_tests)
  set_tests_properties(cli PROPERTIES TIMEOUT 900 COST 60 LABELS core ENVIRONMENT "VIRTUAL_ENV=${PROJECT_SOURCE_DIR}/.venv")
  if(TARGET core_test_programs)
    add_dependencies(core_test_programs cli_tests)
  endif()
endif()
