// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint's directory: config.json, modelopt's hf_quant_config.json, and the tensors of model.safetensors
// or of the shards that model.safetensors.index.json names. No file outside of the directory is opened, whatever the index
// or a symbolic link says.
#pragma once

#include "octile/model/safetensors.h"

#include <octile/error.hpp>

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace octile {

// A tensor and the file that holds it; both live as long as the CheckpointFiles.
struct FoundTensor {
  const SafetensorsFile* file = nullptr;
  const StoredTensor* tensor = nullptr;
  explicit operator bool() const noexcept { return tensor != nullptr; }
};

// `tensor "NAME" of FILE`, for messages.
std::string describe_place(const FoundTensor& found);

// Move-only: what find() hands out stays where it is.
class CheckpointFiles {
 public:
  // Reads every JSON file and every header, and no tensor. Errors: io for files, corrupt for their content, invalid_argument
  // for a path that is no checkpoint and for files outside of it.
  static Expected<CheckpointFiles> open(const std::string& directory);

  const std::string& directory() const noexcept { return directory_; }
  const nlohmann::ordered_json& config() const noexcept { return config_; }
  // nullptr where the file is not there.
  const nlohmann::ordered_json* hf_quant_config() const noexcept { return hf_quant_config_ ? &*hf_quant_config_ : nullptr; }
  const std::vector<SafetensorsFile>& files() const noexcept { return files_; }
  FoundTensor find(std::string_view name) const;

 private:
  CheckpointFiles() = default;
  Expected<void> open_one(const std::string& name);
  Expected<void> open_shards(const std::string& index_name);

  std::string directory_;
  nlohmann::ordered_json config_;
  std::optional<nlohmann::ordered_json> hf_quant_config_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, FoundTensor> tensors_;
};

}  // namespace octile
