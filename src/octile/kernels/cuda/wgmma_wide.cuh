// SPDX-License-Identifier: Apache-2.0
// The widths of wgmma on e4m3 that wgmma.cuh leaves out: 72, 88, 104, 120 and 136 to 256 columns in steps of 8, so that a
// tile of tokens fits any M within 7. Each adds four sums a thread to the one before: the operands' texts are built up the
// same way.
#pragma once

#include "wgmma.cuh"

// The names of the first N x 4 sums.
#define OCTILE_SUMS_9    \
  "%0, %1, %2, %3, "     \
  "%4, %5, %6, %7, "     \
  "%8, %9, %10, %11, "   \
  "%12, %13, %14, %15, " \
  "%16, %17, %18, %19, " \
  "%20, %21, %22, %23, " \
  "%24, %25, %26, %27, " \
  "%28, %29, %30, %31, " \
  "%32, %33, %34, %35"
#define OCTILE_SUMS_10 OCTILE_SUMS_9 ", %36, %37, %38, %39"
#define OCTILE_SUMS_11 OCTILE_SUMS_10 ", %40, %41, %42, %43"
#define OCTILE_SUMS_12 OCTILE_SUMS_11 ", %44, %45, %46, %47"
#define OCTILE_SUMS_13 OCTILE_SUMS_12 ", %48, %49, %50, %51"
#define OCTILE_SUMS_14 OCTILE_SUMS_13 ", %52, %53, %54, %55"
#define OCTILE_SUMS_15 OCTILE_SUMS_14 ", %56, %57, %58, %59"
#define OCTILE_SUMS_16 OCTILE_SUMS_15 ", %60, %61, %62, %63"
#define OCTILE_SUMS_17 OCTILE_SUMS_16 ", %64, %65, %66, %67"
#define OCTILE_SUMS_18 OCTILE_SUMS_17 ", %68, %69, %70, %71"
#define OCTILE_SUMS_19 OCTILE_SUMS_18 ", %72, %73, %74, %75"
#define OCTILE_SUMS_20 OCTILE_SUMS_19 ", %76, %77, %78, %79"
#define OCTILE_SUMS_21 OCTILE_SUMS_20 ", %80, %81, %82, %83"
#define OCTILE_SUMS_22 OCTILE_SUMS_21 ", %84, %85, %86, %87"
#define OCTILE_SUMS_23 OCTILE_SUMS_22 ", %88, %89, %90, %91"
#define OCTILE_SUMS_24 OCTILE_SUMS_23 ", %92, %93, %94, %95"
#define OCTILE_SUMS_25 OCTILE_SUMS_24 ", %96, %97, %98, %99"
#define OCTILE_SUMS_26 OCTILE_SUMS_25 ", %100, %101, %102, %103"
#define OCTILE_SUMS_27 OCTILE_SUMS_26 ", %104, %105, %106, %107"
#define OCTILE_SUMS_28 OCTILE_SUMS_27 ", %108, %109, %110, %111"
#define OCTILE_SUMS_29 OCTILE_SUMS_28 ", %112, %113, %114, %115"
#define OCTILE_SUMS_30 OCTILE_SUMS_29 ", %116, %117, %118, %119"
#define OCTILE_SUMS_31 OCTILE_SUMS_30 ", %120, %121, %122, %123"
#define OCTILE_SUMS_32 OCTILE_SUMS_31 ", %124, %125, %126, %127"

