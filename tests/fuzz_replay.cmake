# SPDX-License-Identifier: Apache-2.0
# The fuzz programs in every build, with any compiler: their corpora and a second of random changes of them. libFuzzer
# itself, which is guided by coverage, is `make fuzz`.
set(OCTILE_FUZZ_SECONDS 1 CACHE STRING "Seconds of random inputs for each fuzz program among the tests")
file(GLOB octile_fuzz_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/fuzz/*_fuzz.cpp)
# Some take their arguments off the input by a header of LLVM's.
include(CheckIncludeFileCXX)
check_include_file_cxx(fuzzer/FuzzedDataProvider.h OCTILE_HAS_FUZZED_DATA_PROVIDER)
add_library(octile_fuzz_replay OBJECT ${CMAKE_CURRENT_LIST_DIR}/fuzz/replay_main.cpp)
target_link_libraries(octile_fuzz_replay PRIVATE octile_options)
target_include_directories(octile_fuzz_replay PRIVATE ${CMAKE_CURRENT_LIST_DIR})
foreach(source IN LISTS octile_fuzz_sources)
  cmake_path(GET source STEM name)
  file(STRINGS ${source} needs_provider REGEX "include <fuzzer/FuzzedDataProvider.h>")
  if(needs_provider AND NOT OCTILE_HAS_FUZZED_DATA_PROVIDER)
    continue()
  endif()
  add_executable(${name}_replay ${source})
  target_link_libraries(${name}_replay PRIVATE octile_static octile_fuzz_replay)
  target_include_directories(${name}_replay PRIVATE ${CMAKE_CURRENT_LIST_DIR})
  add_dependencies(core_test_programs ${name}_replay)
  add_test(NAME ${name} COMMAND ${name}_replay ${OCTILE_FUZZ_SECONDS} ${CMAKE_CURRENT_LIST_DIR}/fuzz/corpus/${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS fuzz ENVIRONMENT "OCTILE_LOG_LEVEL=off;OCTILE_NUM_THREADS=2")
endforeach()
