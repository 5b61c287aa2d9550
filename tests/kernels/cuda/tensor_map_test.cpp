// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what the driver's encoder is asked, and how often. The encoder is a function of this file.
#include "octile/kernels/cuda/tensor_map.h"

#include "fake_device.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

struct Matrix {
  CUdeviceptr base = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
  int box_rows = 0;
  friend bool operator==(const Matrix&, const Matrix&) = default;
};

// What the encoder was asked by this thread, and what it answers.
thread_local std::vector<Matrix> asked;
thread_local CUresult answer = CUDA_SUCCESS;

// A map that names all five values, so that a wrong one shows.
TensorMap map_of(const Matrix& matrix) {
  TensorMap map = {};
  const std::array<std::uint64_t, 5> words = {
      matrix.base, static_cast<std::uint64_t>(matrix.rows), static_cast<std::uint64_t>(matrix.width),
      static_cast<std::uint64_t>(matrix.stride), static_cast<std::uint64_t>(matrix.box_rows)};
  std::ranges::copy(words, map.opaque);
  return map;
}

CUresult counting_encode(TensorMap* map, int /*type*/, std::uint32_t rank, void* base, const std::uint64_t* sizes,
                         const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* element_strides,
                         int /*interleave*/, int /*swizzle*/, int /*promotion*/, int /*fill*/) {
  EXPECT_EQ(rank, 2U);
  EXPECT_EQ(box[0], 128U) << "bytes, the width of the swizzle";
  EXPECT_EQ(element_strides[0], 1U);
  EXPECT_EQ(element_strides[1], 1U);
  const Matrix matrix = {static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(base)),
                         static_cast<std::int64_t>(sizes[1]), static_cast<std::int64_t>(sizes[0]),
                         static_cast<std::int64_t>(strides[0]), static_cast<int>(box[1])};
  asked.push_back(matrix);
  if (answer == CUDA_SUCCESS) {
    *map = map_of(matrix);
  }
  return answer;
}

// The cache under test is a thread's own: each test runs in a new thread and begins with an empty one.
class TensorMaps : public FakeDriverTest {
 protected:
  template <class Body>
  void in_new_thread(Body body) {
    open();
    ASSERT_NE(driver_, nullptr);
    encoder_ = {contexts_[0].get(), &counting_encode};
    std::thread(std::move(body)).join();
  }
  Expected<void> encode(const Matrix& matrix, TensorMap& map) const {
    return encode_rows_once(encoder_, matrix.base, matrix.rows, matrix.width, matrix.stride, matrix.box_rows, map);
  }
  void expect_right(const Matrix& matrix) const {
    TensorMap map = {};
    const auto encoded = encode(matrix, map);
    ASSERT_TRUE(encoded) << encoded.error().message;
    EXPECT_TRUE(std::ranges::equal(map.opaque, map_of(matrix).opaque)) << "the map of another matrix";
  }
  TensorMapEncoder encoder_;
};

constexpr Matrix kSome = {0x7000, 16, 4096, 4112, 8};

TEST_F(TensorMaps, AreAskedForOnceForTheSameMatrix) {
  in_new_thread([&] {
    for (int i = 0; i < 5; ++i) {
      expect_right(kSome);
    }
    EXPECT_EQ(asked, std::vector<Matrix>{kSome});
  });
}

TEST_F(TensorMaps, AreAskedForAgainWhereOneOfTheFiveValuesDiffers) {
  in_new_thread([&] {
    std::vector<Matrix> matrices(6, kSome);
    matrices[1].base += 0x1000;
    matrices[2].rows += 1;
    matrices[3].width -= 16;
    matrices[4].stride += 16;
    matrices[5].box_rows *= 2;
    for (int round = 0; round < 3; ++round) {
      for (const Matrix& matrix : matrices) {
        expect_right(matrix);
      }
    }
    EXPECT_EQ(asked, matrices) << "six fit, so that each is asked for in the first round alone";
  });
}

TEST_F(TensorMaps, OfMoreMatricesThanAreKeptAreStillRight) {
  in_new_thread([&] {
    std::vector<Matrix> matrices(50, kSome);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      matrices[i].base += 0x10000 * i;
    }
    for (int round = 0; round < 2; ++round) {
      for (const Matrix& matrix : matrices) {
        expect_right(matrix);
      }
      std::ranges::reverse(matrices);
    }
    EXPECT_GT(asked.size(), matrices.size()) << "no thread keeps them all";
    EXPECT_LT(asked.size(), 2 * matrices.size()) << "the last of the first round are kept";
    const std::size_t before = asked.size();
    expect_right(matrices.back());
    EXPECT_LE(asked.size(), before + 1);
  });
}

TEST_F(TensorMaps, AFailureIsSaidWithTheMatrixAndNotKept) {
  in_new_thread([&] {
    answer = CUDA_ERROR_INVALID_VALUE;
    TensorMap map = {};
    map.opaque[0] = 77;
    const auto encoded = encode(kSome, map);
    ASSERT_FALSE(encoded);
    EXPECT_EQ(encoded.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(encoded.error().message,
                testing::AllOf(HasSubstr("[16, 4096] bytes at 0x"), HasSubstr("row stride 4112, boxes of")));
    EXPECT_EQ(map.opaque[0], 77U) << "what the caller has is left alone";
    answer = CUDA_SUCCESS;
    expect_right(kSome);
    EXPECT_EQ(asked.size(), 2U);
  });
}

TEST_F(TensorMaps, AThreadKeepsItsOwn) {
  in_new_thread([&] {
    expect_right(kSome);
    std::thread([&] {
      expect_right(kSome);
      EXPECT_EQ(asked.size(), 1U) << "of this thread's";
    }).join();
    EXPECT_EQ(asked.size(), 1U);
  });
}

}  // namespace
}  // namespace octile::cuda
