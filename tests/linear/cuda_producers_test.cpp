// SPDX-License-Identifier: Apache-2.0
// Producers in front of linears on a GPU: what is launched, and the bits of whole chains in every launch mode between
// foreign kernels of every kind. Skipped without a GPU that has programmatic dependent launch.
#include "layer.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "support/foreign_kernel.h"
#include "support/gpu.h"
#include "support/producer_case.h"
#include "table_directory.h"
#include "tables.h"

#include <octile/octile.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octile {
namespace {

using cuda::CUdeviceptr;
using cuda::CurrentContext;
using cuda::CUstream;
using test::DeviceBytes;
using test::ForeignCopy;
using test::Manners;
using test::TableDirectory;
using test::Weights;

constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kInner = 1536;

struct Launched {
  unsigned blocks = 0;
  bool early = false;  // With the attribute of programmatic dependent launch.
};

// Notes every kernel launch of the process while it lives, and makes it. One at a time.
class LaunchCounter {
 public:
  // The process' driver table is no constant object.
  explicit LaunchCounter(const cuda::Driver& driver)
      : driver_(const_cast<cuda::Driver&>(driver)), launch_(driver.launch_kernel) {
    active_ = this;
    driver_.launch_kernel = &LaunchCounter::note;
  }
  ~LaunchCounter() {
    driver_.launch_kernel = launch_;
    active_ = nullptr;
  }
  LaunchCounter(const LaunchCounter&) = delete;
  LaunchCounter& operator=(const LaunchCounter&) = delete;
  std::vector<Launched> launches;

 private:
  static cuda::CUresult note(const cuda::CUlaunchConfig* config, cuda::CUfunction function, void** parameters,
                             void** extra) {
    const auto is_early = [](const cuda::CUlaunchAttribute& attribute) {
      return attribute.id == cuda::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    };
    active_->launches.push_back({config->gridDimX, std::any_of(config->attrs, config->attrs + config->numAttrs, is_early)});
    return active_->launch_(config, function, parameters, extra);
  }
  static inline LaunchCounter* active_ = nullptr;
  cuda::Driver& driver_;
  decltype(cuda::Driver::launch_kernel) launch_;
};

class CudaProducers : public testing::Test {
 protected:
  void SetUp() override {
    OCTILE_REQUIRE_GPU();
    device_ = find_device(test::gpu().context->info.id).value();
    if (const auto ours = cuda::hopper_decode_family().available(device_.info); !ours) {
      GTEST_SKIP() << ours.error().message;
    }
    gamma_ = test::as_bytes(test::normals(kHidden, 0.2F), DType::bf16);
    write_table(2 * kInner, kHidden);
    write_table(kHidden, kInner);
  }

  // hopper_decode at every M.
  void write_table(std::int64_t n, std::int64_t k) {
    const KernelFamily& family = cuda::hopper_decode_family();
    Problem problem;
    problem.n = n;
    problem.k = k;
    TableEntry entry = test::entry(1, 64, std::string(family.name()), 0, 1.5);
    entry.config = family.heuristic(device_.info, problem, 16);
    entry.kernel_source_hash = family.source_hash();
    entry.us = 1.0;
    entry.baseline_us = 1.5;
    TileTable table = test::own_table(device_.info, problem, {entry});
    table.key.weight_layout = family.layout();
    tables_.write(table);
  }

