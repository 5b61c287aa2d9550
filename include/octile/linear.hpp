// SPDX-License-Identifier: Apache-2.0
// The FP8 linear layer: y[M, N] = round((x_q[M, K] . w_q[N, K]^T * scale_w[N]) * scale_x[M] + bias[N]).
#pragma once

#include <octile/types.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octile {

// Weights as a checkpoint holds them, in host memory: row-major e4m3 codes [n, k] with `row_stride` elements between rows (0
// means k), and one scale a row (scale_count = n) or one for all (scale_count = 1; expanded). Scales: fp32, or bf16/fp16
// widened exactly; finite and > 0, or 0 for a row of zero codes. A code that is NaN makes its output column NaN.
struct WeightSource {
  std::int64_t n = 0;
  std::int64_t k = 0;
  const void* codes = nullptr;
  DType code_dtype = DType::e4m3;
  std::int64_t row_stride = 0;
  const void* scales = nullptr;
  DType scale_dtype = DType::fp32;
  std::int64_t scale_count = 0;
};

// Where the codes and scales of a WeightSource lie.
enum class SourceMemory {
  host,
  device,  // Of the weight's own device.
};

// Where Fp8Weight::unpack() writes to.
struct UnpackTarget {
  void* codes = nullptr;        // e4m3 [n, k], row-major.
  std::int64_t row_stride = 0;  // Elements between rows; 0: k.
  float* scales = nullptr;      // [n], or nullptr: not wanted.
  SourceMemory memory = SourceMemory::host;
};

struct WeightOptions {
  std::string device = "cpu";  // An id of devices(): "cpu", "cuda:0".
  std::string tables;          // Table directories, ':' between them; searched before OCTILE_TABLE_PATH.
  DType out_dtype = DType::bf16;
  Accumulate accumulate = Accumulate::device_default;
  Numerics numerics = Numerics::deterministic;
  bool batch_invariant = false;
  Pdl pdl = Pdl::full;  // The most that a kernel may do; a table's entry that does more runs with this.
  // automatic: the layout of the weight's table, else row_major. A table of another layout than asked for is not used, and
  // neither row_major nor slab64 means anything on a CPU.
  WeightLayout layout = WeightLayout::automatic;
};

// A weight packed for one device, in the one layout that serves every M of its table. Copies share the packed data.
class OCTILE_API Fp8Weight {
 public:
  // Packs `source`, which may be freed when this returns. Errors: invalid_argument for shapes, strides, dtypes and
  // scales that break the contract, unavailable for a device that is not there, out_of_memory.
  static Expected<Fp8Weight> create(const WeightSource& source, const WeightOptions& options = {});

  // Overwrites codes and scales in place, at the same address and in the same layout, so that linears and captured graphs
  // go on with the new ones: weights in training. On a GPU the copies are ordered on `stream` (a CUDA stream handle); no
  // kernel of the next run() of any linear of this weight starts before what was enqueued until then has ended, on the
  // stream where it comes first: order other streams behind this one yourself. Memory of the host may be freed when this
  // returns; memory of the device is read when the stream gets there, its scales must be [n] fp32 and are not checked. May
  // not be called while a run() is in progress. Errors: invalid_argument for another shape and what create() refuses,
  // unavailable on a CPU and where a registered baseline keeps a copy of its own (create a new weight there), failed.
  Expected<void> update(const WeightSource& source, SourceMemory memory = SourceMemory::host, void* stream = nullptr);

  // The codes as rows again, whatever the layout, and the scales: what a checkpoint holds. On a GPU ordered on `stream`;
  // memory of the host has them when this returns, memory of the device (the weight's own) when the stream gets there.
  // Errors: invalid_argument for a null pointer or a stride below K, unavailable on a CPU, whose layouts have no way back,
  // failed.
  Expected<void> unpack(const UnpackTarget& target, void* stream = nullptr) const;

  std::int64_t n() const noexcept;
  std::int64_t k() const noexcept;
  // How the codes lie: "row_major", "slab64", a CPU's own.
  std::string layout() const;
  // Bytes resident on the device: packed codes, scales and, where a table or the kill switch asks for it, the baseline's
  // copy.
  std::int64_t bytes() const noexcept;

