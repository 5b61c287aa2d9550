// SPDX-License-Identifier: Apache-2.0
// What Hopper's tensor core makes of a product of two e4m3 rows: an emulation of its sums, bit for bit.
#pragma once

#include "octile/quant/reference.h"

#include <octile/types.hpp>

#include <cstdint>
#include <vector>

namespace octile::test {

// One chain along K. A step adds 32 products and the sum so far: each is cut, towards zero, to 13 bits below the largest
// exponent among them, and they are added; their sum is cut likewise, to 13 bits below its own leading one. The exponent of
// a product is the sum of its factors', -6 for subnormals; the product itself, of 1 to 4 times that power of two, is not
// normalised first. With `accumulate` precise the sum goes into an fp32 sum every 128 elements and begins again at zero.
// NaN where a code is.
//
// Found on an H200 by comparing bits (tests/kernels/cuda/tensor_core_gpu_test.cpp): cuBLASLt's row-wise kernel, and ours
// without a split of K.
float hopper_sum(const std::uint8_t* x, const std::uint8_t* w, std::int64_t k, Accumulate accumulate);

// The whole linear of such sums: y [m, n] in fp32, (sum * scale_w) * scale_x + bias.
std::vector<float> hopper_linear(const ReferenceInputs& inputs, Accumulate accumulate);

}  // namespace octile::test
