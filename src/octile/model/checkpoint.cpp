// SPDX-License-Identifier: Apache-2.0
// Checkpoint: the files, the model that config.json describes, and its linears bound to tensors.
#include <octile/checkpoint.hpp>

#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/model/checkpoint_linear.h"
#include "octile/model/hf_config.h"

#include <algorithm>
#include <new>
#include <utility>

namespace octile {

struct Checkpoint::Impl {
  CheckpointFiles files;
  std::string quantization;
  std::vector<BoundLinear> linears;
  std::vector<CheckpointEntry> entries;
  Mappings mappings;
};

namespace {

// Where the layers of a decoder stand: alone, or in a multimodal model of newer and older transformers.
constexpr const char* kLayerPrefixes[] = {"model.layers.", "model.language_model.layers.", "language_model.model.layers."};

// Some tensor of every layer.
constexpr const char* kWitness = ".mlp.down_proj.weight";

// The prefix by which layer 0 is found. A weight in another form is found as well, to be refused by its name later.
Expected<std::string> find_prefix(const CheckpointFiles& files) {
  std::string tried;
  for (const char* prefix : kLayerPrefixes) {
    for (const char* form : {"", "_packed", "_scale_inv"}) {
      if (files.find(format("{}0{}{}", prefix, kWitness, form))) {
        return std::string(prefix);
      }
    }
    tried += format("{}{}0{}", tried.empty() ? "" : ", ", prefix, kWitness);
  }
  return make_error(ErrorCode::invalid_argument, "{}: wanted a decoder with one of the tensors {}, and no file holds one",
                    files.directory(), tried);
}

// The number of layers by config.json, or as many as there are.
Expected<std::int64_t> count_layers(const CheckpointFiles& files, const std::string& prefix, const HfConfig& config) {
  std::int64_t layers = 0;
  while (files.find(format("{}{}{}", prefix, layers, kWitness))) {
    ++layers;
  }
  // Fewer than stated are told layer by layer, with the tensor that is missing.
  if (config.num_hidden_layers != 0 && layers > config.num_hidden_layers) {
    return make_error(ErrorCode::invalid_argument, "{}: config.json says num_hidden_layers {}, but the files hold {} layers",
                      files.directory(), config.num_hidden_layers, layers);
  }
  // There is a layer 0, if only in a form that is refused.
  return config.num_hidden_layers != 0 ? config.num_hidden_layers : std::max<std::int64_t>(layers, 1);
}

class Opener {
 public:
  Opener(CheckpointFiles files, const CheckpointOptions& options)
      : impl_(std::make_shared<Checkpoint::Impl>(Checkpoint::Impl{std::move(files), {}, {}, {}, {}})), options_(options) {}

  Expected<std::shared_ptr<const Checkpoint::Impl>> open() {
    auto config = parse_hf_config(impl_->files.config());
    if (!config) {
      return in_directory(config.error());
    }
    const auto scheme = read_quantization(impl_->files.config(), impl_->files.hf_quant_config());
    if (!scheme) {
      return in_directory(scheme.error());
    }
    impl_->quantization = scheme->method;
    const auto prefix = find_prefix(impl_->files);
    if (!prefix) {
      return prefix.error();
    }
    const auto layers = count_layers(impl_->files, *prefix, *config);
    if (!layers) {
      return layers.error();
    }
    for (std::int64_t layer = 0; layer < *layers; ++layer) {
      if (auto ok = bind_layer(*config, *scheme, layer, format("{}{}.", *prefix, layer)); !ok) {
        return ok.error();
      }
    }
    if (options_.memory == CheckpointMemory::map) {
      if (auto ok = map_files(); !ok) {
        return ok.error();
      }
    }
    return std::shared_ptr<const Checkpoint::Impl>(std::move(impl_));
  }

 private:
  Error in_directory(const Error& error) const {
    return {error.code, format("{}: {}", impl_->files.directory(), error.message)};
  }

  Expected<void> bind_layer(const HfConfig& config, const QuantizationScheme& scheme, std::int64_t layer,
                            const std::string& prefix) {
    const CheckpointFiles& files = impl_->files;
    const LayerLayout layout{.stored_qkv = static_cast<bool>(files.find(prefix + "self_attn.qkv_proj.weight")),
                             .stored_gate_up = static_cast<bool>(files.find(prefix + "mlp.gate_up_proj.weight")),
                             .fuse = options_.fuse};
    const auto plans = plan_layer(config.figures, options_.tp, options_.rank, layout);
    if (!plans) {
      return in_directory(plans.error());
    }
    for (const LinearPlan& plan : *plans) {
      auto linear = bind_linear(files, scheme, prefix, plan, options_.rank == 0);
      if (!linear) {
        return std::move(linear).error();
      }
      linear->entry.layer = layer;
      impl_->entries.push_back(linear->entry);
      impl_->linears.push_back(*std::move(linear));
    }
    return {};
  }

  Expected<void> map_files() {
    for (const SafetensorsFile& file : impl_->files.files()) {
      auto mapping = file.map();
      if (!mapping) {
        return std::move(mapping).error();
      }
      impl_->mappings.emplace(&file, *std::move(mapping));
    }
    return {};
  }

  std::shared_ptr<Checkpoint::Impl> impl_;
  CheckpointOptions options_;
};

}  // namespace

Expected<Checkpoint> Checkpoint::open(std::string_view directory, const CheckpointOptions& options) try {
  auto files = CheckpointFiles::open(std::string(directory));
  if (!files) {
    return std::move(files).error();
  }
  auto impl = Opener(*std::move(files), options).open();
  if (!impl) {
    return std::move(impl).error();
  }
  return Checkpoint(*std::move(impl));
} catch (const std::bad_alloc&) {
  return out_of_memory("{}: no memory for the names of its tensors", directory);
}

const std::string& Checkpoint::quantization() const noexcept { return impl_->quantization; }
const std::vector<CheckpointEntry>& Checkpoint::linears() const noexcept { return impl_->entries; }

Expected<CheckpointLinear> Checkpoint::load(std::size_t index) const try {
  if (index >= impl_->linears.size()) {
    return make_error(ErrorCode::invalid_argument, "{}: wanted the index of one of {} linears, got {}",
                      impl_->files.directory(), impl_->linears.size(), index);
  }
  return read_linear(impl_->linears[index], impl_->mappings);
} catch (const std::bad_alloc&) {
  const CheckpointEntry& entry = impl_->entries[index];
  return out_of_memory("{} [{}, {}]: no memory for its weight", entry.name, entry.n, entry.k);
}

}  // namespace octile
