// SPDX-License-Identifier: Apache-2.0
// Times the producers of Qwen3-8B (add + RMSNorm of 4096, SwiGLU of 12288) in every layout that makes sense at a number of
// rows, beside the plain quantiser of the same width: inputs cold, one CUDA graph a candidate, replays interleaved, no
// kernel starts early. The layout that the library takes is marked.
//
//   producer_times [M...]     default 1 8 64 264 4096
#include "must.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/producer_kernel.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/tune/statistics.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {
namespace {

constexpr int kReplays = 15;
constexpr std::int64_t kColdBytes = std::int64_t{200} << 20;

struct Candidate {
  std::string label;
  std::shared_ptr<const void> kernel;  // What was captured runs as long as it is loaded.
  std::unique_ptr<TimedSequence> sequence;
  std::vector<double> us;
};

class Times {
 public:
  Times(const Device& device, ProducerKind kind, std::int64_t k, std::int64_t m)
      : device_(device), context_(*must(cuda::device_context(device.info.index))), kind_(kind), k_(k), m_(m) {
    const std::int64_t x_bytes = m * (kind == ProducerKind::swiglu ? 2 * k : k) * 2;
    copies_ = std::clamp<std::int64_t>(kColdBytes / x_bytes, 2, 64);
    std::vector<std::uint16_t> values(static_cast<std::size_t>(x_bytes / 2));
    std::mt19937 generator(1);
    std::ranges::generate(values, [&] { return static_cast<std::uint16_t>(0x3E00 + generator() % 0x200); });
    for (std::int64_t i = 0; i < copies_; ++i) {
      for (auto* inputs : {&x_, &residual_}) {
        inputs->push_back(must(cuda::allocate_device(context_, x_bytes)));
        must(cuda::upload_bytes(context_, inputs->back()->pointer(), values.data(), x_bytes));
      }
    }
    codes_ = must(cuda::allocate_device(context_, m * k + 256 * m));
    scales_ = must(cuda::allocate_device(context_, m * 4));
    gamma_.assign(static_cast<std::size_t>(k), 0x3F80);
  }

  void run() {
    add_quantiser();
    const cuda::ProducerLayouts own = cuda::producer_layouts(device_.info, kind_, k_);
    const cuda::ProducerLayout& taken = m_ < std::int64_t{2} * device_.info.sm_count ? own.few : own.many;
    for (const unsigned cluster : {1U, 2U, 4U, 8U}) {
      for (const unsigned threads : {64U, 128U, 192U, 256U, 384U, 512U, 768U, 1024U}) {
        cuda::ProducerLayout layout = {threads, cluster, 0};
        const unsigned row_threads = threads * cluster;
        if (kind_ == ProducerKind::rms_norm) {
          if (row_threads < 128 || row_threads > 512 || 512 % row_threads != 0) {
            continue;
          }
          layout.kept = 512 / row_threads * static_cast<unsigned>((k_ + 4095) / 4096);
        } else {
          layout.kept = static_cast<unsigned>((k_ / 8 + row_threads - 1) / row_threads);
        }
        if (layout.kept <= 8 && std::int64_t{8} * (layout.kept - 1) * row_threads < k_) {
          add(layout, layout.threads == taken.threads && layout.cluster == taken.cluster && layout.kept == taken.kept);
        }
      }
    }
    for (int replay = 0; replay < kReplays; ++replay) {
      for (Candidate& candidate : candidates_) {
        candidate.us.push_back(must(candidate.sequence->time_us()));
      }
    }
    std::printf("%s K=%lld M=%lld\n", to_string(kind_), static_cast<long long>(k_), static_cast<long long>(m_));
    for (const Candidate& candidate : candidates_) {
      std::printf("  %-52s %8.2f us\n", candidate.label.c_str(), median(candidate.us));
    }
    std::fflush(stdout);
  }

 private:
  ConstMatrixView rows(const std::vector<std::unique_ptr<cuda::CudaBuffer>>& inputs, std::size_t i,
                       std::int64_t cols) const {
    return {inputs[i % inputs.size()]->data(), DType::bf16, m_, cols, cols, 1};
  }
  std::size_t calls() const { return static_cast<std::size_t>(std::max<std::int64_t>(copies_, 32)); }

