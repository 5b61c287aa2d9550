// SPDX-License-Identifier: Apache-2.0
// The C interface on the CPU with arguments of all kinds: statuses and messages, never a crash, nothing outside of the
// buffers. What an argument says of a buffer that the library accepts is true, since no library can know better.
#include <octile/octile.h>

#include "fuzz/fuzz.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace {

using octile::fuzz::require;

// Mostly what works, sometimes what cannot.
class Arguments {
 public:
  Arguments(const std::uint8_t* data, std::size_t size) : provider_(data, size) {}

  bool is_strange() { return provider_.ConsumeIntegralInRange(0, 15) == 0; }
  // Of a buffer: never more than it has.
  std::int64_t size(std::int64_t largest) {
    constexpr std::array<std::int64_t, 4> kStrange = {0, -1, INT64_MIN, -(std::int64_t{1} << 31)};
    return is_strange() ? kStrange[provider_.ConsumeIntegralInRange<std::size_t>(0, kStrange.size() - 1)]
                        : provider_.ConsumeIntegralInRange<std::int64_t>(1, largest);
  }
  // A number that no buffer stands behind.
  std::int64_t count(std::int64_t largest) {
    return is_strange() ? provider_.ConsumeIntegral<std::int64_t>() : size(largest);
  }
  std::int32_t word(std::int32_t largest) {
    return is_strange() ? provider_.ConsumeIntegral<std::int32_t>() : provider_.ConsumeIntegralInRange(0, largest);
  }
  float number() { return is_strange() ? provider_.ConsumeFloatingPoint<float>() : 0.0F; }
  std::size_t struct_size(std::size_t size) { return is_strange() ? provider_.ConsumeIntegral<std::uint16_t>() : size; }
  // All from one drawn number, since the input is short; every byte value occurs, NaN codes, too.
  std::vector<std::uint8_t> bytes(std::size_t count) {
    std::mt19937 generator(provider_.ConsumeIntegral<std::uint16_t>());
    const std::uint32_t limit = is_strange() ? 256 : 0x40;
    std::vector<std::uint8_t> result(count);
    std::ranges::generate(result, [&] { return static_cast<std::uint8_t>(generator() % limit); });
    return result;
  }
  const std::uint8_t* or_null(const std::vector<std::uint8_t>& buffer) { return is_strange() ? nullptr : buffer.data(); }

 private:
  FuzzedDataProvider provider_;
};

constexpr std::int64_t kMaxSide = 70;
// Whatever stride up to this an argument claims, the buffers are long enough for it.
constexpr std::int64_t kMaxStride = 2 * kMaxSide;
constexpr std::size_t kBufferBytes = static_cast<std::size_t>(kMaxStride * (kMaxSide + 1) * 4);

void check(octile_status status) {
  require(status >= OCTILE_OK && status <= OCTILE_OUT_OF_MEMORY, "a status that is declared");
  require(status == OCTILE_OK || *octile_last_error() != '\0', "a failure has a message");
}

// A buffer that is aligned, followed by a guard of one byte's pattern.
class Guarded {
 public:
  explicit Guarded(std::size_t size) : size_(size), storage_(size + 2 * kGuard + 64, 0xA5) {
    void* start = storage_.data() + kGuard;
    std::size_t room = size + 64;
    data_ = static_cast<std::uint8_t*>(std::align(64, size, start, room));
  }
  std::uint8_t* data() { return data_; }
  bool intact() const {
    const auto is_guard = [](std::uint8_t byte) { return byte == 0xA5; };
    return std::all_of(storage_.data(), static_cast<const std::uint8_t*>(data_), is_guard) &&
           std::all_of(data_ + size_, data_ + size_ + kGuard, is_guard);
  }

 private:
  static constexpr std::size_t kGuard = 256;
  std::size_t size_;
  std::vector<std::uint8_t> storage_;
  std::uint8_t* data_;
};

