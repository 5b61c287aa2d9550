// SPDX-License-Identifier: Apache-2.0
#include "support/product_case.h"

#include "octile/core/format.h"

#include <gtest/gtest.h>

#include <utility>

namespace octile::test {

std::string text(const ProductShape& shape) {
  return format("M={} N={} K={} {} bias={} {} x_pad={} y_pad={}", shape.m, shape.n, shape.k, to_string(shape.out_dtype),
                shape.bias, to_string(shape.accumulate), shape.x_pad, shape.y_pad);
}

ProductShape fitted(ProductShape shape, WeightLayout layout) {
  shape.layout = layout;
  if (layout == WeightLayout::slab64) {
    shape.n = cuda::round_up(shape.n, cuda::kSlabChannels);
    shape.k = cuda::round_up(shape.k, cuda::kSlabChunk);
  }
  return shape;
}

ProductCase::ProductCase(const ProductShape& wanted) : shape(wanted) {
  codes_x = random_codes(shape.m * (shape.k + shape.x_pad));
  for (std::int64_t row = 0; row < shape.m; ++row) {
    for (std::int64_t i = shape.k; i < shape.k + shape.x_pad; ++i) {
      codes_x[static_cast<std::size_t>(row * (shape.k + shape.x_pad) + i)] = 0x7F;
    }
  }
  scales_x = random_scales(shape.m);
  codes_w = random_codes(shape.n * shape.k);
  scales_w = random_scales(shape.n);
  bias = normals(shape.n);
  upload();
}

void ProductCase::upload() {
  oracle_.reset();
  device_x_ = std::make_unique<DeviceBytes>(codes_x);
  device_sx_ = std::make_unique<DeviceBytes>(scales_x);
  device_bias_ = std::make_unique<DeviceBytes>(bias);
  WeightSource source;
  source.n = shape.n;
  source.k = shape.k;
  source.codes = codes_w.data();
  source.scales = scales_w.data();
  source.scale_count = shape.n;
  auto packed = shape.layout == WeightLayout::slab64 ? cuda::pack_slab64(*gpu().context, source)
                                                     : cuda::pack_row_major(*gpu().context, source);
  ASSERT_TRUE(packed) << packed.error().message;
  weight_ = *packed;
}

Problem ProductCase::problem() const {
  Problem problem;
  problem.n = shape.n;
  problem.k = shape.k;
  problem.out_dtype = shape.out_dtype;
  problem.bias = shape.bias;
  problem.accumulate = shape.accumulate;
  problem.layout = shape.layout;
  return problem;
}

std::unique_ptr<Kernel> ProductCase::prepare(const KernelFamily& family, const TileConfig& config) const {
  auto kernel = family.prepare(gpu().context->info, problem(), config, shape.m);
  if (!kernel) {
    ADD_FAILURE() << config.to_json() << ": " << kernel.error().message;
    return nullptr;
  }
  return std::move(*kernel);
}

std::vector<unsigned char> ProductCase::run(const Kernel& kernel) {
  constexpr std::int64_t kGuardBytes = 256;  // GuardedOutput's, before and after.
  const std::int64_t y_stride = shape.n + shape.y_pad;
  GuardedOutput y(shape.out_dtype, shape.m, shape.n, y_stride);
  const std::int64_t y_bytes = shape.m * y_stride * size_of(shape.out_dtype);
  auto* const host = static_cast<unsigned char*>(y.data()) - kGuardBytes;
  DeviceBytes device_y(y_bytes + 2 * kGuardBytes);
  device_y.upload(host);
  DeviceBytes workspace(kernel.workspace_bytes(shape.m));
  workspace.fill(0xFF);
  LaunchArgs args;
  args.activation.x = {device_x_->data(), DType::e4m3, shape.m, shape.k, shape.k + shape.x_pad, 1};
  args.activation.scales = static_cast<const float*>(device_sx_->data());
  args.y = {static_cast<unsigned char*>(device_y.data()) + kGuardBytes, shape.out_dtype, shape.m, shape.n, y_stride, 1};
  args.bias = shape.bias ? static_cast<const float*>(device_bias_->data()) : nullptr;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  const auto ran = kernel.run(*weight_, args);
  EXPECT_TRUE(ran) << ran.error().message;
  device_y.download(host);
  EXPECT_TRUE(y.guards_intact()) << "bytes outside the output were written";
  return {host + kGuardBytes, host + kGuardBytes + y_bytes};
}

void ProductCase::compute_reference() {
  std::vector<std::uint8_t> x;
  for (std::int64_t row = 0; row < shape.m; ++row) {
    const auto* begin = codes_x.data() + row * (shape.k + shape.x_pad);
    x.insert(x.end(), begin, begin + shape.k);
  }
  oracle_.emplace(ReferenceInputs{shape.m, shape.n, shape.k, x.data(), scales_x.data(), codes_w.data(), scales_w.data(),
                                  shape.bias ? bias.data() : nullptr});
}

void ProductCase::expect_right(const KernelFamily& family, const TileConfig& config) {
  SCOPED_TRACE(seed_text());
  SCOPED_TRACE(text(shape) + " " + config.to_json());
  const auto kernel = prepare(family, config);
  if (!kernel) {
    return;
  }
  const std::vector<unsigned char> y = run(*kernel);
  if (!oracle_) {
    compute_reference();
  }
  EXPECT_EQ(oracle_->verdict(y.data(), shape.out_dtype, shape.n + shape.y_pad, shape.accumulate), "");
}

}  // namespace octile::test
