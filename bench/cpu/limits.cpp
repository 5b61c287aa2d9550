// SPDX-License-Identifier: Apache-2.0
// Memory of a linear on this machine's CPU, and the time that create, prepare and run take, as rows of docs/limits.md. One
// run of each: orders of magnitude, no comparison of kernels.
//   cpu_limits [N K]...      by default the four linears of Qwen3-8B
#include <octile/octile.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kMaxM = 64;

double resident_mb() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  statm >> size >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / 1e6;
}

template <class Result>
Result must(Result result) {
  if (!result) {
    std::fprintf(stderr, "cpu_limits: error: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return result;
}

template <class Work>
double milliseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void measure(std::int64_t n, std::int64_t k) {
  std::mt19937_64 random(1);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k));
  for (std::uint8_t& code : codes) {
    code = static_cast<std::uint8_t>(random() % 0x7F);  // Never NaN.
  }
  const std::vector<float> scales(static_cast<std::size_t>(n), 0.01F);
  const std::vector<std::uint16_t> x(static_cast<std::size_t>(kMaxM * k), 0x3F80);
  std::vector<std::uint16_t> y(static_cast<std::size_t>(kMaxM * n));
  octile::WeightSource source;
  source.n = n;
  source.k = k;
  source.codes = codes.data();
  source.scales = scales.data();
  source.scale_count = n;

  const double before_mb = resident_mb();
  std::vector<octile::Fp8Weight> weight;
  const double create_ms = milliseconds([&] { weight.push_back(*must(octile::Fp8Weight::create(source))); });
  octile::Fp8Linear linear = *must(octile::Fp8Linear::create(weight.front()));
  const double prepare_ms = milliseconds([&] { static_cast<void>(must(linear.prepare(kMaxM))); });
  const std::int64_t bytes = linear.workspace_bytes(kMaxM);
  void* workspace = std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64));
  const auto run = [&](std::int64_t m) {
    static_cast<void>(must(
        linear.run({x.data(), octile::DType::bf16, m, k, k}, {y.data(), octile::DType::bf16, m, n, n}, workspace, bytes)));
  };
  run(1);
  const double run_1_ms = milliseconds([&] { run(1); });
  const double run_64_ms = milliseconds([&] { run(kMaxM); });
  std::printf("| %lld x %lld | %.1f | %.1f | %.1f | %.2f | %.0f | %.0f | %.2f | %.1f |\n", static_cast<long long>(n),
              static_cast<long long>(k), static_cast<double>(n * k) / 1e6, static_cast<double>(weight.front().bytes()) / 1e6,
              resident_mb() - before_mb, static_cast<double>(bytes) / 1e6, create_ms, prepare_ms, run_1_ms, run_64_ms);
  std::free(workspace);
}

}  // namespace

int main(int argc, char** argv) {
  std::puts(
      "| N x K | codes MB | weight MB | process grows by MB | workspace MB | create ms | prepare ms | run M = 1 ms | M = 64 "
      "ms |");
  std::puts("|---|---|---|---|---|---|---|---|---|");
  if (argc < 3) {
    for (const auto& [n, k] : {std::pair{6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}}) {
      measure(n, k);
    }
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    measure(std::atoll(argv[i]), std::atoll(argv[i + 1]));
  }
  return 0;
}
