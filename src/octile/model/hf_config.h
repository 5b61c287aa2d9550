// SPDX-License-Identifier: Apache-2.0
// The figures of a dense decoder from its Hugging Face config.json.
#pragma once

#include "octile/model/model.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace octile {

struct HfConfig {
  std::string model_type;
  ModelFigures figures;
  std::int64_t num_hidden_layers = 0;  // 0: not stated.
};

// Model types that are read, in alphabetical order.
std::vector<std::string> known_model_types();

// A multimodal config is read through its text_config. Errors (invalid_argument, corrupt) name the architecture or the key,
// what was wanted and what came; they don't name the file.
Expected<HfConfig> parse_hf_config(const nlohmann::ordered_json& config);

}  // namespace octile
