// SPDX-License-Identifier: Apache-2.0
// The family "onednn". A call is three steps, each on all of oneDNN's threads:
//
//   x[M, K] --round to the e4m3 grid--> [M, K] bf16 or fp32 --oneDNN matmul--> [M, N] fp32 --epilogue--> y[M, N]
//
// Calls of one process are served in turn: oneDNN uses every core anyway, and its memory objects allow one user at a time.
#include "octile/kernels/cpu/onednn_family.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/onednn_matmuls.h"
#include "octile/kernels/cpu/onednn_weight.h"
#include "octile/kernels/cpu/row_epilogue.h"
#include "octile/kernels/cpu/row_values.h"
#include "octile/quant/quantize.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace octile::cpu {
namespace {

// Elements below which a step is done by the calling thread: starting a parallel region costs 2 to 4 us, one thread
// quantises or finishes about 3 elements a ns.
constexpr std::int64_t kParallelElements = 16384;
constexpr std::int64_t kPartElements = 4096;  // Of one part of a parallel step.

Isa row_isa() {
  const Expected<Isa> isa = usable_isa();
  return isa ? *isa : Isa::generic;
}

// Calls work(row, column_begin, column_end) so that every element of [rows, columns] is covered once.
template <class Work>
void for_blocks(std::int64_t rows, std::int64_t columns, std::int64_t block_columns, const Work& work) {
  const std::int64_t blocks = (columns + block_columns - 1) / block_columns;
  const auto one = [&](std::int64_t index) {
    const std::int64_t begin = index % blocks * block_columns;
    work(index / blocks, begin, std::min(begin + block_columns, columns));
  };
  if (rows * columns < kParallelElements) {
    for (std::int64_t index = 0; index < rows * blocks; ++index) {
      one(index);
    }
  } else {
    run_on_onednn_threads(rows * blocks, one);
  }
}

// After this the weight may be cast to OnednnWeight.
Expected<void> check_weight(const PackedWeight& weight, const Problem& problem, const OnednnMatmuls& matmuls) {
  if (weight.layout() != kOnednnLayout || weight.n() != problem.n || weight.k() != problem.k) {
    return make_error(ErrorCode::invalid_argument, "onednn: want a weight [{}, {}] of layout '{}', got [{}, {}] of '{}'",
                      problem.n, problem.k, kOnednnLayout, weight.n(), weight.k(), weight.layout());
  }
  const DType dtype = static_cast<const OnednnWeight&>(weight).dtype();
  if (dtype != matmuls.dtype()) {  // OCTILE_CPU_ISA was changed between packing and preparing.
    return make_error(ErrorCode::invalid_argument, "onednn: want a weight decoded to {}, got one in {}",
                      to_string(matmuls.dtype()), to_string(dtype));
  }
  return {};
}

struct Workspace {
  std::byte* x = nullptr;
  float* sums = nullptr;
  float* scales = nullptr;
  void* scratchpad = nullptr;
  std::int64_t bytes = 0;
};

class OnednnKernel final : public Kernel {
 public:
  OnednnKernel(const Problem& problem, std::shared_ptr<const OnednnMatmuls> matmuls, std::int64_t max_m)
      : problem_(problem), matmuls_(std::move(matmuls)), largest_(matmuls_->rows_for(max_m)), isa_(row_isa()) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override { return cut(nullptr, m).bytes; }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    const Activation& activation = args.activation;
    const std::int64_t m = activation.x.rows;
    if (Expected<void> ok = check(weight, args); !ok || m == 0) {
      return ok;
    }
    const auto& packed = static_cast<const OnednnWeight&>(weight);
    const Workspace space = cut(static_cast<std::byte*>(args.workspace), m);
    const OnednnTurn turn;
    for (std::int64_t row = 0; row < m; row += largest_) {
      const std::int64_t rows = std::min(largest_, m - row);
      fill_activations(activation, row, rows, space);
      if (Expected<void> done = matmuls_->execute(rows, space.x, packed, space.sums, space.scratchpad); !done) {
        return done;
      }
      finish(packed, args, row, rows, space);
    }
    return {};
  }

 private:
  Workspace cut(std::byte* base, std::int64_t m) const noexcept {
    const std::int64_t rows = matmuls_->rows_for(std::clamp<std::int64_t>(m, 1, largest_));
    const auto aligned = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
    const std::int64_t x_bytes = aligned(rows * problem_.k * matmuls_->value_bytes());
    const std::int64_t sums_bytes = aligned(rows * problem_.n * 4);
    const std::int64_t scales_bytes = aligned(rows * 4);
    Workspace space;
    space.bytes = x_bytes + sums_bytes + scales_bytes + aligned(matmuls_->scratchpad_bytes(rows));
    if (base != nullptr) {
      space.x = base;
      space.sums = reinterpret_cast<float*>(base + x_bytes);
      space.scales = reinterpret_cast<float*>(base + x_bytes + sums_bytes);
      space.scratchpad = base + x_bytes + sums_bytes + scales_bytes;
    }
    return space;
  }

