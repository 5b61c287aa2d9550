// SPDX-License-Identifier: Apache-2.0
// One linear of a checkpoint: its tensors found and checked against config.json, later read.
#pragma once

#include "octile/model/checkpoint_files.h"
#include "octile/model/layer_linears.h"
#include "octile/model/quantization_config.h"

#include <octile/checkpoint.hpp>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace octile {

// A part of a linear with its tensors; those that it hasn't are empty.
struct BoundPart {
  LinearPart plan;
  FoundTensor weight;
  FoundTensor scale;
  FoundTensor bias;
  FoundTensor input_scale;
  FoundTensor input_bound;  // fbgemm's input_scale_ub.
};

struct BoundLinear {
  CheckpointEntry entry;
  std::vector<BoundPart> parts;
  float activation_upper_bound = 0.0F;  // By the configuration.
};

// The mapped bytes of each file; empty where everything is to be copied.
using Mappings = std::unordered_map<const SafetensorsFile*, std::shared_ptr<const std::byte>>;

// Finds the tensors of `plan`, whose modules stand behind `prefix` ("model.layers.0."), and checks everything but their
// values. `first_rank`: the one that adds the biases of row-parallel linears.
Expected<BoundLinear> bind_linear(const CheckpointFiles& files, const QuantizationScheme& scheme, const std::string& prefix,
                                  const LinearPlan& plan, bool first_rank);

Expected<CheckpointLinear> read_linear(const BoundLinear& linear, const Mappings& mappings);

}  // namespace octile
