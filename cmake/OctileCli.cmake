# SPDX-License-Identifier: Apache-2.0
# The `octile` command, bin/octile in the build folder, and its completion scripts, which it writes itself.
find_package(CLI11 REQUIRED)

# The commit is looked up at every build, so that recorded results name the sources that were built.
add_custom_target(octile_commit
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_CURRENT_SOURCE_DIR} -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/generated/octile_commit.h
          -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/OctileCommit.cmake
  BYPRODUCTS ${CMAKE_CURRENT_BINARY_DIR}/generated/octile_commit.h
  COMMENT "")

file(GLOB octile_cli_sources CONFIGURE_DEPENDS src/octile/cli/*.cpp)
list(FILTER octile_cli_sources EXCLUDE REGEX "/main\\.cpp$")

# Everything but main(), so that tests can link it.
add_library(octile_cli_objects OBJECT ${octile_cli_sources})
add_dependencies(octile_cli_objects octile_commit)
# The build's path goes to the one file that uses it, so that a compiler cache serves other builds of the same sources.
set_source_files_properties(src/octile/cli/context.cpp PROPERTIES INCLUDE_DIRECTORIES ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_include_directories(octile_cli_objects SYSTEM PRIVATE $<TARGET_PROPERTY:CLI11::CLI11,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(octile_cli_objects PUBLIC octile_static)
octile_precompile(library octile_cli_objects)

add_executable(octile_cli src/octile/cli/main.cpp)
set_target_properties(octile_cli PROPERTIES OUTPUT_NAME octile RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bin)
target_link_libraries(octile_cli PRIVATE octile_cli_objects octile_static)

set(octile_completions ${CMAKE_CURRENT_BINARY_DIR}/share/completions)
file(MAKE_DIRECTORY ${octile_completions})
add_custom_command(TARGET octile_cli POST_BUILD
  COMMAND octile_cli completion bash > ${octile_completions}/octile
  COMMAND octile_cli completion zsh > ${octile_completions}/_octile
  COMMAND octile_cli completion fish > ${octile_completions}/octile.fish
  COMMENT "" VERBATIM)
install(TARGETS octile_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${octile_completions}/octile DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${octile_completions}/_octile DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${octile_completions}/octile.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
