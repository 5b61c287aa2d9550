// SPDX-License-Identifier: Apache-2.0
// Rows are shared out over the thread pool. A row is computed in chunks that stay in L1, once for y, and twice for codes:
// for the largest magnitude and then for the codes themselves, so that a call needs no memory of its own.
#include "octile/kernels/cpu/producers.h"

#include "octile/kernels/cpu/thread_pool.h"
#include "octile/quant/producers.h"
#include "octile/quant/quantize.h"

#include <octile/producers.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

namespace octile::cpu {
namespace {

constexpr std::int64_t kChunk = 512;

const std::byte* at(const ConstMatrixView& view, std::int64_t row, std::int64_t column = 0) noexcept {
  return static_cast<const std::byte*>(view.data) + (row * view.row_stride + column) * size_of(view.dtype);
}
std::byte* at(const MatrixView& view, std::int64_t row, std::int64_t column = 0) noexcept {
  return static_cast<std::byte*>(view.data) + (row * view.row_stride + column) * size_of(view.dtype);
}

class CpuProducer final : public Producer {
 public:
  explicit CpuProducer(const ProducerSpec& spec) : spec_(spec) {
    spec_.gamma = nullptr;
    if (spec.kind == ProducerKind::rms_norm) {
      gamma_.resize(static_cast<std::size_t>(spec.k * size_of(spec.dtype)));
      std::memcpy(gamma_.data(), spec.gamma, gamma_.size());
    } else {
      prepare_swiglu(spec.dtype);
    }
  }

  Expected<void> run(const ProducerCall& call) const override {
    const std::int64_t rows = call.x.rows;
    ThreadPool& pool = ThreadPool::instance();
    const int parts = static_cast<int>(std::min<std::int64_t>(rows, pool.size()));
    pool.run(parts, [&](int part) {
      for (std::int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
        compute(call, row);
      }
    });
    return {};
  }

 private:
  void compute(const ProducerCall& call, std::int64_t row) const noexcept {
    if (spec_.kind == ProducerKind::swiglu) {
      const std::byte* gate = at(call.x, row);
      const std::byte* up = at(call.x, row, spec_.k);
      finish(call, row, [&](std::int64_t offset, std::int64_t count, void* y) {
        swiglu_elements(gate + offset, up + offset, spec_.dtype, count, y);
      });
      return;
    }
    const std::byte* s = at(call.x, row);
    if (call.adds) {
      std::byte* sum = at(call.residual_out, row);
      add_rounded(s, at(call.residual_in, row), spec_.dtype, spec_.k, sum);
      s = sum;
    }
    const float factor = rms_norm_factor(sum_of_squares(s, spec_.dtype, spec_.k), spec_.k, spec_.epsilon);
    finish(call, row, [&](std::int64_t offset, std::int64_t count, void* y) {
      rms_norm_elements(s + offset, gamma_.data() + offset, spec_.dtype, count, factor, y);
    });
  }

  // compute_y(offset, count, y) makes `count` elements of y; the offset is in bytes of the activations.
  template <class ComputeY>
  void finish(const ProducerCall& call, std::int64_t row, const ComputeY& compute_y) const noexcept {
    const std::int64_t bytes = size_of(spec_.dtype);
    if (!call.quantized) {
      compute_y(0, spec_.k, at(call.out, row));
      return;
    }
    std::array<std::uint16_t, kChunk> y;
    const auto for_chunks = [&](const auto& use) {
      for (std::int64_t first = 0; first < spec_.k; first += kChunk) {
        const std::int64_t count = std::min(kChunk, spec_.k - first);
        compute_y(first * bytes, count, y.data());
        use(first, count);
      }
    };
    float amax = 0.0F;
    for_chunks([&](std::int64_t /*first*/, std::int64_t count) {
      const float largest = row_amax(y.data(), spec_.dtype, count);
      amax = std::isnan(largest) || std::isnan(amax) ? NAN : std::max(amax, largest);
    });
    auto* codes = reinterpret_cast<std::uint8_t*>(at(call.out, row));
    if (std::isnan(amax)) {
      call.scales[row] = poison_row(spec_.k, codes);
      return;
    }
    const bool is_static = spec_.static_scale > 0.0F;
    const float scale = is_static ? spec_.static_scale : scale_of_amax(amax, spec_.quantize);
    const Division division = is_static ? Division::exact : spec_.quantize.division;
    for_chunks([&](std::int64_t first, std::int64_t count) {
      encode_elements(y.data(), spec_.dtype, count, codes + first, scale, division);
    });
    call.scales[row] = scale;
  }

  ProducerSpec spec_;
  std::vector<std::byte> gamma_;  // [k] of the type.
};

}  // namespace

std::unique_ptr<Producer> make_producer(const ProducerSpec& spec) { return std::make_unique<CpuProducer>(spec); }

}  // namespace octile::cpu
