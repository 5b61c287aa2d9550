# SPDX-License-Identifier: Apache-2.0
# HTML reports in a real browser; skipped where none is (scripts/setup.sh browser installs it). Most of it is
# about plots, so a build without d3 has nothing to look at.
if(TARGET octile_cli AND octile_d3_files)
  add_test(NAME report_page
    COMMAND ${OCTILE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/browser/report_page_test.py $<TARGET_FILE:octile_cli> ${PROJECT_SOURCE_DIR})
  set_tests_properties(report_page PROPERTIES TIMEOUT 300 LABELS browser SKIP_RETURN_CODE 77)
endif()
