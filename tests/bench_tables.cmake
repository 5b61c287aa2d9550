# SPDX-License-Identifier: Apache-2.0
# Tables in the documentation are what the records under bench/results say.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME bench_tables COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/bench/cpu/tables.py --check)
  set_tests_properties(bench_tables PROPERTIES TIMEOUT 60)
endif()