void run_linear(Arguments& arguments, octile_linear* linear, std::int64_t n, std::int64_t k) {
  check(octile_linear_prepare(linear, arguments.count(kMaxSide)));
  require(octile_linear_workspace_bytes(linear, arguments.count(kMaxSide)) >= 0, "a size of a workspace");
  const std::int64_t m = arguments.size(kMaxSide);
  const std::int64_t needed = octile_linear_workspace_bytes(linear, m);
  require(needed >= 0 && needed < (std::int64_t{1} << 24), "a workspace for a few rows is small");
  const bool is_short = arguments.is_strange();
  Guarded workspace(static_cast<std::size_t>(needed));
  const std::vector<std::uint8_t> x = arguments.bytes(kBufferBytes);
  Guarded y(kBufferBytes);
  octile_const_matrix in{arguments.struct_size(sizeof(octile_const_matrix)),
                         arguments.or_null(x),
                         m,
                         arguments.is_strange() ? arguments.size(kMaxSide) : k,
                         0,
                         arguments.word(OCTILE_E4M3FNUZ)};
  in.row_stride = arguments.is_strange() ? arguments.size(kMaxStride) : 0;
  octile_matrix out{
      arguments.struct_size(sizeof(octile_matrix)),          y.data(), arguments.is_strange() ? arguments.size(kMaxSide) : m,
      arguments.is_strange() ? arguments.size(kMaxSide) : n, 0,        arguments.word(OCTILE_FP32)};
  out.row_stride = arguments.is_strange() ? arguments.size(kMaxStride) : 0;
  const std::int64_t given = is_short ? needed / 2 : needed;
  const std::vector<std::uint8_t> scale_bytes = arguments.bytes(static_cast<std::size_t>(kMaxSide) * sizeof(float));
  std::vector<float> scales(static_cast<std::size_t>(kMaxSide));
  std::memcpy(scales.data(), scale_bytes.data(), scale_bytes.size());
  if (arguments.is_strange()) {
    check(octile_linear_run_quantized(linear, &in, arguments.is_strange() ? nullptr : scales.data(), &out, workspace.data(),
                                      given, nullptr));
  } else {
    check(octile_linear_run(linear, arguments.is_strange() ? nullptr : &in, arguments.is_strange() ? nullptr : &out,
                            arguments.is_strange() ? nullptr : workspace.data(), given, nullptr));
  }
  require(workspace.intact() && y.intact(), "nothing is written outside of y and the workspace");
  char* json = nullptr;
  check(octile_linear_explain(linear, m, arguments.is_strange() ? nullptr : &json));
  octile_string_free(json);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Arguments arguments(data, size);
  const std::int64_t n = arguments.size(kMaxSide);
  const std::int64_t k = arguments.size(kMaxSide);
  const std::vector<std::uint8_t> codes = arguments.bytes(kBufferBytes);
  const std::vector<std::uint8_t> scales = arguments.bytes(static_cast<std::size_t>(kMaxSide) * sizeof(float));
  octile_weight_source source{};
  source.struct_size = arguments.struct_size(sizeof source);
  source.n = n;
  source.k = k;
  source.codes = arguments.or_null(codes);
  source.row_stride = arguments.is_strange() ? arguments.size(kMaxStride) : 0;
  source.scales = arguments.or_null(scales);
  source.scale_count = arguments.is_strange() ? arguments.size(kMaxSide) : n;
  source.code_dtype = arguments.word(OCTILE_E4M3FNUZ);
  source.scale_dtype = arguments.word(OCTILE_FP16);
  octile_weight_options options{};
  options.struct_size = arguments.struct_size(sizeof options);
  options.device = arguments.is_strange() ? "cpu:7" : nullptr;
  options.tables = "/nonexistent";
  options.out_dtype = arguments.word(OCTILE_FP32);
  options.accumulate = arguments.word(OCTILE_ACCUMULATE_PRECISE);
  options.numerics = arguments.word(OCTILE_NUMERICS_BASELINE);
  options.batch_invariant = arguments.word(1);
  options.pdl = arguments.word(OCTILE_PDL_FULL);
  octile_weight* weight = nullptr;
  check(octile_weight_create(arguments.is_strange() ? nullptr : &source, arguments.is_strange() ? nullptr : &options,
                             arguments.is_strange() ? nullptr : &weight));
  if (weight == nullptr) {
    return 0;
  }
  require(octile_weight_n(weight) == n && octile_weight_k(weight) == k && octile_weight_bytes(weight) > 0, "its shape");
  octile_quantize_options quantize{};
  quantize.struct_size = arguments.struct_size(sizeof quantize);
  quantize.floor = arguments.number();
  quantize.upper_bound = arguments.number();
  quantize.division = arguments.word(OCTILE_DIVISION_RECIPROCAL);
  const std::vector<std::uint8_t> bias = arguments.bytes(static_cast<std::size_t>(kMaxSide) * sizeof(float));
  octile_linear_options linear_options{};
  linear_options.struct_size = arguments.struct_size(sizeof linear_options);
  linear_options.activation = arguments.word(OCTILE_QUANTIZED);
  linear_options.static_scale = arguments.number();
  linear_options.quantize = arguments.is_strange() ? &quantize : nullptr;
  linear_options.bias = arguments.is_strange() ? bias.data() : nullptr;
  linear_options.x_dtype = arguments.word(OCTILE_FP16);
  linear_options.bias_dtype = arguments.word(OCTILE_FP16);
  linear_options.allow_capture_fallback = arguments.word(1);
  octile_linear* linear = nullptr;
  check(octile_linear_create(weight, arguments.is_strange() ? nullptr : &linear_options,
                             arguments.is_strange() ? nullptr : &linear));
  octile_weight_destroy(weight);  // Linears live on.
  if (linear != nullptr) {
    run_linear(arguments, linear, n, k);
  }
  octile_linear_destroy(linear);
  return 0;
}
