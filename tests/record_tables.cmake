# SPDX-License-Identifier: Apache-2.0
# Tables in the documentation are what the records under bench/results say.
add_test(NAME record_tables COMMAND ${OCTILE_PYTHON} ${PROJECT_SOURCE_DIR}/bench/cpu/tables.py --check)
set_tests_properties(record_tables PROPERTIES TIMEOUT 60 LABELS python)