// And the sums themselves.
#define OCTILE_OUTPUTS_9(d)                                                                                                \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),  \
      "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), \
      "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
      "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define OCTILE_OUTPUTS_10(d) OCTILE_OUTPUTS_9(d), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define OCTILE_OUTPUTS_11(d) OCTILE_OUTPUTS_10(d), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define OCTILE_OUTPUTS_12(d) OCTILE_OUTPUTS_11(d), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define OCTILE_OUTPUTS_13(d) OCTILE_OUTPUTS_12(d), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define OCTILE_OUTPUTS_14(d) OCTILE_OUTPUTS_13(d), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define OCTILE_OUTPUTS_15(d) OCTILE_OUTPUTS_14(d), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define OCTILE_OUTPUTS_16(d) OCTILE_OUTPUTS_15(d), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define OCTILE_OUTPUTS_17(d) OCTILE_OUTPUTS_16(d), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define OCTILE_OUTPUTS_18(d) OCTILE_OUTPUTS_17(d), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define OCTILE_OUTPUTS_19(d) OCTILE_OUTPUTS_18(d), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define OCTILE_OUTPUTS_20(d) OCTILE_OUTPUTS_19(d), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define OCTILE_OUTPUTS_21(d) OCTILE_OUTPUTS_20(d), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define OCTILE_OUTPUTS_22(d) OCTILE_OUTPUTS_21(d), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define OCTILE_OUTPUTS_23(d) OCTILE_OUTPUTS_22(d), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define OCTILE_OUTPUTS_24(d) OCTILE_OUTPUTS_23(d), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define OCTILE_OUTPUTS_25(d) OCTILE_OUTPUTS_24(d), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define OCTILE_OUTPUTS_26(d) OCTILE_OUTPUTS_25(d), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define OCTILE_OUTPUTS_27(d) OCTILE_OUTPUTS_26(d), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define OCTILE_OUTPUTS_28(d) OCTILE_OUTPUTS_27(d), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define OCTILE_OUTPUTS_29(d) OCTILE_OUTPUTS_28(d), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define OCTILE_OUTPUTS_30(d) OCTILE_OUTPUTS_29(d), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define OCTILE_OUTPUTS_31(d) OCTILE_OUTPUTS_30(d), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define OCTILE_OUTPUTS_32(d) OCTILE_OUTPUTS_31(d), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// `a`, `b` and `p` are the numbers of the operands behind the sums: 4 x quads and the two after it.
#define OCTILE_WGMMA(columns, quads, a, b, p)                                                                      \
  __device__ __forceinline__ void wgmma(float(&d)[4 * quads], u64 first, u64 second, u32 accumulate) {             \
    static_assert(columns == 8 * quads && a == 4 * quads && b == a + 1 && p == a + 2, "operands behind the sums"); \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns        \
                 "k32.f32.e4m3.e4m3 {" OCTILE_SUMS_##quads "}, %" #a ", %" #b ", p, 1, 1;\n}\n"                    \
                 : OCTILE_OUTPUTS_##quads(d)                                                                       \
                 : "l"(first), "l"(second), "r"(accumulate));                                                      \
  }

OCTILE_WGMMA(72, 9, 36, 37, 38)
OCTILE_WGMMA(88, 11, 44, 45, 46)
OCTILE_WGMMA(104, 13, 52, 53, 54)
OCTILE_WGMMA(120, 15, 60, 61, 62)
OCTILE_WGMMA(136, 17, 68, 69, 70)
OCTILE_WGMMA(144, 18, 72, 73, 74)
OCTILE_WGMMA(152, 19, 76, 77, 78)
OCTILE_WGMMA(160, 20, 80, 81, 82)
OCTILE_WGMMA(168, 21, 84, 85, 86)
OCTILE_WGMMA(176, 22, 88, 89, 90)
OCTILE_WGMMA(184, 23, 92, 93, 94)
OCTILE_WGMMA(192, 24, 96, 97, 98)
OCTILE_WGMMA(200, 25, 100, 101, 102)
OCTILE_WGMMA(208, 26, 104, 105, 106)
OCTILE_WGMMA(216, 27, 108, 109, 110)
OCTILE_WGMMA(224, 28, 112, 113, 114)
OCTILE_WGMMA(232, 29, 116, 117, 118)
OCTILE_WGMMA(240, 30, 120, 121, 122)
OCTILE_WGMMA(248, 31, 124, 125, 126)
OCTILE_WGMMA(256, 32, 128, 129, 130)

#undef OCTILE_WGMMA
