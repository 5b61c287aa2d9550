// SPDX-License-Identifier: Apache-2.0
// The linears of a Hugging Face checkpoint (config.json and safetensors files) as Octile's linears take them: q, k and v
// fused, gate and up fused, and the share of one tensor-parallel rank.
#pragma once

#include <octile/export.h>
#include <octile/linear.hpp>
#include <octile/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {

// How weights come into memory.
enum class CheckpointMemory {
  // A weight that lies in one piece of one file, or in equal pieces of its rows, is used where it lies, mapped read-only;
  // others are copied. A process that touches mapped memory after its file was cut short is killed by SIGBUS; a file that
  // has changed is refused when a linear is loaded, so that only a cut afterwards can do that.
  map,
  // Every weight is copied into memory of its own. A file that becomes shorter is an error, whenever it happens.
  read,
};

struct CheckpointOptions {
  std::int64_t tp = 1;    // Tensor-parallel ranks,
  std::int64_t rank = 0;  // and which of them.
  bool fuse = true;       // q, k, v and gate, up become one linear each. Weights that are stored fused stay so without it.
  CheckpointMemory memory = CheckpointMemory::map;
};

// A linear before its weight is read.
struct CheckpointEntry {
  std::string name;  // As in the checkpoint: "model.layers.0.self_attn.qkv_proj", also where q, k, v are stored apart.
  std::string kind;  // "qkv", "o", "gate_up", "down"; without fusing also "q", "k", "v", "gate", "up".
  std::int64_t layer = 0;
  std::int64_t n = 0;  // Of this rank: [n, k].
  std::int64_t k = 0;
  DType dtype = DType::e4m3;  // e4m3: quantised. bf16, fp16 or fp32: as it was trained.
  bool row_parallel = false;  // Divided along K: the results of all ranks are to be added. The bias is rank 0's.
  bool bias = false;
  ActivationMode activation = ActivationMode::dynamic_per_token;  // Or static_per_tensor.
};

struct CheckpointLinear {
  CheckpointEntry entry;
  WeightSource weight;     // Where dtype is e4m3: for Fp8Weight::create(). One fp32 scale a row, scales for all expanded.
  ConstMatrixView values;  // Elsewhere: [n, k], to be quantised by quantize_per_token() row by row.
  // Activation, static_scale, quantize.upper_bound and the bias (fp32) are the checkpoint's; the rest is the default.
  LinearOptions options;
  std::shared_ptr<const void> memory;  // Holds what the pointers above point at.
};

// An open checkpoint. Copies share it; several threads may load at once.
class OCTILE_API Checkpoint {
 public:
  // Reads config.json, hf_quant_config.json and the headers of the files of `directory`, and checks that each linear of each
  // layer is there, with the shape that config.json gives it and the scales that its quantisation says. Weights are not
  // read. Errors: io and corrupt for files; invalid_argument for a model, a quantisation or a number of ranks that Octile
  // doesn't serve. Each names the file, the tensor, what was wanted and what came.
  static Expected<Checkpoint> open(std::string_view directory, const CheckpointOptions& options = {});

  // "compressed-tensors", "fbgemm_fp8", "fp8", "modelopt", "quark" or "none".
  const std::string& quantization() const noexcept;
  // Layer by layer; in a layer qkv, o, gate_up, down.
  const std::vector<CheckpointEntry>& linears() const noexcept;
  // Reads linear `index` and checks its values. Errors: invalid_argument for an index beyond linears() and for a scale that
  // is negative or not finite, corrupt for a code that is NaN and a file that has become shorter, io for one that has
  // changed, out_of_memory.
  Expected<CheckpointLinear> load(std::size_t index) const;

  struct Impl;

 private:
  explicit Checkpoint(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace octile
