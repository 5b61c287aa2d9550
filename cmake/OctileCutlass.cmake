# SPDX-License-Identifier: Apache-2.0
# liboctile_cutlass.so, the vendor where cuBLASLt has no row-wise mode (sm_89, sm_120): compiled by nvcc from CUTLASS's headers
# where -DOCTILE_CUTLASS=ON asks for it (`make cutlass`). Never needed by the rest of the build: the library opens it at run time
# where it is there. nvcc is called by itself, since CMake's CUDA language would make a toolkit a condition of the project.
if(NOT OCTILE_CUTLASS)
  return()
endif()

set(OCTILE_CUTLASS_INCLUDE "" CACHE PATH "Folder that holds cutlass/cutlass.h; by default that of the wheel nvidia-cutlass in .venv")
find_program(OCTILE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT OCTILE_NVCC)
  message(FATAL_ERROR "OCTILE_CUTLASS=ON needs nvcc of CUDA 12.8 or newer, and none was found in PATH, CUDA_HOME, CUDA_PATH and "
                      "/usr/local/cuda. Name it with -DOCTILE_NVCC=/path/to/nvcc, or leave the component out with -DOCTILE_CUTLASS=OFF.")
endif()
execute_process(COMMAND ${OCTILE_NVCC} --version OUTPUT_VARIABLE octile_nvcc_says ERROR_VARIABLE octile_nvcc_says)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" octile_nvcc_release "${octile_nvcc_says}")
if(NOT octile_nvcc_release OR CMAKE_MATCH_1 VERSION_LESS 12.8)
  message(FATAL_ERROR "OCTILE_CUTLASS=ON needs nvcc of CUDA 12.8 or newer (sm_120); ${OCTILE_NVCC} --version says: ${octile_nvcc_says}")
endif()
set(octile_nvcc_version ${CMAKE_MATCH_1})

set(octile_cutlass_include "${OCTILE_CUTLASS_INCLUDE}")
if(NOT octile_cutlass_include)
  file(GLOB octile_cutlass_include ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/cutlass_library/source/include)
endif()
if(NOT EXISTS "${octile_cutlass_include}/cutlass/version.h")
  message(FATAL_ERROR "OCTILE_CUTLASS=ON needs CUTLASS's headers, and \"${octile_cutlass_include}\" holds no cutlass/version.h. "
                      "`scripts/setup.sh cutlass` installs the wheel nvidia-cutlass into .venv; -DOCTILE_CUTLASS_INCLUDE=DIR names other headers.")
endif()
file(STRINGS ${octile_cutlass_include}/cutlass/version.h octile_cutlass_lines REGEX "define CUTLASS_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" octile_cutlass_version "${octile_cutlass_lines}")
message(STATUS "CUTLASS: ${octile_cutlass_version}, ${octile_cutlass_include}; nvcc ${octile_nvcc_version}, ${OCTILE_NVCC}")

set(octile_cutlass_dir ${CMAKE_CURRENT_SOURCE_DIR}/src/components/cutlass)
set(octile_cutlass_headers ${octile_cutlass_dir}/epilogue.cuh ${octile_cutlass_dir}/tile.h ${octile_cutlass_dir}/tiles.def
    ${CMAKE_CURRENT_SOURCE_DIR}/src/octile/kernels/cuda/cutlass_abi.h)
octile_source_hash(octile_cutlass_hash ../../../components/cutlass/component.cu ../../../components/cutlass/epilogue.cuh
  ../../../components/cutlass/tile.cu ../../../components/cutlass/tile.h ../../../components/cutlass/tiles.def ../cuda/cutlass_abi.h)

# -fmad=false: the epilogue's products and sum are rounded one by one, as the contract says; the matrix unit is not concerned.
# PTX for compute_89 as well, so that results can be checked on any newer GPU.
set(octile_cutlass_flags -std=c++17 -O3 -fmad=false --expt-relaxed-constexpr -Werror all-warnings
    -gencode arch=compute_89,code=[sm_89,compute_89] -gencode arch=compute_120,code=sm_120
    -DOCTILE_CUTLASS_PTX=89 -DOCTILE_CUTLASS_SOURCE_HASH="${octile_cutlass_hash}"
    -I${CMAKE_CURRENT_SOURCE_DIR}/src -isystem ${octile_cutlass_include} -Xcompiler -fPIC,-fvisibility=hidden,-Wall)
# A compiler wants more than a gigabyte and a whole core: one at a time.
set_property(GLOBAL APPEND PROPERTY JOB_POOLS octile_nvcc=1)
set(octile_cutlass_objects "")
function(octile_cutlass_object object source)
  set(path ${CMAKE_CURRENT_BINARY_DIR}/cutlass/${object}.o)
  add_custom_command(OUTPUT ${path}
    COMMAND ${OCTILE_NVCC} ${octile_cutlass_flags} ${ARGN} -c ${octile_cutlass_dir}/${source} -o ${path}
    DEPENDS ${octile_cutlass_dir}/${source} ${octile_cutlass_headers}
    JOB_POOL octile_nvcc COMMENT "nvcc: CUTLASS ${object}" VERBATIM)
  set(octile_cutlass_objects ${octile_cutlass_objects} ${path} PARENT_SCOPE)
endfunction()
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cutlass)
octile_cutlass_object(component component.cu)
file(STRINGS ${octile_cutlass_dir}/tiles.def octile_cutlass_tiles REGEX "^OCTILE_CUTLASS_TILE")
set(octile_cutlass_index 0)
foreach(tile IN LISTS octile_cutlass_tiles)
  string(REGEX MATCH "([0-9]+), ([0-9]+), ([0-9]+)" tile "${tile}")
  octile_cutlass_object(tile_${CMAKE_MATCH_1}x${CMAKE_MATCH_2}x${CMAKE_MATCH_3} tile.cu -DOCTILE_CUTLASS_TILE_INDEX=${octile_cutlass_index})
  math(EXPR octile_cutlass_index "${octile_cutlass_index} + 1")
endforeach()

# The CUDA runtime is linked in, so that the component needs nothing but the driver, and its symbols stay its own.
set(octile_cutlass_library ${CMAKE_CURRENT_BINARY_DIR}/liboctile_cutlass.so)
add_custom_command(OUTPUT ${octile_cutlass_library}
  COMMAND ${OCTILE_NVCC} -shared -cudart static -Xlinker --exclude-libs,ALL -Xlinker -s -o ${octile_cutlass_library} ${octile_cutlass_objects}
  DEPENDS ${octile_cutlass_objects}
  COMMENT "Linking liboctile_cutlass.so" VERBATIM)
add_custom_target(octile_cutlass ALL DEPENDS ${octile_cutlass_library})
install(FILES ${octile_cutlass_library} DESTINATION "${CMAKE_INSTALL_LIBDIR}/octile"
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
