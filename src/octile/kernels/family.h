// SPDX-License-Identifier: Apache-2.0
// The one interface behind which every kernel stands: ours, a vendor's, on any device. A family says which configs are
// legal, predicts their cost, prepares and launches. Tuner, tables, dispatcher and tests see kernels only through this
// header.
#pragma once

#include <octile/linear.hpp>
#include <octile/types.hpp>

#include "octile/kernels/device.h"
#include "octile/table/tile_config.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// Everything but M that decides which kernels may serve.
struct Problem {
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType out_dtype = DType::bf16;
  bool bias = false;
  Accumulate accumulate = Accumulate::device_default;
  Numerics numerics = Numerics::deterministic;
  bool batch_invariant = false;
  Pdl pdl = Pdl::full;  // The most that a kernel may do, and what a tuner's candidates do.
  // What families that read several layouts read; `automatic`: their row-major one. The rest have one of their own.
  WeightLayout layout = WeightLayout::automatic;
  int max_sms = 0;  // The product keeps to at most so many multiprocessors; 0: all that the device has.
};

// Holds `problem` to `max_sms` multiprocessors of the device (0, or all of them: no limit). With a limit no kernel starts
// while the linear before still runs, or the two together would take more. Errors (invalid_argument): a negative number,
// more than the device has, any on a CPU.
Expected<void> limit_sms(const DeviceInfo& device, int max_sms, Problem& problem);

// Multiprocessors that a product may use.
constexpr int usable_sms(const DeviceInfo& device, const Problem& problem) noexcept {
  const int all = device.sm_count > 0 ? device.sm_count : 1;
  return problem.max_sms > 0 && problem.max_sms < all ? problem.max_sms : all;
}

// Activations of one call. Raw rows (scales == nullptr) are quantised by the call; codes come with their scales.
struct Activation {
  ConstMatrixView x;              // [m, k]: bf16/fp16 raw, or e4m3 codes where `scales` is set.
  const float* scales = nullptr;  // [m] fp32 for codes.
  float static_scale = 0.0F;      // > 0: one scale for all rows of raw x; 0: per token.
  QuantizeOptions quantize;       // For raw x, per token.
  bool behind_producer = false;   // For codes: a producer of ours, the kernel just before, wrote them.
};

// One call. Pointers are device pointers for a GPU. M = activation.x.rows.
struct LaunchArgs {
  Activation activation;
  MatrixView y;                 // [m, n] of the problem's out_dtype.
  const float* bias = nullptr;  // [n] fp32, or nullptr.
  void* workspace = nullptr;    // At least Kernel::workspace_bytes(m), 64-byte aligned (256 on a GPU).
  std::int64_t workspace_bytes = 0;
  void* stream = nullptr;
  // Work enqueued before may still be writing the weight: no kernel of this call starts before that has ended.
  bool fenced = false;
};

// A weight resident on one device in one layout. Owned by shared_ptr; after packing only Backend::update() writes it.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual std::int64_t n() const noexcept = 0;
  virtual std::int64_t k() const noexcept = 0;
  virtual std::int64_t bytes() const noexcept = 0;       // Resident: codes, scales, padding.
  virtual std::string_view layout() const noexcept = 0;  // "cpu_packed", "onednn", "row_major", ...
  // On a CPU: the packed e4m3 codes as one block, which the stream floor reads. Empty elsewhere, and for decoded copies.
  virtual std::span<const std::byte> host_bytes() const noexcept { return {}; }
};

// A family's kernel for one config, compiled and loaded: run() does nothing slow (architecture.md, decision 3).
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::int64_t workspace_bytes(std::int64_t m) const noexcept = 0;
  // The whole linear for raw activations (quantise, multiply, scale), the product alone for codes.
  // Const and thread-safe for distinct workspaces. The weight must be in the layout the family named.
  virtual Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const = 0;
};

class KernelFamily {
 public:
  virtual ~KernelFamily() = default;
  virtual std::string_view name() const noexcept = 0;  // As in table entries: "avx512", "onednn".
  virtual bool is_vendor() const noexcept { return false; }
  virtual std::string version() const { return {}; }  // A vendor library's version; a hard key of its entries.
  virtual std::string source_hash() const = 0;        // Changes when the family's code does; a hard key of its entries.

  // Whether it runs on `device`; the Error's message is the reason printed by `octile devices`.
  virtual Expected<void> available(const DeviceInfo& device) const = 0;
  virtual std::string_view layout() const noexcept = 0;  // The weight layout its kernels read,
  // and that of kernels for `problem`, where the family reads several.
  virtual std::string_view layout_for(const Problem& /*problem*/) const noexcept { return layout(); }

  // Whether `config` is legal: every key known, every value in range, it fits the device. The Error names key, value and
  // limit.
  virtual Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const = 0;
  // Whether a kernel of `config` for up to `max_m` rows keeps to problem.max_sms multiprocessors; asked where there is such
  // a limit. The Error says why not.
  virtual Expected<void> check_sm_limit(const Problem& problem, const TileConfig& config, std::int64_t max_m) const;
  // Every config worth trying at M, legal ones only.
  virtual std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const = 0;
  // The family's own choice without a table; legal wherever the family serves such problems at all. A vendor's is its own
  // choice, one config for every M (its kernel tells the Ms apart in prepare).
  virtual TileConfig heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) const = 0;
  // Predicted time of one call in microseconds; only its order matters.
  virtual double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                            const TileConfig& config) const = 0;
  // Slow: compiles, loads, creates primitives for every M in [1, max_m].
  virtual Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem,
                                                    const TileConfig& config, std::int64_t max_m) const = 0;
};

}  // namespace octile
