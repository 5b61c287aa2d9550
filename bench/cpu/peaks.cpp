// SPDX-License-Identifier: Apache-2.0
// Chains of multiply-adds in registers: as many independent ones as hide their latency (4 cycles at two a cycle on every
// core met so far: 8 would do, 12 do on all), over constants, so that no value grows.
#include "peaks.h"

#include "octile/kernels/cpu/thread_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include "octile/kernels/cpu/amx_tiles.h"
#include "octile/kernels/cpu/avx512_common.h"
#endif

namespace octile::cpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSeconds = 0.03;
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
constexpr std::array<std::int64_t, 3> kDistances = {0, 2048, 4096};  // Bytes that the loads are preceded by prefetches.

// Keeps a value, and what it was computed from, from being optimised away.
template <class Value>
void keep(Value& value) {
  __asm__ volatile("" : "+m"(value) : : "memory");
}

#if defined(__x86_64__)

constexpr int kChains = 12;
constexpr std::int64_t kRounds = 20000;

__attribute__((target("avx2,fma"))) std::int64_t run_avx2_fma() {
  __m256 sums[kChains];
  for (__m256& sum : sums) {
    sum = _mm256_set1_ps(1.0F);
  }
  const __m256 factor = _mm256_set1_ps(0.5F);
  for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, factor, factor);
    }
  }
  for (__m256& sum : sums) {
    keep(sum);
  }
  return kRounds * kChains * 8 * 2;
}

OCTILE_AVX512 std::int64_t run_avx512_fma() {
  __m512 sums[kChains];
  for (__m512& sum : sums) {
    sum = _mm512_set1_ps(1.0F);
  }
  const __m512 factor = _mm512_set1_ps(0.5F);
  for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, factor, factor);
    }
  }
  for (__m512& sum : sums) {
    keep(sum);
  }
  return kRounds * kChains * 16 * 2;
}

OCTILE_AVX512_DOT std::int64_t run_avx512_dot() {
  __m512 sums[kChains];
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F80));
  for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, ones, ones);
    }
  }
  for (__m512& sum : sums) {
    keep(sum);
  }
  return kRounds * kChains * 32 * 2;
}

// Four tiles of sums, products of tiles that stay where they are.
OCTILE_AMX std::int64_t run_amx() {
  TileShapes shapes;
  for (int i = 0; i < kTileRegisters; ++i) {
    shapes.bytes_per_row[i] = kTileRowBytes;
    shapes.rows[i] = kTileRows;
  }
  HardwareTiles::configure(shapes);
  constexpr std::int64_t kTileRounds = kRounds / 4;
  for (std::int64_t i = 0; i < kTileRounds; ++i) {
    HardwareTiles::multiply<0, 4, 6>();
    HardwareTiles::multiply<1, 4, 7>();
    HardwareTiles::multiply<2, 5, 6>();
    HardwareTiles::multiply<3, 5, 7>();
  }
  HardwareTiles::release();
  return kTileRounds * 4 * kTileRows * kPanelColumns * kTileK * 2;
}

struct Peak {
  std::string_view name;
  Isa needs;
  std::int64_t (*run)();  // Does some work and says how many operations it was.
};
constexpr std::array kPeaks = {Peak{"avx2_fma", Isa::avx2, run_avx2_fma}, Peak{"avx512_fma", Isa::avx512, run_avx512_fma},
                               Peak{"avx512_dot", Isa::avx512bf16, run_avx512_dot}, Peak{"amx", Isa::amx, run_amx}};

template <std::int64_t Distance>
__attribute__((target("avx2"))) void read_piece(const std::byte* data, std::int64_t bytes) {
  __m256i sums[4] = {};
  for (const std::byte* end = data + bytes / 256 * 256; data != end; data += 256) {
#pragma GCC unroll 8
    for (std::ptrdiff_t i = 0; i < 8; ++i) {
      if (Distance > 0 && i % 2 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(data + Distance + i * 32), _MM_HINT_T0);
      }
      sums[i % 4] = _mm256_xor_si256(sums[i % 4], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i * 32)));
    }
  }
  for (__m256i& sum : sums) {
    keep(sum);
  }
}

using ReadPiece = void (*)(const std::byte*, std::int64_t);
constexpr std::array<ReadPiece, kDistances.size()> kReadPieces = {read_piece<kDistances[0]>, read_piece<kDistances[1]>,
                                                                  read_piece<kDistances[2]>};

#else

struct Peak {
  std::string_view name;
  Isa needs;
  std::int64_t (*run)();
};
constexpr std::array<Peak, 0> kPeaks = {};

#endif

}  // namespace

std::vector<std::string_view> known_peaks() {
  std::vector<std::string_view> names;
  const Expected<Isa> isa = usable_isa();
  for (const Peak& peak : kPeaks) {
    if (isa && *isa >= peak.needs) {
      names.push_back(peak.name);
    }
  }
  return names;
}

std::optional<double> peak_gflops(std::string_view instruction, int threads) {
  const std::vector<std::string_view> usable = known_peaks();
  const auto* const peak = std::ranges::find(kPeaks, instruction, &Peak::name);
  if (peak == kPeaks.end() || std::ranges::find(usable, instruction) == usable.end()) {
    return std::nullopt;
  }
  std::atomic<std::int64_t> operations = 0;
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const auto work = [&](int) {
    std::int64_t mine = 0;
    while (seconds() < kSeconds) {
      mine += peak->run();
    }
    operations += mine;
  };
  ThreadPool::instance().run(threads, work);
  return static_cast<double>(operations.load()) / seconds() / 1e9;
}

double read_gbps(const void* data, std::int64_t bytes, int threads) {
  double best = 0;
#if defined(__x86_64__)
  for (const ReadPiece read : kReadPieces) {
    std::atomic<std::int64_t> next = 0;
    const auto work = [&](int) {
      for (std::int64_t begin = 0; (begin = next.fetch_add(kPieceBytes)) < bytes;) {
        read(static_cast<const std::byte*>(data) + begin, std::min(kPieceBytes, bytes - begin));
      }
    };
    const auto begin = Clock::now();
    ThreadPool::instance().run(threads, work);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, static_cast<double>(bytes) / seconds / 1e9);
  }
#else
  static_cast<void>(data);
  static_cast<void>(bytes);
  static_cast<void>(threads);
#endif
  return best;
}

}  // namespace octile::cpu