  Fp8Linear linear_of(const Weights& weights, Pdl pdl, bool behind_producer) const {
    WeightOptions weight_options;
    weight_options.device = device_.info.id;
    weight_options.tables = tables_.path();
    weight_options.pdl = pdl;
    auto weight = Fp8Weight::create(weights.source(), weight_options);
    EXPECT_TRUE(weight) << weight.error().message;
    LinearOptions options;
    options.activation = ActivationMode::quantized;
    options.behind_producer = behind_producer;
    auto linear = Fp8Linear::create(*weight, options);
    EXPECT_TRUE(linear) << linear.error().message;
    const auto prepared = linear->prepare(16);
    EXPECT_TRUE(prepared) << prepared.error().message;
    EXPECT_EQ(linear->explain(1).kernel, "hopper_decode") << linear->explain(1).reason;
    return *linear;
  }
  RmsNorm norm_of(Pdl pdl) const {
    RmsNormOptions options;
    options.producer.device = device_.info.id;
    options.producer.k = kHidden;
    options.producer.pdl = pdl;
    options.gamma = gamma_.data();
    auto made = RmsNorm::create(options);
    EXPECT_TRUE(made) << made.error().message;
    return *made;
  }
  SwiGlu swiglu_of(Pdl pdl) const {
    ProducerOptions options;
    options.device = device_.info.id;
    options.k = kInner;
    options.pdl = pdl;
    auto made = SwiGlu::create(options);
    EXPECT_TRUE(made) << made.error().message;
    return *made;
  }

  Device device_;
  TableDirectory tables_;
  Weights gate_up_{2 * kInner, kHidden};
  Weights down_{kHidden, kInner};
  std::vector<unsigned char> gamma_;
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::seed_text()};
};

TEST_F(CudaProducers, ALinearBehindAProducerLaunchesItsProductAloneAndStartsItEarlyWhereTheModeSays) {
  constexpr std::int64_t kM = 4;
  const DeviceBytes x(test::as_bytes(test::normals(kM * kHidden), DType::bf16));
  const DeviceBytes codes(kM * codes_row_stride(kHidden));
  const DeviceBytes scales(kM * 4);
  const DeviceBytes y(kM * 2 * kInner * 2);
  struct Wanted {
    Pdl pdl;
    bool behind_producer;
    bool producer_early;
    bool product_early;
  };
  for (const Wanted& wanted : {Wanted{Pdl::off, true, false, false}, Wanted{Pdl::consume, false, false, false},
                               Wanted{Pdl::consume, true, false, true}, Wanted{Pdl::full, false, true, true}}) {
    SCOPED_TRACE(std::string(to_string(wanted.pdl)) + (wanted.behind_producer ? ", behind a producer" : ""));
    const RmsNorm norm = norm_of(wanted.pdl);
    const Fp8Linear linear = linear_of(gate_up_, wanted.pdl, wanted.behind_producer);
    const DeviceBytes workspace(std::max<std::int64_t>(linear.workspace_bytes(kM), 256));
    LaunchCounter counter(*test::gpu().context->driver);
    const QuantizedRows rows = {{codes.data(), DType::e4m3, kM, kHidden, codes_row_stride(kHidden), 1},
                                static_cast<float*>(scales.data())};
    ASSERT_TRUE(norm.run({x.data(), DType::bf16, kM, kHidden, kHidden, 1}, nullptr, rows));
    const auto ran =
        linear.run_quantized(read_only(rows.codes), rows.scales, {y.data(), DType::bf16, kM, 2 * kInner, 2 * kInner, 1},
                             workspace.data(), workspace.bytes());
    ASSERT_TRUE(ran) << ran.error().message;
    ASSERT_EQ(counter.launches.size(), 2U) << "the producer and the product";
    EXPECT_EQ(counter.launches[0].blocks, kM);
    EXPECT_EQ(counter.launches[0].early, wanted.producer_early);
    EXPECT_EQ(counter.launches[1].early, wanted.product_early);
  }
}

// A decoder layer's second half, between foreign kernels:
// copy in -> add + norm -> gate_up -> SwiGLU -> down -> copy out, again and again over the same buffers.
class Chain {
 public:
  static constexpr int kCalls = 24;

  Chain(std::int64_t m, RmsNorm norm, Fp8Linear gate_up, SwiGlu swiglu, Fp8Linear down, const ForeignCopy& copy)
      : m_(m),
        norm_(std::move(norm)),
        gate_up_(std::move(gate_up)),
        swiglu_(std::move(swiglu)),
        down_(std::move(down)),
        copy_(copy),
        activations_(3 * rows_bytes()),
        codes_(m * kHidden),
        inner_(m * 2 * kInner * 2),
        inner_codes_(m * kInner),
        scales_(2 * 64 * 4),
        workspace_(std::max<std::int64_t>({gate_up_.workspace_bytes(m), down_.workspace_bytes(m), 256})) {}

