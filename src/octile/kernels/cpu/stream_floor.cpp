// SPDX-License-Identifier: Apache-2.0
// Streaming a weight: threads take pieces of it in turn and XOR each into four registers. One XOR a load keeps the
// arithmetic far below the memory's pace (16 GB/s a core are 4 zmm loads in about 45 cycles), and the result depends on
// every bit, so nothing can be optimised away.
#include "octile/kernels/cpu/stream_floor.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octile::cpu {
namespace {

constexpr std::int64_t kBlockBytes = 256;  // What one step of each loop reads: four cache lines.
constexpr std::int64_t kPrefetchBytes = 2048;
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;  // What a thread takes at a time.

// Prefetching weights ahead was worth 5 to 15 % on an Intel server core. On Zen 4 it never won, and cost up to a quarter
// (two threads: 70 GB/s with it, 95 without).
bool prefetch_pays() { return cpu_features().vendor == "GenuineIntel"; }

std::uint64_t xor_plain(const unsigned char* data, std::int64_t bytes) noexcept {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - i)));
    sum ^= word;
  }
  return sum;
}

#if defined(__x86_64__)

// The three loops differ in nothing but the register they load into. `bytes` is a multiple of kBlockBytes.
template <bool prefetch>
__attribute__((target("avx512f"))) std::uint64_t xor_avx512(const unsigned char* data, std::int64_t bytes) noexcept {
  __m512i sums[4] = {};
  for (const unsigned char* end = data + bytes; data != end; data += kBlockBytes) {
    for (std::ptrdiff_t i = 0; i < 4; ++i) {
      if constexpr (prefetch) {
        _mm_prefetch(data + kPrefetchBytes + i * 64, _MM_HINT_T0);
      }
      sums[i] = _mm512_xor_si512(sums[i], _mm512_loadu_si512(data + i * 64));
    }
  }
  alignas(64) unsigned char words[64];
  _mm512_store_si512(words, _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3])));
  return xor_plain(words, sizeof(words));
}

template <bool prefetch>
__attribute__((target("avx2"))) std::uint64_t xor_avx2(const unsigned char* data, std::int64_t bytes) noexcept {
  __m256i sums[4] = {};
  for (const unsigned char* end = data + bytes; data != end; data += kBlockBytes) {
    for (std::ptrdiff_t i = 0; i < 8; ++i) {
      if (prefetch && i % 2 == 0) {
        _mm_prefetch(data + kPrefetchBytes + i * 32, _MM_HINT_T0);
      }
      __m256i value;
      std::memcpy(&value, data + i * 32, sizeof(value));
      sums[i % 4] = _mm256_xor_si256(sums[i % 4], value);
    }
  }
  alignas(32) unsigned char words[32];
  const __m256i sum = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  std::memcpy(words, &sum, sizeof(words));
  return xor_plain(words, sizeof(words));
}

template <bool prefetch>
std::uint64_t xor_sse2(const unsigned char* data, std::int64_t bytes) noexcept {
  __m128i sums[4] = {};
  for (const unsigned char* end = data + bytes; data != end; data += kBlockBytes) {
    for (std::ptrdiff_t i = 0; i < 16; ++i) {
      if (prefetch && i % 4 == 0) {
        _mm_prefetch(data + kPrefetchBytes + i * 16, _MM_HINT_T0);
      }
      __m128i value;
      std::memcpy(&value, data + i * 16, sizeof(value));
      sums[i % 4] = _mm_xor_si128(sums[i % 4], value);
    }
  }
  alignas(16) unsigned char words[16];
  const __m128i sum = _mm_xor_si128(_mm_xor_si128(sums[0], sums[1]), _mm_xor_si128(sums[2], sums[3]));
  std::memcpy(words, &sum, sizeof(words));
  return xor_plain(words, sizeof(words));
}

template <bool prefetch>
std::uint64_t xor_blocks(const unsigned char* data, std::int64_t bytes, Isa isa) noexcept {
  return isa >= Isa::avx512 ? xor_avx512<prefetch>(data, bytes)
         : isa >= Isa::avx2 ? xor_avx2<prefetch>(data, bytes)
                            : xor_sse2<prefetch>(data, bytes);
}

#endif

class StreamFloor final : public Kernel {
 public:
  explicit StreamFloor(Isa isa) noexcept : isa_(isa) {}

  std::int64_t workspace_bytes(std::int64_t) const noexcept override { return 64; }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    const std::int64_t needed = workspace_bytes(1);
    if (args.workspace == nullptr || args.workspace_bytes < needed ||
        reinterpret_cast<std::uintptr_t>(args.workspace) % 64 != 0) {
      return make_error(ErrorCode::invalid_argument,
                        "stream floor: want a workspace of {} bytes at a multiple of 64, got {} bytes at {}", needed,
                        args.workspace == nullptr ? 0 : args.workspace_bytes, args.workspace);
    }
    const std::span<const std::byte> bytes = weight.host_bytes();
    if (bytes.empty()) {
      return make_error(ErrorCode::invalid_argument, "stream floor: a weight of layout '{}' does not lie in host memory",
                        weight.layout());
    }
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    const auto total = static_cast<std::int64_t>(bytes.size());
    const std::atomic_ref<std::uint64_t> sum(*static_cast<std::uint64_t*>(args.workspace));
    sum.store(0, std::memory_order_relaxed);
    const auto stream = [&](int piece) {
      const std::int64_t begin = kPieceBytes * piece;
      sum.fetch_xor(xor_of_words(data + begin, std::min(kPieceBytes, total - begin), isa_), std::memory_order_relaxed);
    };
    ThreadPool::instance().run(static_cast<int>((total + kPieceBytes - 1) / kPieceBytes), stream);
    return {};
  }

 private:
  Isa isa_;
};

}  // namespace

std::uint64_t xor_of_words(const void* data, std::int64_t bytes, Isa isa) noexcept {
  const auto* begin = static_cast<const unsigned char*>(data);
  std::uint64_t sum = 0;
#if defined(__x86_64__)
  const std::int64_t whole = std::max<std::int64_t>(bytes, 0) / kBlockBytes * kBlockBytes;
  static const bool prefetch = prefetch_pays();
  sum = prefetch ? xor_blocks<true>(begin, whole, isa) : xor_blocks<false>(begin, whole, isa);
  begin += whole;
  bytes -= whole;
#else
  static_cast<void>(isa);
#endif
  return sum ^ xor_plain(begin, bytes);
}

std::unique_ptr<Kernel> make_stream_floor(Isa isa) { return std::make_unique<StreamFloor>(isa); }

}  // namespace octile::cpu
