// SPDX-License-Identifier: Apache-2.0
// A small program of the library's users, for faults: does one piece of work through the public interface and prints a
// digest of the result. Exit status 0: done; 1: the library refused, with its message on stderr; 3: an exception came out
// of the library, or what it gave back was wrong; 4: something ended the process.
//   fault_target checkpoint DIRECTORY map|read
//   fault_target linear DEVICE
//   fault_target beside DEVICE [gone]   the same while a linear of the CPU goes on; gone: a device that failed once stays so
#include <octile/checkpoint.hpp>
#include <octile/octile.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace {

constexpr std::int64_t kN = 96;
constexpr std::int64_t kK = 160;
constexpr std::int64_t kM = 5;
// Static, so that the only allocations that can fail are the library's. 1.5 in e4m3 is 0x3C, 0.5 in bf16 is 0x3F00.
std::uint8_t codes[kN * kK];           // NOLINT
float scales[kN];                      // NOLINT
std::uint8_t unpacked_codes[kN * kK];  // NOLINT
float unpacked_scales[kN];             // NOLINT
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

octile::WeightSource source_of_codes() {
  std::fill(std::begin(codes), std::end(codes), std::uint8_t{0x3C});
  std::fill(std::begin(scales), std::end(scales), 0.25F);
  std::fill(std::begin(x), std::end(x), std::uint16_t{0x3F00});
  octile::WeightSource source;
  source.n = kN;
  source.k = kK;
  source.codes = codes;
  source.scales = scales;
  source.scale_count = kN;
  return source;
}

octile::Expected<octile::Fp8Linear> prepared_linear(const char* device) {
  octile::WeightOptions options;
  options.device = device;
  auto weight = octile::Fp8Weight::create(source_of_codes(), options);
  if (!weight) {
    return weight.error();
  }
  auto linear = octile::Fp8Linear::create(*weight);
  if (!linear) {
    return linear.error();
  }
  if (auto prepared = linear->prepare(kM); !prepared) {
    return prepared.error();
  }
  return linear;
}

octile::Expected<void> run(const octile::Fp8Linear& linear) {
  return linear.run({x, octile::DType::bf16, kM, kK, kK}, {y, octile::DType::bf16, kM, kN, kN}, workspace, sizeof workspace);
}

// 160 x 0.5 x 1.5 x 0.25 = 30, exactly: 0x41F0.
bool is_right() {
  return std::all_of(std::begin(y), std::end(y), [](std::uint16_t value) { return value == 0x41F0; });
}

int run_linear(const char* device) {
  const auto linear = prepared_linear(device);
  if (!linear) {
    return refused(linear.error());
  }
  if (linear->workspace_bytes(kM) > static_cast<std::int64_t>(sizeof workspace)) {
    return 3;
  }
  if (const auto ran = run(*linear); !ran) {
    return refused(ran.error());
  }
  // A fake GPU computes nothing.
  const bool is_cpu = std::strcmp(device, "cpu") == 0;
  if (is_cpu && !is_right()) {
    return 3;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(is_cpu ? digest_of(y, sizeof y) : 0));
  return 0;
}

bool cpu_goes_on(const octile::Fp8Linear& cpu) {
  std::fill(std::begin(y), std::end(y), std::uint16_t{0});
  return run(cpu) && is_right();
}

// The codes and scales from the device, which must be those that it was given.
octile::Expected<void> unpack(const octile::Fp8Weight& weight) {
  std::fill(std::begin(unpacked_codes), std::end(unpacked_codes), std::uint8_t{0});
  std::fill(std::begin(unpacked_scales), std::end(unpacked_scales), 0.0F);
  const auto done = weight.unpack({unpacked_codes, 0, unpacked_scales, octile::SourceMemory::host});
  if (done && !(std::ranges::equal(unpacked_codes, codes) && std::ranges::equal(unpacked_scales, scales))) {
    std::fputs("fault_target: unpack() gave other codes or scales\n", stderr);
    std::_Exit(3);
  }
  return done;
}

// Whatever `device`, that of `linear`, answers; the first refusal is printed.
int use_until_refused(octile::Fp8Linear& linear, const char* device, bool gone) {
  octile::Fp8Weight weight = linear.weight();
  octile::Expected<void> first = {};
  for (int i = 0; i < 3; ++i) {
    const auto ran = run(linear);
    const auto updated = weight.update(source_of_codes());
    const auto unpacked = unpack(weight);
    for (const auto* result : {&ran, &updated, &unpacked}) {
      if (gone && !first && *result) {
        std::fputs("fault_target: a call went well on a device that is gone\n", stderr);
        return 3;
      }
      if (!*result && result->error().message.find(device) == std::string::npos) {
        std::fprintf(stderr, "fault_target: a refusal does not name %s: %s\n", device, result->error().message.c_str());
        return 3;
      }
      if (first && !*result) {
        first = *result;
      }
    }
  }
  return first ? 0 : refused(first.error());
}

// Destroys `linear` and says whether anything was written to stderr meanwhile.
bool ends_quietly(octile::Expected<octile::Fp8Linear> linear) {
  std::fflush(stderr);
  const int kept = ::dup(STDERR_FILENO);
  const int written = ::memfd_create("stderr", MFD_CLOEXEC);
  if (kept < 0 || written < 0 || ::dup2(written, STDERR_FILENO) < 0) {
    return false;
  }
  linear = octile::Error{octile::ErrorCode::failed, "destroyed"};
  std::fflush(stderr);
  ::dup2(kept, STDERR_FILENO);
  const bool quiet = ::lseek(written, 0, SEEK_END) == 0;
  ::close(kept);
  ::close(written);
  return quiet;
}

int run_beside(const char* device, bool gone) {
  const auto cpu = prepared_linear("cpu");
  if (!cpu || !cpu_goes_on(*cpu)) {
    return 3;
  }
  auto linear = prepared_linear(device);
  const int status = linear ? use_until_refused(*linear, device, gone) : refused(linear.error());
  if (status == 3 || !cpu_goes_on(*cpu)) {
    return 3;
  }
  if (!ends_quietly(std::move(linear)) || !cpu_goes_on(*cpu)) {
    std::fputs("fault_target: the end of the device's linear was not quiet\n", stderr);
    return 3;
  }
  std::puts("the CPU went on");
  return status;
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
    if (argc >= 3 && std::strcmp(argv[1], "beside") == 0) {
      return run_beside(argv[2], argc == 4 && std::strcmp(argv[3], "gone") == 0);
    }
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "fault_target: an exception came out of the library: %s\n", exception.what());
    return 3;
  }
  return 2;
}
