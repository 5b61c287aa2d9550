// SPDX-License-Identifier: Apache-2.0
// One linear run on a device through a family's kernel and compared with the double-precision reference.
#include "support/gpu_linear.h"

#include "octile/core/format.h"
#include "octile/quant/quantize.h"
#include "support/product_oracle.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace octile::test {
namespace {

constexpr unsigned char kPoison = 0xFF;     // NaN in bf16, fp16, fp32 and e4m3.
constexpr std::int64_t kGuardBytes = 4096;  // Before and after y.

bool fail(const Error& error) {
  ADD_FAILURE() << error.message;
  return false;
}

std::int64_t float_bytes(const std::vector<float>& values) {
  return static_cast<std::int64_t>(values.size() * sizeof(float));
}

bool is_poison(const unsigned char* bytes, std::int64_t count) {
  return std::all_of(bytes, bytes + count, [](unsigned char byte) { return byte == kPoison; });
}

}  // namespace

std::string LinearCase::to_string() const {
  return format("M={} N={} K={} out={} bias={} {} x_padding={} y_padding={} accumulate={}", m, n, k,
                octile::to_string(out_dtype), bias, codes ? "codes" : octile::to_string(x_dtype), x_padding, y_padding,
                octile::to_string(accumulate));
}

DeviceLinear::DeviceLinear(const Backend& backend, const DeviceInfo& device, const LinearCase& linear_case,
                           std::string_view layout)
    : backend_(backend), device_(device), case_(linear_case) {
  const auto count = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  codes_w_ = random_codes(case_.n * case_.k);
  scales_w_ = random_scales(case_.n);
  if (case_.bias) {
    bias_ = normals(case_.n);
  }
  WeightSource source;
  source.n = case_.n;
  source.k = case_.k;
  source.codes = codes_w_.data();
  source.scales = scales_w_.data();
  source.scale_dtype = DType::fp32;
  source.scale_count = case_.n;
  auto packed = backend_.pack(device_, layout, source);
  if (!packed) {
    fail(packed.error());
    return;
  }
  weight_ = std::move(*packed);

  const auto allocate = [&](std::unique_ptr<DeviceBuffer>& buffer, std::int64_t bytes) {
    auto allocated = backend_.allocate(device_, std::max<std::int64_t>(bytes, 1));
    if (!allocated) {
      return fail(allocated.error());
    }
    buffer = std::move(*allocated);
    return true;
  };
  const std::int64_t rows = case_.m + case_.rows_behind;
  const std::int64_t bias_bytes = float_bytes(bias_);
  host_y_.assign(count(2 * kGuardBytes + case_.m * y_stride() * size_of(case_.out_dtype)), kPoison);
  ready_ = allocate(x_, rows * x_stride() * x_element_bytes()) &&
           allocate(x_scales_, rows * static_cast<std::int64_t>(sizeof(float))) && allocate(bias_buffer_, bias_bytes) &&
           allocate(y_, static_cast<std::int64_t>(host_y_.size())) && upload(*bias_buffer_, bias_.data(), bias_bytes) &&
           draw_activations();
}

bool DeviceLinear::upload(DeviceBuffer& buffer, const void* data, std::int64_t bytes) {
  const auto uploaded = backend_.upload(device_, buffer.data(), data, bytes);
  return uploaded ? true : fail(uploaded.error());
}

bool DeviceLinear::draw_activations() {
  const auto count = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  const std::int64_t element = x_element_bytes();
  std::vector<unsigned char> x(count((case_.m + case_.rows_behind) * x_stride() * element), kPoison);
  codes_x_.resize(count(case_.m * case_.k));
  scales_x_.resize(count(case_.m));
  if (case_.codes) {
    codes_x_ = random_codes(case_.m * case_.k);
    scales_x_ = random_scales(case_.m);
  }
  const auto raw =
      case_.codes ? std::vector<unsigned char>() : as_bytes(normals_with_outliers(case_.m * case_.k), case_.x_dtype);
  for (std::int64_t row = 0; row < case_.m; ++row) {
    unsigned char* to = x.data() + row * x_stride() * element;
    if (case_.codes) {
      std::copy_n(codes_x_.begin() + row * case_.k, case_.k, to);
    } else {
      std::copy_n(raw.begin() + row * case_.k * element, case_.k * element, to);
      scales_x_[count(row)] = quantize_row(to, case_.x_dtype, case_.k, codes_x_.data() + row * case_.k, QuantizeOptions{});
    }
  }
  std::vector<float> scales = scales_x_;
  scales.resize(count(case_.m + case_.rows_behind), std::numeric_limits<float>::quiet_NaN());
  return upload(*x_, x.data(), static_cast<std::int64_t>(x.size())) &&
         upload(*x_scales_, scales.data(), float_bytes(scales));
}