  Expected<void> check(const PackedWeight& weight, const LaunchArgs& args) const {
    const ConstMatrixView& x = args.activation.x;
    if (Expected<void> ok = check_weight(weight, problem_, *matmuls_); !ok) {
      return ok;
    }
    if (Expected<void> ok = check_activation(args.activation, problem_.k); !ok) {
      return ok;
    }
    if (Expected<void> ok = check_output_view(args.y, x.rows, problem_.n, problem_.out_dtype); !ok) {
      return ok;
    }
    const std::int64_t needed = workspace_bytes(x.rows);
    if (x.rows > 0 && (args.workspace == nullptr || args.workspace_bytes < needed ||
                       reinterpret_cast<std::uintptr_t>(args.workspace) % 64 != 0)) {
      return make_error(ErrorCode::invalid_argument,
                        "onednn: want a workspace of {} bytes at a multiple of 64 for {} rows, got {} bytes at {}", needed,
                        x.rows, args.workspace == nullptr ? 0 : args.workspace_bytes, args.workspace);
    }
    return {};
  }

  // The e4m3 values of `rows` rows, zeros in the rows that only fill up the primitive's M.
  void fill_activations(const Activation& activation, std::int64_t first, std::int64_t rows, const Workspace& space) const {
    const std::int64_t k = problem_.k;
    const std::int64_t row_bytes = k * matmuls_->value_bytes();
    for_blocks(rows, k, k, [&](std::int64_t row, std::int64_t, std::int64_t) {
      space.scales[row] = row_scale(activation, first + row, isa_);
      row_values(activation, first + row, space.scales[row], matmuls_->dtype(), space.x + row * row_bytes, isa_);
    });
    const std::int64_t filled = matmuls_->rows_for(rows);
    std::memset(space.x + rows * row_bytes, 0, static_cast<std::size_t>((filled - rows) * row_bytes));
  }

  void finish(const OnednnWeight& weight, const LaunchArgs& args, std::int64_t first, std::int64_t rows,
              const Workspace& space) const {
    const std::int64_t n = problem_.n;
    const std::int64_t element = size_of(args.y.dtype);
    for_blocks(rows, n, kPartElements, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      auto* y = static_cast<std::byte*>(args.y.data) + ((first + row) * args.y.row_stride + begin) * element;
      finish_row(space.sums + row * n + begin, weight.scales() + begin, space.scales[row],
                 args.bias == nullptr ? nullptr : args.bias + begin, end - begin, y, args.y.dtype, isa_);
    });
  }

  Problem problem_;
  std::shared_ptr<const OnednnMatmuls> matmuls_;
  std::int64_t largest_;  // Rows of one piece.
  Isa isa_;
};

// The product alone, on activations converted when it was made.
class BareKernel final : public Kernel {
 public:
  BareKernel(const Problem& problem, std::shared_ptr<const OnednnMatmuls> matmuls, HostMemory x, std::int64_t largest)
      : problem_(problem), matmuls_(std::move(matmuls)), x_(std::move(x)), largest_(largest) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override {
    const std::int64_t rows = matmuls_->rows_for(std::clamp<std::int64_t>(m, 1, largest_));
    return sums_bytes(rows) + matmuls_->scratchpad_bytes(rows);
  }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    const std::int64_t m = args.activation.x.rows;
    if (Expected<void> ok = check_weight(weight, problem_, *matmuls_); !ok) {
      return ok;
    }
    if (args.workspace == nullptr || args.workspace_bytes < workspace_bytes(m) ||
        reinterpret_cast<std::uintptr_t>(args.workspace) % 64 != 0) {
      return make_error(ErrorCode::invalid_argument,
                        "onednn matmul: want a workspace of {} bytes at a multiple of 64, got {} bytes at {}",
                        workspace_bytes(m), args.workspace_bytes, args.workspace);
    }
    auto* sums = static_cast<std::byte*>(args.workspace);
    const OnednnTurn turn;
    for (std::int64_t row = 0; row < m; row += largest_) {
      const std::int64_t rows = std::min(largest_, m - row);
      void* scratchpad = sums + sums_bytes(matmuls_->rows_for(rows));
      if (Expected<void> done = matmuls_->execute(rows, x_.data(), static_cast<const OnednnWeight&>(weight),
                                                  reinterpret_cast<float*>(sums), scratchpad);
          !done) {
        return done;
      }
    }
    return {};
  }

 private:
  std::int64_t sums_bytes(std::int64_t rows) const noexcept { return (rows * problem_.n * 4 + 63) / 64 * 64; }

  Problem problem_;
  std::shared_ptr<const OnednnMatmuls> matmuls_;
  HostMemory x_;  // [largest_, k]
  std::int64_t largest_;
};

