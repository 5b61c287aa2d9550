# SPDX-License-Identifier: Apache-2.0
# Warnings, and sanitizers or hardening, for every target of this project.
add_library(octile_options INTERFACE)
target_compile_options(octile_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual
  $<$<BOOL:${OCTILE_WERROR}>:-Werror>)
# libstdc++ 12's std::stable_sort calls what C++23 deprecates, which clang reports at our call.
target_compile_options(octile_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
# The contract fixes the order and the roundings of the epilogue, so a multiplication and an addition are never fused
# behind our back (GCC would, also across intrinsics, in functions whose target has FMA).
target_compile_options(octile_options INTERFACE -ffp-contract=off)
if(OCTILE_SANITIZE)
  target_compile_options(octile_options INTERFACE -fsanitize=${OCTILE_SANITIZE} -fno-omit-frame-pointer)
  if(OCTILE_SANITIZE MATCHES "undefined")
    target_compile_options(octile_options INTERFACE -fno-sanitize-recover=all)
    # Clang's check of the types of functions that are called by pointer compares names of structs, which the libraries that
    # are opened at run time have of their own.
    target_compile_options(octile_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  endif()
  # GCC's names for what is checked, which clang 19 does not define.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    foreach(check address thread)
      string(TOUPPER ${check} macro)
      if(OCTILE_SANITIZE MATCHES ${check})
        target_compile_definitions(octile_options INTERFACE __SANITIZE_${macro}__=1)
      endif()
    endforeach()
    # Its unrolled loops with checks take clang minutes to optimise.
    set_source_files_properties(src/octile/kernels/cpu/engine_avx512_dot.cpp PROPERTIES
      COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON)
  endif()
  target_link_options(octile_options INTERFACE -fsanitize=${OCTILE_SANITIZE})
else()
  include(${CMAKE_CURRENT_LIST_DIR}/OctileHardening.cmake)
endif()
