# SPDX-License-Identifier: Apache-2.0
# Hashes of the CPU families' sources, one of the hard keys of their table entries: an entry measured with other code is
# stale. Editing one of the files configures again.
function(octile_source_hash result)
  set(text "")
  foreach(file IN LISTS ARGN)
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/src/octile/kernels/cpu/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(SHA256 ${path} hash)
    string(APPEND text ${hash})
  endforeach()
  string(SHA256 hash "${text}")
  string(SUBSTRING ${hash} 0 16 hash)
  set(${result} ${hash} PARENT_SCOPE)
endfunction()

set(octile_cpu_shared activations.cpp engine.h gemm.cpp gemm_config.cpp gemm_config.h packed_weight.cpp packed_weight.h partition.h row_values.cpp)
set(octile_cpu_avx2 avx2_common.h panel_turns.h quantize_avx2.cpp x86_intrinsics.h)
octile_source_hash(octile_hash_reference ${octile_cpu_shared} engine_reference.cpp)
octile_source_hash(octile_hash_avx2 ${octile_cpu_shared} ${octile_cpu_avx2} engine_avx2.cpp)
octile_source_hash(octile_hash_avx512 ${octile_cpu_shared} ${octile_cpu_avx2} avx512_common.h avx512_decode.h engine_avx512_dot.cpp engine_avx512_fma.cpp)
octile_source_hash(octile_hash_amx ${octile_cpu_shared} ${octile_cpu_avx2} avx512_common.h avx512_decode.h amx_engine.h amx_tiles.h engine_amx.cpp)
set_source_files_properties(src/octile/kernels/cpu/families.cpp PROPERTIES COMPILE_DEFINITIONS
  "OCTILE_HASH_REFERENCE=\"${octile_hash_reference}\";OCTILE_HASH_AVX2=\"${octile_hash_avx2}\";OCTILE_HASH_AVX512=\"${octile_hash_avx512}\";OCTILE_HASH_AMX=\"${octile_hash_amx}\"")
