# SPDX-License-Identifier: Apache-2.0
# Stand-ins for NVIDIA's libraries, and a comparison of cuda_abi.h with a toolkit's headers where one is installed.
if(TARGET kernels_cuda_tests)
  set(octile_fakes ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/fake_driver)
  add_library(fake_cuda MODULE ${octile_fakes}/fake_driver.cpp)
  add_library(fake_cuda_incomplete MODULE ${octile_fakes}/fake_driver.cpp)
  target_compile_definitions(fake_cuda_incomplete PRIVATE OCTILE_FAKE_WITHOUT_MEM_ALLOC)
  add_library(fake_old_libraries MODULE ${octile_fakes}/fake_old_libraries.cpp)
  add_library(fake_nvml MODULE ${octile_fakes}/fake_nvml.cpp)
  foreach(fake fake_cuda fake_cuda_incomplete fake_old_libraries fake_nvml)
    target_link_libraries(${fake} PRIVATE octile_options)
    target_include_directories(${fake} PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  endforeach()
  # A name that no other library has, for the test that a copy already in the process is preferred.
  target_link_options(fake_cuda PRIVATE -Wl,-soname,liboctile_fake_cuda.so.1)
  add_dependencies(kernels_cuda_tests fake_cuda fake_cuda_incomplete fake_old_libraries fake_nvml)
  target_compile_definitions(kernels_cuda_tests PRIVATE
    OCTILE_FAKE_CUDA="$<TARGET_FILE:fake_cuda>"
    OCTILE_FAKE_CUDA_INCOMPLETE="$<TARGET_FILE:fake_cuda_incomplete>"
    OCTILE_FAKE_OLD_LIBRARIES="$<TARGET_FILE:fake_old_libraries>"
    OCTILE_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
  target_include_directories(kernels_cuda_tests PRIVATE ${PROJECT_SOURCE_DIR}/src)
  if(TARGET linear_tests)
    add_dependencies(linear_tests fake_cuda)
    target_compile_definitions(linear_tests PRIVATE OCTILE_FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
  endif()

  find_path(OCTILE_CUDA_HEADERS cublasLt.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(OCTILE_CUDA_HEADERS)
    target_compile_definitions(kernels_cuda_tests PRIVATE OCTILE_HAVE_CUDA_HEADERS)
    target_include_directories(kernels_cuda_tests SYSTEM PRIVATE ${OCTILE_CUDA_HEADERS})
  endif()
endif()
