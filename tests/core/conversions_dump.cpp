// SPDX-License-Identifier: Apache-2.0
// Writes what the conversions give for every input, as raw little-endian arrays on stdout: read by conversions_oracle.py.
#include "octile/core/float_formats.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

template <class T>
bool write_all(const std::vector<T>& values) {
  return std::fwrite(values.data(), sizeof(T), values.size(), stdout) == values.size();
}

}  // namespace

int main() {
  std::vector<float> e4m3(256), bf16(65536), fp16(65536);
  std::vector<std::uint8_t> bf16_to_e4m3(65536), fp16_to_e4m3(65536);
  std::vector<std::uint16_t> bf16_to_fp16(65536), fp16_to_bf16(65536);
  for (unsigned i = 0; i < 256; ++i) {
    e4m3[i] = octile::e4m3_to_float(static_cast<std::uint8_t>(i));
  }
  for (unsigned i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    bf16[i] = octile::bf16_to_float(bits);
    fp16[i] = octile::fp16_to_float(bits);
    bf16_to_e4m3[i] = octile::float_to_e4m3_saturate(bf16[i]);
    fp16_to_e4m3[i] = octile::float_to_e4m3_saturate(fp16[i]);
    bf16_to_fp16[i] = octile::float_to_fp16(bf16[i]);
    fp16_to_bf16[i] = octile::float_to_bf16(fp16[i]);
  }
  const bool ok = write_all(e4m3) && write_all(bf16) && write_all(fp16) && write_all(bf16_to_e4m3) &&
                  write_all(fp16_to_e4m3) && write_all(bf16_to_fp16) && write_all(fp16_to_bf16) && std::fflush(stdout) == 0;
  return ok ? 0 : 1;
}