  struct Impl;
  explicit Fp8Weight(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// How activations arrive.
enum class ActivationMode {
  dynamic_per_token,  // bf16/fp16 rows, quantised here with one scale each.
  static_per_tensor,  // bf16/fp16 rows, quantised here with the given scale.
  quantized,          // e4m3 codes with one fp32 scale a row: use run_quantized().
};

struct LinearOptions {
  ActivationMode activation = ActivationMode::dynamic_per_token;
  float static_scale = 0.0F;    // For static_per_tensor: finite and > 0; else 0.
  QuantizeOptions quantize;     // For dynamic_per_token.
  DType x_dtype = DType::bf16;  // bf16 or fp16, for the two modes that quantise.
  const void* bias = nullptr;   // [N], copied; nullptr: none.
  DType bias_dtype = DType::fp32;
  // Without it, run() before prepare() is an error (not_prepared), also inside a graph capture, whose graph would keep a
  // wrong kernel for life. With it, create() prepares for 64 rows, and run() before prepare() goes in chunks of 64 rows,
  // said once.
  bool allow_capture_fallback = false;
  // Says that the codes of run_quantized() come from a producer of ours (octile/producers.hpp) that is enqueued directly
  // before it on the same stream: in mode Pdl::consume the product then starts early behind it, as behind the linear's own
  // quantiser. Results do not depend on it.
  bool behind_producer = false;
  // Leaves multiprocessors of a GPU to others, a communication kernel for one: the product keeps to at most so many of them.
  // 0: no limit. A kernel that cannot be held to it does not serve, and explain() says so. The quantiser before it has one
  // block a row and is not held to it. On a CPU, and beyond what the device has, an error.
  int max_sms = 0;
};

// What serves one M, and why. Field names are those of `octile explain --json`.
struct Explanation {
  std::string device_name;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;
  std::string choice;      // "tile", "vendor", "baseline" or "heuristic".
  std::string kernel;      // The family that runs: "avx512", "onednn", ...
  std::string config;      // Its configuration as one line of JSON.
  std::string table_file;  // Empty where no table serves.
  std::string table_key;   // The key (field format) or the interval "[lo, hi]" (own format).
  std::string reason;      // One sentence.
  std::string measured;    // JSON of the entry's proof, or "null".
  bool stale = false;      // A soft key (driver, library version) differs from the one measured.
  std::int64_t bytes = 0;  // Resident bytes of the weight.
};

// A linear layer ready to run. Thread-safe for concurrent run() calls with distinct workspaces. A captured graph runs this
// linear's kernels on its weight and the call's workspace: keep all three as long as the graph. Copies share one linear. The
// last of them, and the weight's last handle, may go while calls that were enqueued on a CUDA device still run or wait:
// these end with the weight and the kernels that they were enqueued with, as tested on an H200 with driver 580.159
// (docs/reliability.md). x, y and the workspace are the caller's to keep until then.
class OCTILE_API Fp8Linear {
 public:
  static Expected<Fp8Linear> create(Fp8Weight weight, const LinearOptions& options = {});

  // Loads every kernel that the table can reach up to max_m and runs each once. Everything slow happens here. May be called
  // again for a larger max_m, also while other threads are in run(). A chosen kernel that cannot be prepared is replaced by
  // the baseline with one warning, and explain() says so. Errors: invalid_argument for max_m < 1; whatever the last kernel
  // left says.
  Expected<void> prepare(std::int64_t max_m);
  // Workspace for run() with up to max_m rows: a fixed cost plus the activation codes and scales of at most the prepared M.
  // 0 before prepare().
  std::int64_t workspace_bytes(std::int64_t max_m) const noexcept;

  // y[m, n] from x[m, k]. No allocation, no lock (the CPU pool's futexes excepted), no file, no environment read; where the
  // baseline serves, the vendor's library may allocate on its own (oneDNN does).
  // M larger than prepared runs in chunks. `workspace` has at least workspace_bytes(min(m, prepared max_m)) bytes,
  // 64-byte aligned. `stream` is a CUDA stream handle, nullptr on the CPU.
  Expected<void> run(const ConstMatrixView& x, const MatrixView& y, void* workspace, std::int64_t workspace_bytes,
                     void* stream = nullptr) const;
  // The same for activations already quantised: codes[m, k] e4m3, scales[m] fp32 (contiguous). On a GPU codes whose base and
  // row stride (codes_row_stride(k)) are multiples of 16 bytes are read as they are and the product is all that is launched;
  // others are copied into the workspace first.
  Expected<void> run_quantized(const ConstMatrixView& codes, const float* scales, const MatrixView& y, void* workspace,
                               std::int64_t workspace_bytes, void* stream = nullptr) const;

  // What serves m rows. After prepare() it is what run() launches, chunk by chunk for m beyond the prepared M.
  Explanation explain(std::int64_t m) const;
  const Fp8Weight& weight() const noexcept;

  struct Impl;

 private:
  explicit Fp8Linear(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// As `octile explain --json` prints it.
OCTILE_API std::string to_json(const Explanation& explanation);

// An engine's own kernel as the baseline, called for one linear: must write y[m, n]. Returns 0, or another value as a
// failure. Shapes and dtypes are those of the linear; `weight_codes` [n, k] row-major and `weight_scales` [n] are kept for
// it.
struct BaselineCall {
  std::int64_t m = 0, n = 0, k = 0;
  const void* codes_x = nullptr;         // e4m3 [m, k], row stride k.
  const float* scales_x = nullptr;       // [m]
  const void* weight_codes = nullptr;    // e4m3 [n, k], row stride k.
  const float* weight_scales = nullptr;  // [n]
  const float* bias = nullptr;           // [n] or nullptr
  void* y = nullptr;                     // out_dtype [m, n]
  std::int64_t y_row_stride = 0;
  DType out_dtype = DType::bf16;
  void* stream = nullptr;
};
using BaselineFunction = int (*)(const BaselineCall& call, void* user);
// Replaces the vendor as baseline of every weight and linear created afterwards on devices of `device_kind` ("cpu", "cuda").
// A weight keeps the row-major codes for it where its plan can reach the baseline; a linear that needs them of a weight
// packed before the registration is refused. nullptr removes it. `name` is what explain() prints.
OCTILE_API Expected<void> register_baseline(const char* device_kind, const char* name, BaselineFunction function,
                                            void* user);

}  // namespace octile
