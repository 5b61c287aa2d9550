// SPDX-License-Identifier: Apache-2.0
// Which (device, N, K, M) a process ran without a tuned entry, and how often: counted on the hot path, written to the file
// of OCTILE_UNTUNED_LOG by a thread of its own, read back by `octile tune --from-log`.
#pragma once

#include <octile/error.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace octile {

// What the counts of one counter belong to: a weight [n, k] on a device, with what a table's hard keys know of the call.
struct UntunedShape {
  std::string device_name;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string out_dtype;
  bool bias = false;
  auto operator<=>(const UntunedShape&) const = default;
};

// Calls by M. add() takes no lock and allocates nothing: run() calls it.
class UntunedCounter {
 public:
  // M itself up to 16,384, above it the next multiple of 1024, and 2^20 for whatever is larger.
  static std::int64_t counted_as(std::int64_t m) noexcept;
  // Precondition: m >= 1.
  void add(std::int64_t m) noexcept { counts_[slot_of(m)].fetch_add(1, std::memory_order_relaxed); }
  // Ascending (M, calls) since the last take(), which starts again at zero.
  std::vector<std::pair<std::int64_t, std::uint64_t>> take();
  // Hands back what could not be written.
  void put_back(const std::vector<std::pair<std::int64_t, std::uint64_t>>& calls) noexcept;

 private:
  static constexpr std::int64_t kEveryMUpTo = 16384;
  static constexpr std::int64_t kStep = 1024;
  static constexpr std::int64_t kLargest = std::int64_t{1} << 20;
  static std::size_t slot_of(std::int64_t m) noexcept;

  std::array<std::atomic<std::uint64_t>, kEveryMUpTo + (kLargest - kEveryMUpTo) / kStep> counts_{};
};

// The process's counter of this shape; nullptr where OCTILE_UNTUNED_LOG is unset, or its file cannot be written, which is
// said once. The counts are appended 10 s after the first call that asks for a counter, then after twice as long each time
// up to half an hour, and when the process exits. A child of fork() counts from zero.
std::shared_ptr<UntunedCounter> untuned_counter(const UntunedShape& shape);
// Appends what was counted since, now. Errors (io) leave it counted.
Expected<void> flush_untuned_log();

// Calls at one M, over all lines of a log.
struct UntunedPoint {
  UntunedShape shape;
  std::int64_t m = 0;
  std::uint64_t count = 0;
};
struct UntunedLog {
  std::vector<UntunedPoint> points;  // Ascending by shape and M, each once.
  std::vector<std::string> notes;    // Lines that could not be read.
};
// Errors: io for the file; corrupt where no line of it can be read.
Expected<UntunedLog> read_untuned_log(const std::string& path);

}  // namespace octile