  // The residual and the output behind each call; `inputs` [x, residual], taken in turn.
  std::vector<std::vector<unsigned char>> run(const std::vector<std::unique_ptr<DeviceBytes>>& inputs, const Manners& in,
                                              const Manners& out) {
    for (DeviceBytes* memory : {&activations_, &codes_, &inner_, &inner_codes_, &scales_, &workspace_}) {
      memory->fill(0xFF);
    }
    std::vector<std::unique_ptr<DeviceBytes>> outputs;
    for (int i = 0; i < kCalls; ++i) {
      outputs.push_back(std::make_unique<DeviceBytes>(2 * rows_bytes()));
      outputs.back()->fill(0xFF);
    }
    const cuda::Driver& driver = *test::gpu().context->driver;
    const CurrentContext current(*test::gpu().context);
    CUstream stream = nullptr;
    EXPECT_EQ(driver.stream_create(&stream, cuda::CU_STREAM_NON_BLOCKING), cuda::CUDA_SUCCESS);
    for (int i = 0; i < kCalls; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_TRUE(
          copy_.enqueue(inputs[at % inputs.size()]->pointer(), activations_.pointer(), 2 * rows_bytes(), in, stream));
      layer(stream);
      EXPECT_TRUE(copy_.enqueue(activations_.pointer() + static_cast<CUdeviceptr>(rows_bytes()), outputs[at]->pointer(),
                                2 * rows_bytes(), out, stream));
    }
    EXPECT_EQ(driver.stream_synchronize(stream), cuda::CUDA_SUCCESS);
    EXPECT_EQ(driver.stream_destroy(stream), cuda::CUDA_SUCCESS);
    std::vector<std::vector<unsigned char>> results;
    for (const auto& output : outputs) {
      results.emplace_back(static_cast<std::size_t>(output->bytes()));
      output->download(results.back().data());
    }
    return results;
  }

 private:
  std::int64_t rows_bytes() const { return m_ * kHidden * 2; }
  MatrixView activation(int index) const {
    return {static_cast<unsigned char*>(activations_.data()) + index * rows_bytes(), DType::bf16, m_, kHidden, kHidden, 1};
  }

  void layer(CUstream stream) const {
    const MatrixView residual_rows = activation(1);
    const Residual residual = {read_only(residual_rows), residual_rows};
    auto* const scales = static_cast<float*>(scales_.data());
    const QuantizedRows rows = {{codes_.data(), DType::e4m3, m_, kHidden, kHidden, 1}, scales};
    const QuantizedRows inner_rows = {{inner_codes_.data(), DType::e4m3, m_, kInner, kInner, 1}, scales + 64};
    const MatrixView inner = {inner_.data(), DType::bf16, m_, 2 * kInner, 2 * kInner, 1};
    for (const auto& ran :
         {norm_.run(read_only(activation(0)), &residual, rows, stream),
          gate_up_.run_quantized(read_only(rows.codes), rows.scales, inner, workspace_.data(), workspace_.bytes(), stream),
          swiglu_.run(read_only(inner), inner_rows, stream),
          down_.run_quantized(read_only(inner_rows.codes), inner_rows.scales, activation(2), workspace_.data(),
                              workspace_.bytes(), stream)}) {
      EXPECT_TRUE(ran) << ran.error().message;
    }
  }

  std::int64_t m_;
  RmsNorm norm_;
  Fp8Linear gate_up_;
  SwiGlu swiglu_;
  Fp8Linear down_;
  const ForeignCopy& copy_;
  DeviceBytes activations_;  // x, the residual, the output: [m, kHidden] each.
  DeviceBytes codes_, inner_, inner_codes_, scales_, workspace_;
};

