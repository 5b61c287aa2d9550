# SPDX-License-Identifier: Apache-2.0
# The script of the test "install"; tests/install.cmake passes the variables. Every step must succeed.
cmake_minimum_required(VERSION 3.25)

# run(<what> COMMAND...): fails with the output where the command does; sets RUN_OUTPUT.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what}: ${status}\n${ARGN}\n${output}${errors}")
  endif()
  message(STATUS "${what}: ok\n${output}")
  set(RUN_OUTPUT "${output}" PARENT_SCOPE)
endfunction()

function(want_file path)
  if(NOT EXISTS "${prefix}/${path}")
    message(FATAL_ERROR "not installed: ${path}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
# Installed under one name and used under another, as packages are.
run("install" ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/staged")
set(prefix "${WORK}/prefix")
file(RENAME "${WORK}/staged" "${prefix}")
file(COPY "${SOURCE}/examples" DESTINATION "${WORK}")
set(ENV{LD_LIBRARY_PATH} "")
# No tables but those that are installed.
set(ENV{HOME} "${WORK}")
set(ENV{XDG_DATA_HOME} "")
set(ENV{OCTILE_TABLE_PATH} "")

want_file("${LIBDIR}/liboctile.so")
want_file("${DATADIR}/octile/tables/NVIDIA_L40S/README.md")
foreach(component onednn openmpi mpich)
  if(EXISTS "${BUILD}/liboctile_${component}.so")
    want_file("${LIBDIR}/octile/liboctile_${component}.so")
  endif()
endforeach()

# The binaries start where neither CUDA nor oneDNN nor MPI is: those are opened at run time.
foreach(binary "bin/octile" "${LIBDIR}/liboctile.so")
  run("what ${binary} needs" ldd "${prefix}/${binary}")
  if(RUN_OUTPUT MATCHES "(cuda|nvrtc|cublas|dnnl|gomp|libmpi|not found)[^\n]*")
    message(FATAL_ERROR "${binary} needs ${CMAKE_MATCH_0}")
  endif()
endforeach()

# Each public header alone, as strictly as a user may compile.
file(GLOB headers RELATIVE "${prefix}/include" "${prefix}/include/octile/*")
foreach(header IN LISTS headers)
  file(WRITE "${WORK}/one_header.cpp" "#include <${header}>\nint main() { return 0; }\n")
  run("C++17: ${header}" ${CXX_COMPILER} -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
      -fsyntax-only "-I${prefix}/include" "${WORK}/one_header.cpp")
endforeach()

# find_package(octile), C++17.
run("configure the C++ example" ${CMAKE_COMMAND} -S "${WORK}/examples/cpp" -B "${WORK}/cpp"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror")
run("build the C++ example" ${CMAKE_COMMAND} --build "${WORK}/cpp")
run("run the C++ example" "${WORK}/cpp/example")
if(NOT RUN_OUTPUT MATCHES "\"choice\":\"(baseline|heuristic|tile)\"")
  message(FATAL_ERROR "the C++ example explained nothing:\n${RUN_OUTPUT}")
endif()

# pkg-config, C99.
find_program(PKG_CONFIG NAMES pkg-config pkgconf REQUIRED)
set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
run("pkg-config" ${PKG_CONFIG} --cflags --libs octile)
separate_arguments(flags UNIX_COMMAND "${RUN_OUTPUT}")
run("build the C example" ${C_COMPILER} -std=c99 -Wall -Wextra -pedantic -Werror "${WORK}/examples/c/main.c"
    -o "${WORK}/c_example" ${flags} "-Wl,-rpath,${prefix}/${LIBDIR}")
run("run the C example" "${WORK}/c_example")

# Public names and nothing else leave the library.
run("exported names" ${NM} -D --defined-only --demangle "${prefix}/${LIBDIR}/liboctile.so")
string(REGEX REPLACE "\n+$" "" names "${RUN_OUTPUT}")
string(REPLACE ";" "," names "${names}")
string(REPLACE "\n" ";" names "${names}")
foreach(name IN LISTS names)
  if(NOT name MATCHES " T octile(_[a-z_]+$|::[A-Za-z0-9_:]+(\\[abi:cxx11\\])?\\()" OR name MATCHES "::Impl|::detail::|std::__")
    message(FATAL_ERROR "exported, but not public: ${name}")
  endif()
endforeach()
list(LENGTH names count)
if(count LESS 40)
  message(FATAL_ERROR "only ${count} names are exported: the public functions are not all there")
endif()

# The command finds the installed tables.
if(EXISTS "${prefix}/${BINDIR}/octile")
  run("explain" "${prefix}/${BINDIR}/octile" explain --device-name NVIDIA_L40S --n 4096 --k 4096 --m 3 --json)
  string(JSON table GET "${RUN_OUTPUT}" table_file)
  if(NOT table MATCHES "^${prefix}/")
    message(FATAL_ERROR "the installed command reads ${table}, not the installed tables")
  endif()
endif()
