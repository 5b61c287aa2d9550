// SPDX-License-Identifier: Apache-2.0
// <immintrin.h> without GCC 12's false alarm: its _mm512_undefined_*() initialise a variable with itself, which
// -Wmaybe-uninitialized reports wherever such an intrinsic is inlined (GCC PR 105593).
#pragma once

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif
