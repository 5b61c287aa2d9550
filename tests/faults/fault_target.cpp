// SPDX-License-Identifier: Apache-2.0
// A small program of the library's users, for faults: does one piece of work through the public interface and prints a
// digest of the result. Exit status 0: done; 1: the library refused, with its message on stderr; 3: an exception came out
// of the library, or what it gave back was wrong; 4: something ended the process.
//   fault_target checkpoint DIRECTORY map|read
//   fault_target linear DEVICE
#include <octile/checkpoint.hpp>
#include <octile/octile.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

namespace {

constexpr std::int64_t kN = 96;
constexpr std::int64_t kK = 160;
constexpr std::int64_t kM = 5;
// Static, so that the only allocations that can fail are the library's. 1.5 in e4m3 is 0x3C, 0.5 in bf16 is 0x3F00.
std::uint8_t codes[kN * kK];           // NOLINT
float scales[kN];                      // NOLINT
std::uint16_t x[kM * kK];              // NOLINT
std::uint16_t y[kM * kN];              // NOLINT
alignas(256) char workspace[1 << 16];  // NOLINT

std::uint64_t digest_of(const void* data, std::size_t bytes, std::uint64_t hash = 1469598103934665603ULL) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ at[i]) * 1099511628211ULL;
  }
  return hash;
}

int refused(const octile::Error& error) {
  std::fprintf(stderr, "fault_target: error: %s\n", error.message.c_str());
  return error.message.empty() ? 3 : 1;
}

int load_checkpoint(const char* directory, bool map) {
  octile::CheckpointOptions options;
  options.memory = map ? octile::CheckpointMemory::map : octile::CheckpointMemory::read;
  const auto checkpoint = octile::Checkpoint::open(directory, options);
  if (!checkpoint) {
    return refused(checkpoint.error());
  }
  std::uint64_t digest = 0;
  for (std::size_t i = 0; i < checkpoint->linears().size(); ++i) {
    const auto linear = checkpoint->load(i);
    if (!linear) {
      return refused(linear.error());
    }
    const octile::WeightSource& weight = linear->weight;
    digest ^= digest_of(weight.scales, static_cast<std::size_t>(weight.n) * sizeof(float),
                        digest_of(weight.codes, static_cast<std::size_t>(weight.n * weight.k)));
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  return 0;
}

int run_linear(const char* device) {
  std::fill(std::begin(codes), std::end(codes), std::uint8_t{0x3C});
  std::fill(std::begin(scales), std::end(scales), 0.25F);
  std::fill(std::begin(x), std::end(x), std::uint16_t{0x3F00});
  octile::WeightSource source;
  source.n = kN;
  source.k = kK;
  source.codes = codes;
  source.scales = scales;
  source.scale_count = kN;
  octile::WeightOptions weight_options;
  weight_options.device = device;
  auto weight = octile::Fp8Weight::create(source, weight_options);
  if (!weight) {
    return refused(weight.error());
  }
  auto linear = octile::Fp8Linear::create(*weight);
  if (!linear) {
    return refused(linear.error());
  }
  if (const auto prepared = linear->prepare(kM); !prepared) {
    return refused(prepared.error());
  }
  if (linear->workspace_bytes(kM) > static_cast<std::int64_t>(sizeof workspace)) {
    return 3;
  }
  const auto ran =
      linear->run({x, octile::DType::bf16, kM, kK, kK}, {y, octile::DType::bf16, kM, kN, kN}, workspace, sizeof workspace);
  if (!ran) {
    return refused(ran.error());
  }
  const bool is_cpu = std::strcmp(device, "cpu") == 0;
  // 160 x 0.5 x 1.5 x 0.25 = 30, exactly: 0x41F0. A fake GPU computes nothing.
  if (is_cpu && std::any_of(std::begin(y), std::end(y), [](std::uint16_t value) { return value != 0x41F0; })) {
    return 3;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(is_cpu ? digest_of(y, sizeof y) : 0));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Not by the library's own doing: see docs/reliability.md.
  std::set_terminate([] {
    std::fputs("fault_target: error: std::terminate\n", stderr);
    std::_Exit(4);
  });
  try {
    if (argc == 4 && std::strcmp(argv[1], "checkpoint") == 0) {
      return load_checkpoint(argv[2], std::strcmp(argv[3], "map") == 0);
    }
    if (argc == 3 && std::strcmp(argv[1], "linear") == 0) {
      return run_linear(argv[2]);
    }
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "fault_target: an exception came out of the library: %s\n", exception.what());
    return 3;
  }
  return 2;
}
