// SPDX-License-Identifier: Apache-2.0
// An FP8 linear in C++17: packs a weight, runs four rows through it, and checks one number by hand.
#include <octile/octile.hpp>

#include <cstdio>
#include <cstdlib>

int main() {
  constexpr std::int64_t n = 96, k = 64, m = 4;
  const std::vector<std::uint8_t> codes(n * k, 0x38);  // 1.0 in e4m3.
  std::vector<float> scales(n), y(m * n), x_scales(m, 0.5F);
  for (std::int64_t row = 0; row < n; ++row) scales[row] = static_cast<float>(row + 1);
  octile::WeightOptions options;
  options.out_dtype = octile::DType::fp32;
  auto weight = octile::Fp8Weight::create(
      {n, k, codes.data(), octile::DType::e4m3, k, scales.data(), octile::DType::fp32, n}, options);
  if (!weight) return std::fprintf(stderr, "%s\n", weight.error().message.c_str()), 1;
  auto linear = octile::Fp8Linear::create(*weight);
  if (auto ok = linear->prepare(m); !ok) return std::fprintf(stderr, "%s\n", ok.error().message.c_str()), 1;
  const std::int64_t bytes = linear->workspace_bytes(m);
  void* workspace = std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64));
  auto ok = linear->run_quantized({codes.data(), octile::DType::e4m3, m, k, k}, x_scales.data(),
                                  {y.data(), octile::DType::fp32, m, n, n}, workspace, bytes);
  std::free(workspace);
  std::printf("octile %s: %s\n", octile::version(), octile::to_json(linear->explain(m)).c_str());
  return ok && y[m * n - 1] == 0.5F * 64 * 96 ? 0 : 1;  // The last row times the last channel: k ones, both scales.
}
