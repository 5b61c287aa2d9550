// SPDX-License-Identifier: Apache-2.0
// The stream floor reads every byte of a weight, with every instruction set.
#include "octile/kernels/cpu/stream_floor.h"

#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/host_memory.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace octile::cpu {
namespace {

// Byte by byte: byte i belongs to bits 8 (i % 8) of its little-endian word.
std::uint64_t plain_xor(const unsigned char* data, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    sum ^= std::uint64_t{data[i]} << (8 * (i % 8));
  }
  return sum;
}

std::vector<unsigned char> random_bytes(std::size_t count) {
  std::vector<unsigned char> bytes(count);
  for (unsigned char& byte : bytes) {
    byte = static_cast<unsigned char>(test::generator()());
  }
  return bytes;
}

TEST(XorOfWords, IsTheSameForEveryInstructionSetLengthAndAlignment) {
  SCOPED_TRACE(test::seed_text());
  const std::vector<unsigned char> bytes = random_bytes(3000);
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (isa > isa_of(cpu_features())) {
      continue;
    }
    for (const std::size_t length : {0U, 1U, 7U, 8U, 9U, 63U, 64U, 255U, 256U, 257U, 511U, 512U, 1000U, 2048U, 2991U}) {
      for (const std::size_t offset : {0U, 1U, 8U}) {
        EXPECT_EQ(xor_of_words(bytes.data() + offset, static_cast<std::int64_t>(length), isa),
                  plain_xor(bytes.data() + offset, length))
            << isa_name(isa) << ", " << length << " bytes at " << offset;
      }
    }
  }
}

// A weight that is nothing but its bytes.
class BytesWeight final : public PackedWeight {
 public:
  explicit BytesWeight(const std::vector<unsigned char>& bytes) : bytes_(std::as_bytes(std::span(bytes))) {}
  std::int64_t n() const noexcept override { return 1; }
  std::int64_t k() const noexcept override { return 1; }
  std::int64_t bytes() const noexcept override { return static_cast<std::int64_t>(bytes_.size()); }
  std::string_view layout() const noexcept override { return "bytes"; }
  std::span<const std::byte> host_bytes() const noexcept override { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

std::uint64_t floor_checksum(const PackedWeight& weight, Isa isa) {
  const std::unique_ptr<Kernel> floor = make_stream_floor(isa);
  const HostMemory workspace = *HostMemory::allocate(floor->workspace_bytes(1));
  std::memset(workspace.data(), 0x5A, static_cast<std::size_t>(workspace.bytes()));
  LaunchArgs args;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  const Expected<void> done = floor->run(weight, args);
  EXPECT_TRUE(done) << done.error().message;
  std::uint64_t sum = 0;
  std::memcpy(&sum, workspace.data(), sizeof(sum));
  return sum;
}

TEST(StreamFloor, ReadsEveryByteOnce) {
  SCOPED_TRACE(test::seed_text());
  // The last two lengths are more than one thread takes at a time.
  for (const std::size_t length : {1U, 255U, 256U, 1000U, 4096U, 1U << 20U, (1U << 20U) + 1U, 5000003U}) {
    std::vector<unsigned char> bytes = random_bytes(length);
    const Isa isa = isa_of(cpu_features());
    EXPECT_EQ(floor_checksum(BytesWeight(bytes), isa), plain_xor(bytes.data(), length)) << length << " bytes";
    bytes.back() ^= 0x10;  // A single changed bit at the very end is seen.
    EXPECT_EQ(floor_checksum(BytesWeight(bytes), Isa::generic), plain_xor(bytes.data(), length)) << length << " bytes";
  }
}

TEST(StreamFloor, ReadsAPackedWeight) {
  SCOPED_TRACE(test::seed_text());
  const std::vector<std::uint8_t> codes = test::random_codes(100 * 130);
  const std::vector<float> scales = test::random_scales(100);
  const Expected<std::shared_ptr<PackedWeight>> packed =
      pack_cpu({.n = 100, .k = 130, .codes = codes.data(), .scales = scales.data(), .scale_count = 100});
  ASSERT_TRUE(packed) << packed.error().message;
  const std::span<const std::byte> bytes = (*packed)->host_bytes();
  ASSERT_GE(bytes.size(), codes.size());
  EXPECT_EQ(floor_checksum(**packed, isa_of(cpu_features())),
            plain_xor(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

TEST(StreamFloor, RefusesASmallWorkspaceAndAWeightThatIsElsewhere) {
  const std::unique_ptr<Kernel> floor = make_stream_floor(Isa::generic);
  const std::vector<unsigned char> bytes(64, 1);
  const std::vector<unsigned char> none;
  const HostMemory workspace = *HostMemory::allocate(floor->workspace_bytes(1));
  LaunchArgs args;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes() - 1;
  const Expected<void> small = floor->run(BytesWeight(bytes), args);
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error().message, testing::HasSubstr("want a workspace of " + std::to_string(workspace.bytes())));
  args.workspace_bytes = workspace.bytes();
  const Expected<void> elsewhere = floor->run(BytesWeight(none), args);
  ASSERT_FALSE(elsewhere);
  EXPECT_THAT(elsewhere.error().message, testing::HasSubstr("layout 'bytes'"));
}

}  // namespace
}  // namespace octile::cpu
