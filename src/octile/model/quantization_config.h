// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's configuration says of its quantisation: which tool wrote it, and which weight and activation scales
// its linears may have. What Octile's linears cannot compute is refused by its name, never approximated.
#pragma once

#include <octile/error.hpp>
#include <octile/types.hpp>

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace octile {

// The scales that linears of a checkpoint may have; which one a linear has, its tensors say.
struct QuantizationScheme {
  std::string method = "none";  // "compressed-tensors", "fbgemm_fp8", "fp8", "modelopt", "quark"; "none": not quantised.
  bool channel_scales = false;  // Of weights: one an output channel,
  bool tensor_scales = false;   // or one for all.
  bool dynamic_activations = false;
  bool static_activations = false;                               // One scale for all, stored as input_scale.
  float activation_upper_bound = QuantizeOptions().upper_bound;  // Of dynamic activations.
};

// From config.json and, where there is one, hf_quant_config.json (else nullptr). Errors (invalid_argument; corrupt where the
// JSON has another shape than it must) name the key, what was wanted and what came.
Expected<QuantizationScheme> read_quantization(const nlohmann::ordered_json& config,
                                               const nlohmann::ordered_json* hf_quant_config);

}  // namespace octile
