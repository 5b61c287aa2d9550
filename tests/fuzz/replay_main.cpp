// SPDX-License-Identifier: Apache-2.0
// A fuzz program without libFuzzer, for compilers that have none: every input of its corpus, every truncation of the small
// ones, then random changes of them for so many seconds.
//   <name>_replay SECONDS FILE_OR_DIRECTORY...
// The seed is printed first: OCTILE_FUZZ_SEED repeats a run. The input that is being tried lies in <name>_replay.input when
// the program dies, behind its length in 8 bytes.
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Input = std::vector<std::uint8_t>;

constexpr std::string_view kMarks = "{}[]\",:0-9eE.\n\\ ";
constexpr std::size_t kLargest = 1 << 16;
constexpr std::size_t kTruncated = 4096;

class Replay {
 public:
  Replay(std::string kept, std::uint64_t seed) : kept_(std::move(kept)), random_(seed) {
    // Mapped: what was written is there however the program ends, and writing it costs nothing.
    const int fd = ::open(kept_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const std::size_t bytes = kLargest + sizeof(std::uint64_t);
    if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
      void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      memory_ = mapped == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(mapped);
    }
    if (fd >= 0) {
      ::close(fd);
    }
  }

  void add(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    inputs_.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    inputs_.back().resize(std::min(inputs_.back().size(), kLargest));
  }
  std::size_t seeds() const { return inputs_.size(); }

  void run(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
    for (const Input& input : inputs_) {
      try_one(input);
    }
    for (const Input& input : inputs_) {
      for (std::size_t size = 0; size < input.size() && input.size() <= kTruncated && in_time(end); ++size) {
        try_one({input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size)});
      }
    }
    while (in_time(end)) {
      try_one(changed());
    }
    fs::remove(kept_);
    std::printf("%zu inputs, nothing found\n", tried_);
  }

 private:
  static bool in_time(std::chrono::steady_clock::time_point end) { return std::chrono::steady_clock::now() < end; }
  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_); }

  // One of the inputs with one to eight changes.
  Input changed() {
    Input input = inputs_[below(inputs_.size())];
    for (std::size_t left = 1 + below(8); left > 0; --left) {
      change(input);
    }
    input.resize(std::min(input.size(), kLargest));
    return input;
  }

  void change(Input& input) {
    if (input.empty()) {
      input.push_back(static_cast<std::uint8_t>(below(256)));
      return;
    }
    const std::size_t at = below(input.size());
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length = 1 + below(std::min<std::size_t>(input.size() - at, 64));
    switch (below(7)) {
      case 0:
        *place ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        *place = static_cast<std::uint8_t>(below(256));
        break;
      case 2:  // What formats are made of.
        *place = static_cast<std::uint8_t>(kMarks[below(kMarks.size())]);
        break;
      case 3:
        input.erase(place, place + static_cast<std::ptrdiff_t>(length));
        break;
      case 4: {
        const Input part(place, place + static_cast<std::ptrdiff_t>(length));
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size())), part.begin(), part.end());
        break;
      }
      case 5: {
        const Input& other = inputs_[below(inputs_.size())];
        const std::size_t from = below(other.size() + 1);
        input.resize(at);
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        break;
      }
      default:
        input.resize(at);
        break;
    }
  }

  void try_one(const Input& input) {
    if (memory_ != nullptr) {
      const std::uint64_t size = input.size();
      std::memcpy(memory_, &size, sizeof size);
      std::copy(input.begin(), input.end(), memory_ + sizeof size);
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++tried_;
  }

  std::string kept_;
  std::uint8_t* memory_ = nullptr;
  std::mt19937_64 random_;
  std::vector<Input> inputs_;
  std::size_t tried_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SECONDS FILE_OR_DIRECTORY...\n", argv[0]);
    return 2;
  }
  const char* fixed = std::getenv("OCTILE_FUZZ_SEED");
  const std::uint64_t seed = fixed == nullptr ? std::random_device{}() : std::strtoull(fixed, nullptr, 10);
  std::printf("OCTILE_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  std::string kept = argv[0];
  kept += ".input";
  Replay replay(kept, seed);
  for (int i = 2; i < argc; ++i) {
    if (fs::is_directory(argv[i])) {
      for (const auto& file : fs::directory_iterator(argv[i])) {
        replay.add(file.path());
      }
    } else {
      replay.add(argv[i]);
    }
  }
  if (replay.seeds() == 0) {
    std::fprintf(stderr, "no inputs\n");
    return 2;
  }
  replay.run(std::atof(argv[1]));
  return 0;
}
