// SPDX-License-Identifier: Apache-2.0
// Memory of Python's arrays, as octile/_arrays.py hands it over: where it is, and shape and strides in elements.
#pragma once

#include "words.h"

#include <octile/types.hpp>

#include <cstdint>
#include <string_view>

namespace octile::python {

using Address = std::uintptr_t;

template <class Pointer>
Pointer at(Address address) noexcept {
  return reinterpret_cast<Pointer>(address);  // NOLINT(performance-no-int-to-ptr): Python knows addresses as numbers.
}

template <class View>
View view_of(std::string_view what, Address address, std::string_view dtype, std::int64_t rows, std::int64_t cols,
             std::int64_t row_stride, std::int64_t col_stride) {
  View view;
  view.data = at<decltype(view.data)>(address);
  view.dtype = dtype_of(what, dtype);
  view.rows = rows;
  view.cols = cols;
  view.row_stride = row_stride;
  view.col_stride = col_stride;
  return view;
}

}  // namespace octile::python
