// SPDX-License-Identifier: Apache-2.0
// The proof that a vendor's kernel honours both scale vectors.
#include "octile/kernels/cuda/scale_proof.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

namespace octile::cuda {
namespace {

constexpr unsigned char kE4m3One = 0x38;
constexpr std::int64_t kProofDepth = 512;
constexpr std::int64_t kMaxProofBytes = std::int64_t{16} << 20;

// A whole number in [-range, range] that differs between near indices and between indices a tile apart.
int exponent_of(std::int64_t index, int range) {
  const auto mixed = static_cast<std::uint32_t>(index) * 2654435761U;
  return static_cast<int>((mixed >> 16) % static_cast<std::uint32_t>(2 * range + 1)) - range;
}

// Powers of two: with 512 ones the results lie in [2^4, 2^14], exact in bf16, fp16 and fp32.
std::vector<float> powers_of_two(std::int64_t count, int range) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = std::ldexp(1.0F, exponent_of(i, range));
  }
  return values;
}

}  // namespace

ScaleProof scale_proof_of(std::int64_t m, std::int64_t n, std::int64_t k, DType out) noexcept {
  ScaleProof proof;
  proof.m = std::clamp<std::int64_t>(kMaxProofBytes / (n * size_of(out)), 1, m);
  proof.n = n;
  proof.k = std::min(k, kProofDepth);
  proof.out = out;
  return proof;
}

Expected<void> prove_scales(const DeviceContext& context, const ScaleProof& proof, const RunProof& run) {
  // One allocation: weight, activation, scales of both, y, workspace, each at a multiple of 256 bytes.
  const std::int64_t sizes[] = {
      proof.n * proof.k,    proof.m * proof.k, proof.n * 4, proof.m * 4, proof.m * proof.n * size_of(proof.out),
      proof.workspace_bytes};
  CUdeviceptr at[std::size(sizes)] = {};
  std::int64_t total = 0;
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    at[i] = static_cast<CUdeviceptr>(total);
    total += (sizes[i] + 255) / 256 * 256;
  }
  auto memory = allocate_device(context, total);
  if (!memory) {
    return memory.error();
  }
  for (CUdeviceptr& pointer : at) {
    pointer += (*memory)->pointer();
  }
  const std::vector<float> scales_w = powers_of_two(proof.n, 2);
  const std::vector<float> scales_x = powers_of_two(proof.m, 3);
  const CurrentContext current(context);
  for (auto done : {fill_bytes(context, at[0], kE4m3One, sizes[0]), fill_bytes(context, at[1], kE4m3One, sizes[1]),
                    upload_bytes(context, at[2], scales_w.data(), sizes[2]),
                    upload_bytes(context, at[3], scales_x.data(), sizes[3]), fill_bytes(context, at[4], 0xFF, sizes[4])}) {
    if (!done) {
      return done;
    }
  }
  {
    const OutsideCapture outside(*context.driver);
    if (auto ran = run({at[0], at[2], at[1], at[3], at[4], at[5], proof.workspace_bytes}); !ran) {
      return ran;
    }
  }
  std::vector<unsigned char> y(static_cast<std::size_t>(sizes[4]));
  if (auto copied = download_bytes(context, y.data(), at[4], sizes[4]); !copied) {
    return copied;
  }
  for (std::int64_t row = 0; row < proof.m; ++row) {
    for (std::int64_t col = 0; col < proof.n; ++col) {
      const float wanted =
          static_cast<float>(proof.k) * scales_w[static_cast<std::size_t>(col)] * scales_x[static_cast<std::size_t>(row)];
      const float came = load_as_float(y.data(), proof.out, row * proof.n + col);
      const bool equal = proof.k <= kProofDepth ? came == wanted : std::abs(came - wanted) <= wanted / 128.0F;
      if (!equal) {
        return make_error(
            ErrorCode::failed,
            "the algorithm does not honour the scale vectors: {} ones with scales {} and {} gave {} instead of {} "
            "at row {}, column {} of [{}, {}]",
            proof.k, scales_w[static_cast<std::size_t>(col)], scales_x[static_cast<std::size_t>(row)], came, wanted, row,
            col, proof.m, proof.n);
      }
    }
  }
  return {};
}

Expected<void> prove_once(const std::string& key, const std::function<Expected<void>()>& prove) {
  struct Proven {
    std::mutex mutex;
    std::map<std::string, Expected<void>> by_key;
  };
  static auto* const proven = new Proven;
  const std::lock_guard lock(proven->mutex);
  if (const auto found = proven->by_key.find(key); found != proven->by_key.end()) {
    return found->second;
  }
  Expected<void> done = prove();
  if (done || done.error().code == ErrorCode::failed) {
    proven->by_key.emplace(key, done);
  }
  return done;
}

}  // namespace octile::cuda
