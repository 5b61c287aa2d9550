// SPDX-License-Identifier: Apache-2.0
// Bytes of safetensors files, right or wrong, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octile::test {

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

// The length of `header`, `header`, `data`: whatever they hold.
std::string safetensors_of(std::string_view header, std::string_view data);
// A file as it must be, the tensors in this order.
std::string safetensors_file(const std::vector<TensorToWrite>& tensors);

// The bytes of `values` as they lie in memory.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace octile::test