TEST_F(CudaProducers, AChainHasTheSameBitsInEveryModeBetweenForeignKernelsOfEveryKind) {
  const ForeignCopy copy;
  for (const std::int64_t m : {1, 16}) {
    std::vector<std::unique_ptr<DeviceBytes>> inputs;
    for (const float sigma : {1.0F, 30.0F, 0.02F}) {
      inputs.push_back(std::make_unique<DeviceBytes>(test::as_bytes(test::normals(2 * m * kHidden, sigma), DType::bf16)));
    }
    const auto chain_of = [&](Pdl pdl) {
      return Chain(m, norm_of(pdl), linear_of(gate_up_, pdl, true), swiglu_of(pdl), linear_of(down_, pdl, true), copy);
    };
    const auto plain = chain_of(Pdl::off).run(inputs, {}, {});
    ASSERT_NE(plain[0], plain[1]) << "the inputs differ, so must the outputs";
    ASSERT_EQ(plain[0], plain[3]) << "the inputs are the same again";
    const std::vector<unsigned char> untouched(plain[0].size(), 0xFF);
    ASSERT_NE(plain[0], untouched);
    for (const Pdl pdl : {Pdl::off, Pdl::consume, Pdl::full}) {
      Chain chain = chain_of(pdl);
      for (const Manners& in : {Manners{false, false}, Manners{true, false}, Manners{true, true}}) {
        for (const Manners& out : {Manners{false, false}, Manners{true, false}, Manners{false, true}, Manners{true, true}}) {
          const auto results = chain.run(inputs, in, out);
          for (std::size_t i = 0; i < plain.size(); ++i) {
            ASSERT_EQ(results[i], plain[i])
                << "M " << m << ", mode " << to_string(pdl) << ", call " << i << "; the kernel before " << in.to_string()
                << "; the kernel behind " << out.to_string();
          }
        }
      }
    }
  }
}

TEST_F(CudaProducers, TheLinearOnFusedCodesHasTheBitsOfTheLinearOnUnfusedRows) {
  constexpr std::int64_t kM = 9;
  Fp8Linear of_codes = linear_of(gate_up_, Pdl::full, false);
  auto of_rows = Fp8Linear::create(of_codes.weight());
  ASSERT_TRUE(of_rows) << of_rows.error().message;
  ASSERT_TRUE(of_rows->prepare(16));
  const RmsNorm norm = norm_of(Pdl::full);
  const DeviceBytes x(test::as_bytes(test::normals_with_outliers(kM * kHidden), DType::bf16));
  const ConstMatrixView x_view = {x.data(), DType::bf16, kM, kHidden, kHidden, 1};
  const DeviceBytes rows(kM * kHidden * 2);
  const MatrixView rows_view = {rows.data(), DType::bf16, kM, kHidden, kHidden, 1};
  const DeviceBytes codes(kM * kHidden);
  const DeviceBytes scales(kM * 4);
  const DeviceBytes workspace(of_rows->workspace_bytes(kM) + 256);
  DeviceBytes y(kM * 2 * kInner * 2);
  const MatrixView y_view = {y.data(), DType::bf16, kM, 2 * kInner, 2 * kInner, 1};
  std::vector<std::vector<unsigned char>> results(2, std::vector<unsigned char>(static_cast<std::size_t>(y.bytes())));
  y.fill(0xFF);
  ASSERT_TRUE(norm.run_unfused(x_view, nullptr, rows_view));
  ASSERT_TRUE(of_rows->run(read_only(rows_view), y_view, workspace.data(), workspace.bytes()));
  y.download(results[0].data());
  y.fill(0xFF);
  const QuantizedRows quantized = {{codes.data(), DType::e4m3, kM, kHidden, kHidden, 1}, static_cast<float*>(scales.data())};
  ASSERT_TRUE(norm.run(x_view, nullptr, quantized));
  ASSERT_TRUE(
      of_codes.run_quantized(read_only(quantized.codes), quantized.scales, y_view, workspace.data(), workspace.bytes()));
  y.download(results[1].data());
  EXPECT_EQ(results[1], results[0]);
}

}  // namespace
}  // namespace octile
