# SPDX-License-Identifier: Apache-2.0
# Stand-ins for the CUTLASS component: one that works and several that must be refused. With them, and with the fake driver as
# the process's libcuda, the whole CUTLASS family runs without a GPU.
if(TARGET kernels_cuda_tests)
  set(octile_fake_cutlass_kinds good "" old "OCTILE_FAKE_ABI=0" small "OCTILE_FAKE_STRUCT_BYTES=16" without_run
      "OCTILE_FAKE_WITHOUT_RUN" bad_config "OCTILE_FAKE_BAD_CONFIG" without_kernels "OCTILE_FAKE_WITHOUT_KERNELS" null
      "OCTILE_FAKE_NULL")
  while(octile_fake_cutlass_kinds)
    list(POP_FRONT octile_fake_cutlass_kinds kind define)
    add_library(fake_cutlass_${kind} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/fake_cutlass/fake_cutlass.cpp)
    target_link_libraries(fake_cutlass_${kind} PRIVATE octile_static)
    target_compile_definitions(fake_cutlass_${kind} PRIVATE ${define})
    set_target_properties(fake_cutlass_${kind} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_cutlass)
    add_dependencies(kernels_cuda_tests fake_cutlass_${kind})
  endwhile()
  # The fake driver under the name that is looked for.
  set(octile_fake_gpu ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu)
  file(MAKE_DIRECTORY ${octile_fake_gpu})
  add_custom_command(TARGET fake_cuda POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:fake_cuda> ${octile_fake_gpu}/libcuda.so.1)
  target_compile_definitions(kernels_cuda_tests PRIVATE OCTILE_FAKE_CUTLASS="${CMAKE_CURRENT_BINARY_DIR}/fake_cutlass"
                             OCTILE_FAKE_GPU="${octile_fake_gpu}")
  # What needs no results of kernels: our families' empty batches and refusals.
  add_test(NAME families_on_fake_gpu COMMAND kernels_cuda_tests
    "--gtest_filter=Gpu/FamilyCalls.AnEmpty*:Gpu/FamilyCalls.Refusals*-*/cublaslt:*/cutlass")
  set_tests_properties(families_on_fake_gpu PROPERTIES TIMEOUT 300 LABELS core
    ENVIRONMENT "OCTILE_CUDA_PATH=${octile_fake_gpu};VIRTUAL_ENV=${PROJECT_SOURCE_DIR}/.venv")
  add_test(NAME cutlass_on_fake_gpu COMMAND kernels_cuda_tests --gtest_filter=CutlassOnFakeGpu.*)
  set_tests_properties(cutlass_on_fake_gpu PROPERTIES TIMEOUT 300 LABELS core
    ENVIRONMENT "VIRTUAL_ENV=${PROJECT_SOURCE_DIR}/.venv;OCTILE_CUDA_PATH=${octile_fake_gpu}")
  if(TARGET cli_tests)
    add_dependencies(cli_tests fake_cuda fake_cutlass_good fake_cutlass_old)
    target_compile_definitions(cli_tests PRIVATE OCTILE_FAKE_CUTLASS="${CMAKE_CURRENT_BINARY_DIR}/fake_cutlass"
                               OCTILE_FAKE_GPU="${octile_fake_gpu}")
  endif()
  if(TARGET octile_cutlass)
    add_dependencies(kernels_cuda_tests octile_cutlass)
    target_compile_definitions(kernels_cuda_tests PRIVATE OCTILE_BUILT_CUTLASS="${PROJECT_BINARY_DIR}/liboctile_cutlass.so")
  endif()
endif()

# What configuring says where the option is on and something is missing. The stand-in for nvcc only tells its version.
set(octile_fake_nvcc ${CMAKE_CURRENT_BINARY_DIR}/fake_nvcc)
file(WRITE ${octile_fake_nvcc} "#!/bin/sh\necho \"Cuda compilation tools, release $(basename \"$0\" | sed 's/.*-//'), V0\"\n")
file(CHMOD ${octile_fake_nvcc} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
function(octile_cutlass_configure_test name release words)
  file(CREATE_LINK ${octile_fake_nvcc} ${octile_fake_nvcc}-${release} SYMBOLIC)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR} -B ${CMAKE_CURRENT_BINARY_DIR}/${name} -G ${CMAKE_GENERATOR}
    -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DOCTILE_BUILD_TESTS=OFF -DOCTILE_BUILD_CLI=OFF
    -DOCTILE_CUTLASS=ON -DOCTILE_NVCC=${octile_fake_nvcc}-${release} -DOCTILE_CUTLASS_INCLUDE=/nonexistent/cutlass)
  string(REPLACE " " "[ \n]+" words "${words}")  # CMake breaks the lines of its messages.
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS core PASS_REGULAR_EXPRESSION "${words}")
endfunction()
octile_cutlass_configure_test(cutlass_with_an_old_nvcc 12.4 "needs nvcc of CUDA 12\\.8 or newer .*release 12\\.4")
octile_cutlass_configure_test(cutlass_without_headers 13.0 "/nonexistent/cutlass\" holds no cutlass/version\\.h\\..*setup\\.sh cutlass")
