# SPDX-License-Identifier: Apache-2.0
# Headers of others that most sources include, precompiled (OCTILE_PCH, on in the presets asan and tsan): a third of
# clang's time there. GCC gains next to nothing by them, and its builds without them see every include that is missing.
if(OCTILE_PCH AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "OCTILE_PCH needs clang; this is ${CMAKE_CXX_COMPILER_ID}")
endif()
set(octile_precompiled_library <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <expected> <filesystem> <functional>
  <map> <memory> <mutex> <optional> <set> <span> <string> <thread> <vector> <nlohmann/json.hpp>)
set(octile_precompiled_tests ${octile_precompiled_library} <fstream> <random> <gmock/gmock.h> <gtest/gtest.h>)

# The targets of one kind, library or tests, are compiled with the same options; the first of them compiles the headers.
function(octile_precompile kind target)
  if(NOT OCTILE_PCH)
    return()
  endif()
  get_property(first GLOBAL PROPERTY octile_precompiled_by_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY octile_precompiled_by_${kind} ${target})
    target_precompile_headers(${target} PRIVATE ${octile_precompiled_${kind}})
    # Without the time of its making, the same headers are the same file to a compiler cache.
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()
