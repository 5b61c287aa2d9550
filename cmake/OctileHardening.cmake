# SPDX-License-Identifier: Apache-2.0
# What the compiler, the C library and the linker have against faults that are used as holes.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
target_compile_options(octile_options INTERFACE -fstack-protector-strong)
# Tables of functions are resolved when a binary is loaded and read-only from then on; no stack is executable.
target_link_options(octile_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)

set(octile_optimised $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)

# Large frames touch each of their pages, so that no stack grows past its guard page into other memory.
check_cxx_compiler_flag(-fstack-clash-protection OCTILE_HAS_STACK_CLASH_PROTECTION)
if(OCTILE_HAS_STACK_CLASH_PROTECTION)
  target_compile_options(octile_options INTERFACE $<${octile_optimised}:-fstack-clash-protection>)
endif()

# x86: indirect jumps land on marked instructions only, and a shadow stack may keep the addresses of callers. The linker keeps
# the note that allows the latter only where every object has it, and Debian's crti.o and crtn.o, which are compatible, have
# none. What they lack for the former is real.
check_cxx_compiler_flag(-fcf-protection=full OCTILE_HAS_CF_PROTECTION)
if(OCTILE_HAS_CF_PROTECTION)
  target_compile_options(octile_options INTERFACE $<${octile_optimised}:-fcf-protection=full>)
  target_link_options(octile_options INTERFACE $<${octile_optimised}:LINKER:-z,shstk>)
endif()

# Calls of the C library with the size of what they write to. It needs optimisation; level 3, which knows sizes that are
# computed at run time, needs a compiler and a C library of 2022. A target with OCTILE_UNFORTIFIED defines such calls itself.
set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -Werror")
check_cxx_source_compiles("#include <cstdio>
static_assert(__USE_FORTIFY_LEVEL == 3);
int main() {}" OCTILE_HAS_FORTIFY_3)
unset(CMAKE_REQUIRED_FLAGS)
set(octile_fortify_level 2)
if(OCTILE_HAS_FORTIFY_3)
  set(octile_fortify_level 3)
endif()
set(octile_fortified $<AND:${octile_optimised},$<NOT:$<BOOL:$<TARGET_PROPERTY:OCTILE_UNFORTIFIED>>>>)
target_compile_options(octile_options INTERFACE
  $<${octile_fortified}:-U_FORTIFY_SOURCE> $<${octile_fortified}:-D_FORTIFY_SOURCE=${octile_fortify_level}>)
