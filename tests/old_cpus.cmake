# SPDX-License-Identifier: Apache-2.0
# The CPU's kernels on processors that are not here, by user-mode emulation: without AVX at all, and with AVX2 only. What
# an emulator cannot show is left out: times, children of fork() (its own do not outlive threads), and flags of the kernel,
# which are the host's. Repetitions of one product are left out for their time.
find_program(OCTILE_QEMU qemu-x86_64)
if(OCTILE_QEMU AND NOT OCTILE_SANITIZE AND TARGET kernels_cpu_tests)
  set(families "CpuFamilies*:CpuKernelRun*:CpuEngines*:CpuBackend*:Engines/*:DecodeCodes*:RowValues*:FinishRow*:XorOfWords*")
  set(left_out "*Fork*:*DeathTest*:*RepeatsItsBits*:*HundredRuns*")
  foreach(cpu Nehalem Haswell-noTSX-IBRS)
    add_test(NAME kernels_cpu_on_${cpu}
      COMMAND ${OCTILE_QEMU} -cpu ${cpu} $<TARGET_FILE:kernels_cpu_tests> "--gtest_filter=${families}:-${left_out}")
    add_test(NAME quant_on_${cpu} COMMAND ${OCTILE_QEMU} -cpu ${cpu} $<TARGET_FILE:quant_tests>)
    set_tests_properties(kernels_cpu_on_${cpu} quant_on_${cpu} PROPERTIES TIMEOUT 600 LABELS core)
  endforeach()
endif()
