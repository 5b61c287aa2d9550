# SPDX-License-Identifier: Apache-2.0
# Writes a generated source only where its text differs, so that an unrelated CMake run recompiles nothing.
function(octile_write_file path text)
  set(before "")
  if(EXISTS ${path})
    file(READ ${path} before)
  endif()
  if(NOT "${text}" STREQUAL "${before}")
    file(WRITE ${path} "${text}")
  endif()
endfunction()