class OnednnFamily final : public KernelFamily {
 public:
  std::string_view name() const noexcept override { return "onednn"; }
  bool is_vendor() const noexcept override { return true; }
  std::string version() const override { return onednn_status().version; }
  std::string source_hash() const override { return OCTILE_HASH_ONEDNN; }
  std::string_view layout() const noexcept override { return kOnednnLayout; }

  Expected<void> available(const DeviceInfo& device) const override {
    if (device.kind != DeviceKind::cpu) {
      return make_error(ErrorCode::unavailable, "oneDNN is used on the CPU only, not on {}", device.id);
    }
    const VendorStatus status = onednn_status();
    return status.available ? Expected<void>() : make_error(ErrorCode::unavailable, "oneDNN: {}", status.reason);
  }

  Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const override {
    if (Expected<void> ok = available(device); !ok) {
      return ok;
    }
    if (!config.values.empty()) {
      return make_error(ErrorCode::invalid_argument, "onednn: takes no configuration, got {}", config.to_json());
    }
    if (problem.batch_invariant) {
      return make_error(ErrorCode::unavailable,
                        "onednn: does not promise that a row's bits are the same for every M, which batch_invariant wants");
    }
    if (problem.n < 1 || problem.k < 1) {
      return make_error(ErrorCode::invalid_argument, "onednn: want N and K >= 1, got N={}, K={}", problem.n, problem.k);
    }
    if (problem.out_dtype != DType::bf16 && problem.out_dtype != DType::fp16 && problem.out_dtype != DType::fp32) {
      return make_error(ErrorCode::invalid_argument, "onednn: want bf16, fp16 or fp32 output, got {}",
                        to_string(problem.out_dtype));
    }
    return {};
  }

  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t) const override {
    return check(device, problem, {}) ? std::vector<TileConfig>{TileConfig{}} : std::vector<TileConfig>{};
  }
  TileConfig heuristic(const DeviceInfo&, const Problem&, std::int64_t) const override { return {}; }

  // Memory or multiplication, whichever takes longer: 16 GB/s and 100 GFLOP/s (fp32) or 200 (bf16) a thread.
  double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const TileConfig&) const override {
    const double threads = std::max(device.sm_count, 1);
    const double weights = static_cast<double>(problem.n) * static_cast<double>(problem.k);
    const bool bf16 = onednn_value_dtype() == DType::bf16;
    const double stream_us = weights * (bf16 ? 2.0 : 4.0) / (16e3 * threads);
    const double multiply_us = 2.0 * weights * static_cast<double>(m) / ((bf16 ? 200e3 : 100e3) * threads);
    return std::max(stream_us, multiply_us);
  }

  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                            std::int64_t max_m) const override {
    if (Expected<void> ok = check(device, problem, config); !ok) {
      return ok.error();
    }
    Expected<std::shared_ptr<const OnednnMatmuls>> matmuls = OnednnMatmuls::prepare(problem.n, problem.k, max_m);
    if (!matmuls) {
      return matmuls.error();
    }
    return std::unique_ptr<Kernel>(std::make_unique<OnednnKernel>(problem, *std::move(matmuls), max_m));
  }
};

}  // namespace

const KernelFamily& onednn_family() {
  static const OnednnFamily family;
  return family;
}

Expected<std::unique_ptr<Kernel>> prepare_bare_onednn(const DeviceInfo& device, const Problem& problem, std::int64_t max_m) {
  Problem product = problem;
  product.batch_invariant = false;  // It is only timed.
  if (Expected<void> ok = onednn_family().check(device, product, {}); !ok) {
    return ok.error();
  }
  Expected<std::shared_ptr<const OnednnMatmuls>> matmuls = OnednnMatmuls::prepare(problem.n, problem.k, max_m);
  if (!matmuls) {
    return matmuls.error();
  }
  const std::int64_t largest = (*matmuls)->rows_for(max_m);
  const std::int64_t row_bytes = problem.k * (*matmuls)->value_bytes();
  Expected<HostMemory> x = HostMemory::allocate(largest * row_bytes);
  if (!x) {
    return x.error();
  }
  // Codes without the NaNs (0x7F, 0xFF), in an order that repeats with no power of two.
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(problem.k));
  std::uint32_t state = 1;
  for (std::int64_t row = 0; row < largest; ++row) {
    for (std::uint8_t& code : codes) {
      state = state * 1664525U + 1013904223U;
      code = static_cast<std::uint8_t>(state >> 24U);
      code = (code & 0x7FU) == 0x7FU ? 0x38 : code;
    }
    decode_codes(codes.data(), problem.k, (*matmuls)->dtype(), static_cast<std::byte*>(x->data()) + row * row_bytes);
  }
  return std::unique_ptr<Kernel>(std::make_unique<BareKernel>(product, *std::move(matmuls), *std::move(x), largest));
}

}  // namespace octile::cpu
