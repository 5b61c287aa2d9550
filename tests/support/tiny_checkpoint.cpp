// SPDX-License-Identifier: Apache-2.0
#include "support/tiny_checkpoint.h"

#include "support/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace octile::test {
namespace {

constexpr int kLayers = 2;

struct Module {
  const char* name;
  std::int64_t n;
  std::int64_t k;
};
constexpr Module kModules[] = {
    {"self_attn.q_proj", 16, 8}, {"self_attn.k_proj", 8, 8}, {"self_attn.v_proj", 8, 8}, {"self_attn.o_proj", 8, 16},
    {"mlp.gate_proj", 12, 8},    {"mlp.up_proj", 12, 8},     {"mlp.down_proj", 8, 12},
};

std::string random_floats(std::int64_t count, const std::string& dtype, bool scales) {
  const DType type = dtype == "BF16" ? DType::bf16 : dtype == "F16" ? DType::fp16 : DType::fp32;
  return bytes_of(as_bytes(scales ? random_scales(count) : normals(count), type));
}

std::vector<std::int64_t> scale_shape(ScaleShape shape, std::int64_t n) {
  switch (shape) {
    case ScaleShape::rows:
      return {n};
    case ScaleShape::column:
      return {n, 1};
    case ScaleShape::scalar:
      return {};
    case ScaleShape::one:
      break;
  }
  return {1};
}

}  // namespace

TensorToWrite& TinyCheckpoint::tensor(const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorToWrite& t) { return t.name == name; });
  if (found == tensors.end()) {
    std::fprintf(stderr, "no tensor %s\n", name.c_str());
    std::abort();
  }
  return *found;
}

void TinyCheckpoint::remove(const std::string& name) {
  std::erase_if(tensors, [&](const TensorToWrite& tensor) { return tensor.name == name; });
}

void TinyCheckpoint::put(TensorToWrite tensor) {
  remove(tensor.name);
  tensors.push_back(std::move(tensor));
}

void TinyCheckpoint::write(const TemporaryDirectory& directory, std::size_t shards) const {
  directory.write("config.json", config.dump());
  if (shards == 0) {
    directory.write("model.safetensors", safetensors_file(tensors));
    return;
  }
  nlohmann::ordered_json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::ordered_json::object()}};
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const std::string name = "model-" + std::to_string(shard) + ".safetensors";
    std::vector<TensorToWrite> held;
    for (std::size_t i = shard; i < tensors.size(); i += shards) {
      held.push_back(tensors[i]);
      index["weight_map"][tensors[i].name] = name;
    }
    directory.write(name, safetensors_file(held));
  }
  directory.write("model.safetensors.index.json", index.dump());
}

TinyCheckpoint tiny_checkpoint() {
  TinyCheckpoint checkpoint;
  checkpoint.config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_size", 8},
                       {"intermediate_size", 12},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"head_dim", 4},
                       {"num_hidden_layers", kLayers},
                       {"torch_dtype", "bfloat16"}};
  checkpoint.put({"model.embed_tokens.weight", "BF16", {10, 8}, random_floats(80, "BF16", false)});
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    checkpoint.put({prefix + "input_layernorm.weight", "BF16", {8}, random_floats(8, "BF16", false)});
    for (const Module& module : kModules) {
      checkpoint.put({prefix + module.name + ".weight",
                      "BF16",
                      {module.n, module.k},
                      random_floats(module.n * module.k, "BF16", false)});
    }
  }
  return checkpoint;
}

TinyCheckpoint tiny_fp8_checkpoint(const char* quantization, ScaleShape shape, const char* scale_dtype) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["quantization_config"] = nlohmann::ordered_json::parse(quantization);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Module& module : kModules) {
      const std::string name = "model.layers." + std::to_string(layer) + "." + module.name;
      TensorToWrite& weight = checkpoint.tensor(name + ".weight");
      weight.dtype = "F8_E4M3";
      weight.bytes = bytes_of(random_codes(module.n * module.k));
      const bool one = shape == ScaleShape::scalar || shape == ScaleShape::one;
      checkpoint.put({name + ".weight_scale", scale_dtype, scale_shape(shape, module.n),
                      random_floats(one ? 1 : module.n, scale_dtype, true)});
    }
  }
  return checkpoint;
}

std::string load_problem(const TinyCheckpoint& checkpoint, const TemporaryDirectory& directory,
                         const CheckpointOptions& options) {
  checkpoint.write(directory);
  const auto opened = Checkpoint::open(directory.path(), options);
  if (!opened) {
    EXPECT_NE(opened.error().message.find(directory.path()), std::string::npos) << opened.error().message;
    EXPECT_LT(opened.error().message.size(), 1000U);
    return opened.error().message;
  }
  for (std::size_t i = 0; i < opened->linears().size(); ++i) {
    if (const auto linear = opened->load(i); !linear) {
      return linear.error().message;
    }
  }
  return "loaded";
}

}  // namespace octile::test
