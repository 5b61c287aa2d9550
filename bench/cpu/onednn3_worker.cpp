// SPDX-License-Identifier: Apache-2.0
// The bare matmul of a oneDNN of version 3, in a process of its own, for cpu_kernel_times to interleave with ours. Weights
// are packed as oneDNN prefers, on huge pages, and cold: copies of at least COLD_BYTES in turn.
//
//   in:  "prepare MODE M N K COLD_BYTES"  MODE: bf16, bf16xf8 (weights stay e4m3), int8 (u8 x s8, sums to s32, fp32 out)
//   out: "ok IMPLEMENTATION" or "error TEXT"
//   in:  "time MODE CALLS"                of what was prepared last with this MODE
//   out: "us MICROSECONDS" of one call
#include "oneapi/dnnl/dnnl.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using dnnl::memory;

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

struct FreeMemory {
  void operator()(void* data) const { std::free(data); }
};
using Bytes = std::unique_ptr<void, FreeMemory>;

Bytes huge_pages(std::size_t bytes) {
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* data = std::aligned_alloc(kHugePageBytes, rounded);
  if (data == nullptr) {
    throw std::runtime_error("out of memory");
  }
  static_cast<void>(madvise(data, rounded, MADV_HUGEPAGE));
  std::memset(data, 0, rounded);
  return Bytes(data);
}

struct Mode {
  const char* name;
  memory::data_type x, w, y;
};
constexpr Mode kModes[] = {{"bf16", memory::data_type::bf16, memory::data_type::bf16, memory::data_type::bf16},
                           {"bf16xf8", memory::data_type::bf16, memory::data_type::f8_e4m3, memory::data_type::bf16},
                           {"int8", memory::data_type::u8, memory::data_type::s8, memory::data_type::f32}};

const Mode& mode_named(const std::string& name) {
  for (const Mode& mode : kModes) {
    if (name == mode.name) {
      return mode;
    }
  }
  throw std::runtime_error("no mode '" + name + "'");
}

class Memories {
 public:
  // Random bytes that are small numbers in every format: bf16 of about 1, codes without NaN, small integers.
  memory make(const memory::desc& description, const dnnl::engine& engine, bool random = true) {
    Bytes bytes = huge_pages(description.get_size());
    if (random) {
      std::mt19937 generator(1);
      auto* data = static_cast<std::uint8_t*>(bytes.get());
      const bool halves = description.get_data_type() == memory::data_type::bf16;
      for (std::size_t i = 0; i < description.get_size(); ++i) {
        data[i] = halves && i % 2 == 1 ? 0x3F : static_cast<std::uint8_t>(generator() % 0x70U);
      }
    }
    const memory result(description, engine, bytes.get());
    held_.push_back(std::move(bytes));
    return result;
  }

 private:
  std::vector<Bytes> held_;
};

// Copies of one weight, packed.
struct Weights {
  memory::desc description;
  Memories memories;
  std::vector<memory> copies;
};

// One product, its operands and as many copies of the weight as make it cold.
class Product {
 public:
  // Takes the weights of `known` over where they are packed as this product wants them.
  Product(const Mode& mode, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t cold_bytes,
          std::shared_ptr<Weights> known)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), weights_(std::move(known)) {
    const memory::desc x({m, k}, mode.x, memory::format_tag::ab);
    const memory::desc any({k, n}, mode.w, memory::format_tag::any);
    const memory::desc y({m, n}, mode.y, memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (mode.w == memory::data_type::f8_e4m3) {
      attributes.set_fpmath_mode(dnnl::fpmath_mode::bf16, true);
    }
    const dnnl::matmul::primitive_desc description(engine_, x, any, y, attributes);
    implementation_ = description.impl_info_str();
    matmul_ = dnnl::matmul(description);
    x_ = memories_.make(description.src_desc(), engine_);
    y_ = memories_.make(description.dst_desc(), engine_);
    scratchpad_ = memories_.make(description.scratchpad_desc(), engine_);
    if (weights_ == nullptr || weights_->description != description.weights_desc()) {
      weights_ = packed(mode, n, k, description.weights_desc(), cold_bytes);
    }
  }

  const std::string& implementation() const { return implementation_; }
  const std::shared_ptr<Weights>& weights() const { return weights_; }

  double time_us(std::int64_t calls) {
    run();  // Wakes the threads.
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      run();
    }
    const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - begin;
    return all.count() / static_cast<double>(calls);
  }

 private:
  std::shared_ptr<Weights> packed(const Mode& mode, std::int64_t n, std::int64_t k, const memory::desc& description,
                                  std::int64_t cold_bytes) {
    auto weights = std::make_shared<Weights>();
    weights->description = description;
    const auto bytes = static_cast<std::int64_t>(description.get_size());
    const std::int64_t count = std::max<std::int64_t>(2, (cold_bytes + bytes - 1) / bytes);
    Memories plain_memory;
    memory plain = plain_memory.make(memory::desc({k, n}, mode.w, memory::format_tag::ba), engine_);
    for (std::int64_t i = 0; i < count; ++i) {
      memory copy = weights->memories.make(description, engine_, false);
      dnnl::reorder(plain, copy).execute(stream_, plain, copy);
      weights->copies.push_back(copy);
    }
    stream_.wait();
    return weights;
  }

  void run() {
    memory& weight = weights_->copies[next_++ % weights_->copies.size()];
    matmul_.execute(
        stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, y_}, {DNNL_ARG_SCRATCHPAD, scratchpad_}});
    stream_.wait();
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::string implementation_;
  Memories memories_;
  memory x_, y_, scratchpad_;
  std::shared_ptr<Weights> weights_;
  std::size_t next_ = 0;
};

// What is prepared of one mode.
struct Prepared {
  std::int64_t n = 0, k = 0;
  std::unique_ptr<Product> product;
};

std::string answer(const std::string& line, std::map<std::string, Prepared>& products) {
  std::istringstream words(line);
  std::string what;
  std::string mode;
  words >> what >> mode;
  if (what == "prepare") {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t cold_bytes = 0;
    words >> m >> n >> k >> cold_bytes;
    Prepared& prepared = products[mode];
    const bool same = prepared.product != nullptr && prepared.n == n && prepared.k == k;
    std::shared_ptr<Weights> known = same ? prepared.product->weights() : nullptr;
    prepared = {};  // Frees what is not needed any more before memory is taken anew.
    prepared = {n, k, std::make_unique<Product>(mode_named(mode), m, n, k, cold_bytes, std::move(known))};
    return "ok " + prepared.product->implementation();
  }
  std::int64_t calls = 0;
  words >> calls;
  if (what == "time" && calls > 0 && products[mode].product != nullptr) {
    return "us " + std::to_string(products[mode].product->time_us(calls));
  }
  throw std::runtime_error("cannot do '" + line + "'");
}

}  // namespace

int main() {
  std::map<std::string, Prepared> products;
  const dnnl_version_t* version = dnnl_version();
  std::cout << "onednn " << version->major << '.' << version->minor << '.' << version->patch << '\n' << std::flush;
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      std::cout << answer(line, products) << '\n' << std::flush;
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << '\n' << std::flush;
    }
  }
  return 0;
}
