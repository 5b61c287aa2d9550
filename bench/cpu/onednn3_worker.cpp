// SPDX-License-Identifier: Apache-2.0
// The bare matmul of a oneDNN of version 3, in a process of its own, for cpu_kernel_times to interleave with ours. Weights
// are packed as oneDNN prefers, on huge pages, and cold: copies of at least COLD_BYTES in turn.
//
//   in:  "prepare MODE M N K COLD_BYTES"  MODE: bf16, bf16xf8 (weights stay e4m3), int8 (u8 x s8, sums to s32, fp32 out)
//   out: "ok IMPLEMENTATION" or "error TEXT"
//   in:  "time CALLS"                     of what was prepared last with this MODE: "time MODE CALLS"
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
#include <unordered_map>
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

// One product, its operands and as many copies of the weight as make it cold.
class Product {
 public:
  Product(const Mode& mode, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t cold_bytes)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
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
    x_ = filled(description.src_desc());
    y_ = filled(description.dst_desc());
    scratchpad_ = filled(description.scratchpad_desc());
    const auto bytes = static_cast<std::int64_t>(description.weights_desc().get_size());
    const std::int64_t copies = std::max<std::int64_t>(2, (cold_bytes + bytes - 1) / bytes);
    const memory plain = filled(memory::desc({k, n}, mode.w, memory::format_tag::ba));
    for (std::int64_t i = 0; i < copies; ++i) {
      memory packed = filled(description.weights_desc(), false);
      dnnl::reorder(plain, packed).execute(stream_, const_cast<memory&>(plain), packed);
      weights_.push_back(packed);
    }
    stream_.wait();
  }

  const std::string& implementation() const { return implementation_; }

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
  void run() {
    memory& weight = weights_[next_++ % weights_.size()];
    matmul_.execute(
        stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, y_}, {DNNL_ARG_SCRATCHPAD, scratchpad_}});
    stream_.wait();
  }

  // Random bytes that are small numbers in every format: bf16 of about 1, codes without NaN, small integers.
  memory filled(const memory::desc& description, bool random = true) {
    Bytes bytes = huge_pages(description.get_size());
    memory result(description, engine_, bytes.get());
    if (random) {
      std::mt19937 generator(1);
      auto* data = static_cast<std::uint8_t*>(bytes.get());
      const bool halves = description.get_data_type() == memory::data_type::bf16;
      for (std::size_t i = 0; i < description.get_size(); ++i) {
        data[i] = halves && i % 2 == 1 ? 0x3F : static_cast<std::uint8_t>(generator() % 0x70U);
      }
    }
    held_.push_back(std::move(bytes));
    return result;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::string implementation_;
  std::vector<Bytes> held_;
  memory x_, y_, scratchpad_;
  std::vector<memory> weights_;
  std::size_t next_ = 0;
};

std::string answer(const std::string& line, std::map<std::string, std::unique_ptr<Product>>& products) {
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
    products.erase(mode);
    products[mode] = std::make_unique<Product>(mode_named(mode), m, n, k, cold_bytes);
    return "ok " + products[mode]->implementation();
  }
  std::int64_t calls = 0;
  words >> calls;
  if (what == "time" && calls > 0 && products.contains(mode)) {
    return "us " + std::to_string(products[mode]->time_us(calls));
  }
  throw std::runtime_error("cannot do '" + line + "'");
}

}  // namespace

int main() {
  std::map<std::string, std::unique_ptr<Product>> products;
  const dnnl_version_t* version = dnnl_version();
  std::cout << "onednn " << version->major << '.' << version->minor << '.' << version->patch << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      std::cout << answer(line, products) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
  return 0;
}
