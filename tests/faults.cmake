# SPDX-License-Identifier: Apache-2.0
# Faults injected one place at a time into the command, a tuner and a program of the library's users. Sanitizers want to be
# the first library of a process and bring a malloc of their own, so their builds have none of this.
if(TARGET octile_cli AND TARGET tune_tests AND TARGET fake_cuda AND NOT OCTILE_SANITIZE)
  set(octile_faults ${CMAKE_CURRENT_SOURCE_DIR}/faults)
  add_library(octile_faults SHARED ${octile_faults}/fault_injection.cpp)
  target_link_libraries(octile_faults PRIVATE octile_options ${CMAKE_DL_LIBS})
  # Fortified declarations are macros and inline functions, which cannot be defined once more; the names of glibc's own
  # functions are reserved, and replacing them is what this library is for.
  target_compile_options(octile_faults PRIVATE -fno-builtin -Wno-pedantic -Wno-shadow)
  set_target_properties(octile_faults PROPERTIES CXX_VISIBILITY_PRESET default OCTILE_UNFORTIFIED ON)
  add_library(octile_fake_nvrtc MODULE ${octile_faults}/fake_nvrtc.cpp)
  target_link_libraries(octile_fake_nvrtc PRIVATE octile_options)
  # The fakes together, under the names that are looked for. A real cuBLASLt crashes in its own constructors without memory.
  set(octile_fault_gpu ${CMAKE_CURRENT_BINARY_DIR}/fault_gpu)
  file(MAKE_DIRECTORY ${octile_fault_gpu})
  add_custom_command(TARGET octile_fake_nvrtc POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:octile_fake_nvrtc> ${octile_fault_gpu}/libnvrtc.so.13
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:fake_cuda> ${octile_fault_gpu}/libcuda.so.1
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:fake_old_libraries> ${octile_fault_gpu}/libcublasLt.so.13)
  add_executable(fault_target ${octile_faults}/fault_target.cpp)
  target_link_libraries(fault_target PRIVATE octile octile_options)
  foreach(target octile_faults octile_fake_nvrtc)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  endforeach()

  file(GLOB octile_fault_tests CONFIGURE_DEPENDS ${octile_faults}/*_test.cpp)
  add_executable(fault_tests ${octile_fault_tests} cli/command.cpp)
  target_link_libraries(fault_tests PRIVATE octile_static octile_test_support GTest::gmock_main)
  target_include_directories(fault_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(fault_tests PRIVATE
    OCTILE_TEST_COMMAND="$<TARGET_FILE:octile_cli>" OCTILE_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    OCTILE_FAULTS="$<TARGET_FILE:octile_faults>" OCTILE_FAULT_GPU="${octile_fault_gpu}"
    OCTILE_FAULT_TARGET="$<TARGET_FILE:fault_target>" OCTILE_TUNER="$<TARGET_FILE:tune_tests>")
  add_dependencies(fault_tests octile_cli octile_faults octile_fake_nvrtc fake_cuda fake_old_libraries fault_target tune_tests)
  add_dependencies(core_test_programs fault_tests)
  add_test(NAME faults COMMAND fault_tests)
  set_tests_properties(faults PROPERTIES TIMEOUT 900 COST 40 LABELS core)
endif()