Problem DeviceLinear::problem() const {
  Problem problem;
  problem.n = case_.n;
  problem.k = case_.k;
  problem.out_dtype = case_.out_dtype;
  problem.bias = case_.bias;
  problem.accumulate = case_.accumulate;
  return problem;
}

LaunchArgs DeviceLinear::arguments(void* stream) const {
  LaunchArgs args;
  args.activation.x = {x_->data(), case_.codes ? DType::e4m3 : case_.x_dtype, case_.m, case_.k, x_stride(), 1};
  args.activation.scales = case_.codes ? static_cast<const float*>(x_scales_->data()) : nullptr;
  args.y = {static_cast<unsigned char*>(y_->data()) + kGuardBytes, case_.out_dtype, case_.m, case_.n, y_stride(), 1};
  args.bias = case_.bias ? static_cast<const float*>(bias_buffer_->data()) : nullptr;
  args.workspace = workspace_ == nullptr ? nullptr : workspace_->data();
  args.workspace_bytes = workspace_ == nullptr ? 0 : workspace_->bytes();
  args.stream = stream;
  return args;
}

bool DeviceLinear::run(const Kernel& kernel) {
  const std::int64_t workspace_bytes = kernel.workspace_bytes(case_.m);
  if (workspace_ == nullptr || workspace_->bytes() < workspace_bytes) {
    auto allocated = backend_.allocate(device_, workspace_bytes);
    if (!allocated) {
      return fail(allocated.error());
    }
    workspace_ = std::move(*allocated);
  }
  const std::vector<unsigned char> poison(static_cast<std::size_t>(workspace_->bytes()), kPoison);
  if (auto done = backend_.upload(device_, workspace_->data(), poison.data(), workspace_->bytes()); !done) {
    return fail(done.error());
  }
  if (!poison_output()) {
    return false;
  }
  if (auto done = kernel.run(*weight_, arguments()); !done) {
    return fail(done.error());
  }
  return download_output();
}

bool DeviceLinear::poison_output() {
  std::fill(host_y_.begin(), host_y_.end(), kPoison);
  const auto done = backend_.upload(device_, y_->data(), host_y_.data(), static_cast<std::int64_t>(host_y_.size()));
  return done ? true : fail(done.error());
}

bool DeviceLinear::download_output() {
  const auto done = backend_.download(device_, host_y_.data(), y_->data(), static_cast<std::int64_t>(host_y_.size()));
  return done ? true : fail(done.error());
}

std::string DeviceLinear::verdict() const {
  const unsigned char* y = host_y_.data() + kGuardBytes;
  const std::int64_t element = size_of(case_.out_dtype);
  const std::int64_t y_bytes = case_.m * y_stride() * element;
  if (!is_poison(host_y_.data(), kGuardBytes) || !is_poison(y + y_bytes, kGuardBytes)) {
    return "bytes before or after y were written";
  }
  for (std::int64_t row = 0; row < case_.m; ++row) {
    if (!is_poison(y + (row * y_stride() + case_.n) * element, case_.y_padding * element)) {
      return format("the padding of row {} of y was written", row);
    }
  }
  ReferenceInputs inputs;
  inputs.m = case_.m;
  inputs.n = case_.n;
  inputs.k = case_.k;
  inputs.codes_x = codes_x_.data();
  inputs.scales_x = scales_x_.data();
  inputs.codes_w = codes_w_.data();
  inputs.scales_w = scales_w_.data();
  inputs.bias = case_.bias ? bias_.data() : nullptr;
  return ProductOracle(inputs).verdict(y, case_.out_dtype, y_stride(), case_.accumulate);
}

}  // namespace octile::test
