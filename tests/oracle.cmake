# SPDX-License-Identifier: Apache-2.0
# Tests against independent implementations from PyPI; scripts/setup.sh makes the environment they run in.
set(OCTILE_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python3 CACHE FILEPATH "Python with the packages of tests/requirements.txt")
add_executable(conversions_dump core/conversions_dump.cpp)
target_link_libraries(conversions_dump PRIVATE octile_static)
add_test(NAME conversions_oracle
  COMMAND ${OCTILE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/core/conversions_oracle.py $<TARGET_FILE:conversions_dump>)
set_tests_properties(conversions_oracle PROPERTIES TIMEOUT 120 LABELS python)
