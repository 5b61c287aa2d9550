// SPDX-License-Identifier: Apache-2.0
// A checkpoint of a decoder with two small layers and fresh random weights, to be changed by tests and written.
#pragma once

#include "support/files.h"
#include "support/safetensors_writer.h"

#include <octile/checkpoint.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace octile::test {

// hidden 8, intermediate 12, 4 heads and 2 key/value heads of 4: q [16, 8], k and v [8, 8], o [8, 16], gate and up [12, 8],
// down [8, 12].
struct TinyCheckpoint {
  nlohmann::ordered_json config;
  std::vector<TensorToWrite> tensors;

  TensorToWrite& tensor(const std::string& name);  // Aborts where there is none: a test's own mistake.
  void remove(const std::string& name);
  void put(TensorToWrite tensor);  // Replaces or appends.

  // config.json, and one file or so many shards with their index.
  void write(const TemporaryDirectory& directory, std::size_t shards = 0) const;
};

enum class ScaleShape { rows, column, scalar, one };  // [N], [N, 1], [], [1].

// In BF16, as it was trained.
TinyCheckpoint tiny_checkpoint();
// In e4m3 codes with random scales of `scale_dtype` ("F32", "BF16", "F16"). `quantization` goes into config.json.
TinyCheckpoint tiny_fp8_checkpoint(const char* quantization, ScaleShape shape, const char* scale_dtype = "F32");

// Writes it and says what opening, or then loading each linear, says: "loaded" where nothing is wrong. A message of open()
// must name the directory, and be short.
std::string load_problem(const TinyCheckpoint& checkpoint, const TemporaryDirectory& directory,
                         const CheckpointOptions& options = {});

// quantization_config of the tools.
inline constexpr const char* kCompressedTensors = R"({
  "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
  "global_compression_ratio": 1.24, "kv_cache_scheme": null, "ignore": ["lm_head"], "config_groups": {"group_0": {
    "targets": ["Linear"], "output_activations": null,
    "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": false, "symmetric": true,
                "group_size": null, "block_structure": null, "actorder": null, "observer": "minmax", "observer_kwargs": {}},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true, "symmetric": true,
                          "group_size": null, "block_structure": null, "observer": null, "observer_kwargs": {}}}}})";
inline constexpr const char* kCompressedTensorsStatic = R"({
  "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
    "targets": ["Linear"],
    "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false, "symmetric": true},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false, "symmetric": true}}}})";
inline constexpr const char* kFbgemm =
    R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]})";
inline constexpr const char* kFp8Static =
    R"({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})";
inline constexpr const char* kModelopt = R"({
  "quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": ["lm_head"],
  "producer": {"name": "modelopt", "version": "0.37.0"}})";
inline constexpr const char* kQuark = R"({
  "quant_method": "quark", "exclude": ["lm_head"], "algo_config": null, "softmax_quant_spec": null,
  "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
  "layer_quant_config": {}, "layer_type_quant_config": {}, "global_quant_config": {"bias": null, "output_tensors": null,
    "weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": false, "symmetric": true},
    "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 1, "is_dynamic": true}}})";

}  // namespace octile::test