  void time(std::string label, std::shared_ptr<const void> kernel, std::vector<TimedCall> sequence) {
    Candidate& candidate = candidates_.emplace_back();
    candidate.label = std::move(label);
    candidate.kernel = std::move(kernel);
    candidate.sequence = must(device_.backend->make_sequence(device_.info, std::move(sequence)));
  }

  void add_quantiser() {
    const auto quantise = std::make_shared<cuda::QuantiseKernel>(must(cuda::QuantiseKernel::prepare(context_, k_)));
    if (quantise->workspace_bytes(m_) > codes_->bytes()) {
      fail(format("the quantiser wants {} bytes, have {}", quantise->workspace_bytes(m_), codes_->bytes()));
    }
    std::vector<TimedCall> sequence;
    for (std::size_t i = 0; i < calls(); ++i) {
      Activation activation;
      activation.x = rows(x_, i, k_);
      sequence.emplace_back([this, quantise, activation](void* stream) -> Expected<void> {
        const cuda::CurrentContext current(context_);
        const auto made = quantise->run(activation, codes_->data(), static_cast<cuda::CUstream>(stream), false);
        return made ? Expected<void>() : Expected<void>(made.error());
      });
    }
    time("the plain quantiser", quantise, std::move(sequence));
  }
  void add(const cuda::ProducerLayout& layout, bool taken) {
    ProducerSpec spec;
    spec.kind = kind_;
    spec.k = k_;
    spec.gamma = gamma_.data();
    spec.epsilon = 1e-6F;
    spec.pdl = Pdl::off;
    cuda::ProducerLayouts layouts = cuda::producer_layouts(device_.info, kind_, k_);
    layouts.few = layouts.many = layout;
    std::shared_ptr<Producer> producer = must(cuda::prepare_producer(context_, spec, layouts));
    std::vector<TimedCall> sequence;
    for (std::size_t i = 0; i < calls(); ++i) {
      ProducerCall call;
      call.x = rows(x_, i, kind_ == ProducerKind::swiglu ? 2 * k_ : k_);
      call.adds = kind_ == ProducerKind::rms_norm;
      call.residual_in = rows(residual_, i, k_);
      call.residual_out = {residual_[i % residual_.size()]->data(), DType::bf16, m_, k_, k_, 1};
      call.out = {codes_->data(), DType::e4m3, m_, k_, k_, 1};
      call.scales = static_cast<float*>(scales_->data());
      sequence.emplace_back([producer, call](void* stream) mutable {
        call.stream = stream;
        return producer->run(call);
      });
    }
    time(format("{} blocks of {} threads, {} vectors kept{}", layout.cluster, layout.threads, layout.kept,
                taken ? "  <- taken" : ""),
         producer, std::move(sequence));
  }

  Device device_;
  const cuda::DeviceContext& context_;
  ProducerKind kind_;
  std::int64_t k_, m_;
  std::int64_t copies_ = 0;
  std::vector<std::unique_ptr<cuda::CudaBuffer>> x_, residual_;
  std::unique_ptr<cuda::CudaBuffer> codes_, scales_;
  std::vector<std::uint16_t> gamma_;
  std::vector<Candidate> candidates_;
};

int run(int argc, char** argv) {
  std::vector<std::int64_t> ms;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    std::int64_t m = 0;
    if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), m);
        error != std::errc{} || end != text.data() + text.size() || m < 1 || m > 65'536) {
      fail(format("want numbers of rows from 1 to 65536, got '{}'", text));
    }
    ms.push_back(m);
  }
  if (ms.empty()) {
    ms = {1, 8, 64, 264, 4096};
  }
  const Backend& backend = cuda::cuda_backend();
  const std::vector<DeviceInfo> devices = backend.devices();
  if (devices.empty()) {
    fail(format("no CUDA device: {}", backend.no_device_reason()));
  }
  for (const std::int64_t m : ms) {
    Times({&backend, devices.front()}, ProducerKind::rms_norm, 4096, m).run();
    Times({&backend, devices.front()}, ProducerKind::swiglu, 12288, m).run();
  }
  return 0;
}

}  // namespace
}  // namespace octile

int main(int argc, char** argv) {
  return octile::status_of([&] { return octile::run(argc, argv); });
}
