// SPDX-License-Identifier: Apache-2.0
// From the plan of a linear to the tensors that hold it: names, types and shapes.
#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/model/checkpoint_linear.h"

#include <optional>
#include <utility>

namespace octile {
namespace {

bool is_float(StoredType type) { return type == StoredType::bf16 || type == StoredType::f16 || type == StoredType::f32; }

bool is_one_for_all(const StoredTensor& tensor) {
  return tensor.shape.empty() || tensor.shape == std::vector<std::int64_t>{1} ||
         tensor.shape == std::vector<std::int64_t>{1, 1};
}

bool is_one_a_row(const StoredTensor& tensor, std::int64_t n) {
  return tensor.shape == std::vector<std::int64_t>{n} || tensor.shape == std::vector<std::int64_t>{n, 1};
}

Error mismatch(const FoundTensor& found, std::string_view wanted) {
  return make_error(ErrorCode::invalid_argument, "{}: wanted {}, got {}", describe_place(found), wanted,
                    describe(*found.tensor));
}

// Finds what belongs to one stored weight.
class PartBinder {
 public:
  PartBinder(const CheckpointFiles& files, const QuantizationScheme& scheme, std::string module, const LinearPart& part)
      : files_(files), scheme_(scheme), module_(std::move(module)) {
    bound_.plan = part;
  }

  Expected<BoundPart> bind(bool with_bias) {
    if (auto ok = bind_weight(); !ok) {
      return ok.error();
    }
    if (auto ok = bind_scales(); !ok) {
      return ok.error();
    }
    if (with_bias) {
      if (auto ok = bind_bias(); !ok) {
        return ok.error();
      }
    }
    return std::move(bound_);
  }

 private:
  FoundTensor find(const char* suffix) const { return files_.find(module_ + suffix); }

  // Tensors that say that the linear is another than y = x . w^T.
  Expected<void> refuse_other_formats() const {
    struct Other {
      const char* suffix;
      const char* what;
    };
    constexpr Other kOthers[] = {
        {".weight_packed", "packed weights"},
        {".qweight", "packed weights"},
        {".weight_scale_inv", "block-scaled weights"},
        {".pre_quant_scale", "activations scaled by channel before they are quantised"},
    };
    for (const Other& other : kOthers) {
      if (const FoundTensor found = find(other.suffix); found) {
        return make_error(ErrorCode::invalid_argument, "{} ({}): {} are not supported", describe_place(found),
                          describe(*found.tensor), other.what);
      }
    }
    return {};
  }

  Expected<void> bind_weight() {
    if (auto ok = refuse_other_formats(); !ok) {
      return ok;
    }
    bound_.weight = find(".weight");
    if (!bound_.weight) {
      return make_error(ErrorCode::corrupt, "{}: wanted tensor {}, which no file holds", files_.directory(),
                        quote_for_message(module_ + ".weight", 200));
    }
    const StoredTensor& weight = *bound_.weight.tensor;
    const LinearPart& part = bound_.plan;
    if (weight.shape != std::vector<std::int64_t>{part.stored_n, part.stored_k}) {
      return mismatch(bound_.weight, format("[{}, {}], as config.json says", part.stored_n, part.stored_k));
    }
    if (weight.type != StoredType::f8_e4m3 && !is_float(weight.type)) {
      return mismatch(bound_.weight, "F8_E4M3 codes, or BF16, F16 or F32");
    }
    return {};
  }

  Expected<void> bind_scales() {
    const FoundTensor scale = find(".weight_scale");
    if (bound_.weight.tensor->type != StoredType::f8_e4m3) {
      if (scale) {
        return mismatch(bound_.weight, "F8_E4M3 codes, since it has a weight_scale");
      }
      return {};
    }
    if (!scheme_.channel_scales && !scheme_.tensor_scales) {
      return mismatch(bound_.weight, "BF16, F16 or F32, since config.json says of no quantised weights");
    }
    if (!scale) {
      return make_error(ErrorCode::corrupt, "{}: wanted a tensor {} of its scales, which no file holds",
                        describe_place(bound_.weight), quote_for_message(module_ + ".weight_scale", 200));
    }
    bound_.scale = scale;
    if (auto ok = check_scale_shape(); !ok) {
      return ok;
    }
    return bind_activation();
  }

  Expected<void> check_scale_shape() const {
    const StoredTensor& scale = *bound_.scale.tensor;
    const std::int64_t n = bound_.plan.stored_n;
    const bool rows = is_one_a_row(scale, n);
    const bool one = is_one_for_all(scale);
    if (!is_float(scale.type) || (!rows && !one)) {
      const bool blocks = scale.shape.size() == 2 && scale.shape[0] > 1 && scale.shape[1] > 1;
      return mismatch(bound_.scale, format("F32, BF16 or F16 [{}], [{}, 1] or one for all{}", n, n,
                                           blocks ? " (block-scaled weights are not supported)" : ""));
    }
    if (!(rows && scheme_.channel_scales) && !(one && scheme_.tensor_scales)) {
      return mismatch(bound_.scale,
                      format("{}, as the quantisation \"{}\" says",
                             scheme_.channel_scales ? format("one scale a row, [{}] or [{}, 1]", n, n) : "one scale for all",
                             scheme_.method));
    }
    return {};
  }

  Expected<void> bind_activation() {
    bound_.input_scale = find(".input_scale");
    bound_.input_bound = find(".input_scale_ub");
    for (const FoundTensor* found : {&bound_.input_scale, &bound_.input_bound}) {
      if (*found && !(is_float(found->tensor->type) && is_one_for_all(*found->tensor))) {
        return mismatch(*found, "F32, BF16 or F16, one for all activations");
      }
    }
    if (bound_.input_scale && !scheme_.static_activations) {
      return make_error(ErrorCode::invalid_argument,
                        "{}: wanted none, since the quantisation \"{}\" says that activations are quantised dynamically",
                        describe_place(bound_.input_scale), scheme_.method);
    }
    if (!bound_.input_scale && !scheme_.dynamic_activations) {
      return make_error(ErrorCode::corrupt, "{}: wanted a tensor {} for its activations, which no file holds",
                        describe_place(bound_.weight), quote_for_message(module_ + ".input_scale", 200));
    }
    return {};
  }

  Expected<void> bind_bias() {
    bound_.bias = find(".bias");
    if (bound_.bias && !(is_float(bound_.bias.tensor->type) &&
                         bound_.bias.tensor->shape == std::vector<std::int64_t>{bound_.plan.stored_n})) {
      return mismatch(bound_.bias, format("F32, BF16 or F16 [{}]", bound_.plan.stored_n));
    }
    return {};
  }

  const CheckpointFiles& files_;
  const QuantizationScheme& scheme_;
  std::string module_;
  BoundPart bound_;
};

DType dtype_of(StoredType type) {
  switch (type) {
    case StoredType::bf16:
      return DType::bf16;
    case StoredType::f16:
      return DType::fp16;
    case StoredType::f32:
      return DType::fp32;
    default:
      return DType::e4m3;
  }
}

// Parts of one linear must agree in what a linear has once.
Expected<void> check_agreement(const BoundPart& first, const BoundPart& part) {
  const auto differ = [&](std::string_view what) {
    return make_error(ErrorCode::invalid_argument,
                      "{} and {} cannot become one linear: {}; load the checkpoint without fusing",
                      describe_place(first.weight), describe_place(part.weight), what);
  };
  if (first.weight.tensor->type != part.weight.tensor->type) {
    return differ(
        format("one is {}, the other {}", to_string(first.weight.tensor->type), to_string(part.weight.tensor->type)));
  }
  if (static_cast<bool>(first.bias) != static_cast<bool>(part.bias)) {
    return differ("only one has a bias");
  }
  if (static_cast<bool>(first.input_scale) != static_cast<bool>(part.input_scale)) {
    return differ("only one has an input_scale");
  }
  return {};
}

}  // namespace

Expected<BoundLinear> bind_linear(const CheckpointFiles& files, const QuantizationScheme& scheme, const std::string& prefix,
                                  const LinearPlan& plan, bool first_rank) {
  BoundLinear linear;
  for (const LinearPart& part : plan.parts) {
    auto bound = PartBinder(files, scheme, prefix + part.module, part).bind(!plan.row_parallel || first_rank);
    if (!bound) {
      return std::move(bound).error();
    }
    linear.parts.push_back(*std::move(bound));
    if (auto ok = check_agreement(linear.parts.front(), linear.parts.back()); !ok) {
      return ok.error();
    }
  }
  const BoundPart& first = linear.parts.front();
  linear.entry.name = prefix + plan.module;
  linear.entry.kind = plan.kind;
  linear.entry.n = plan.n;
  linear.entry.k = plan.k;
  linear.entry.dtype = dtype_of(first.weight.tensor->type);
  linear.entry.row_parallel = plan.row_parallel;
  linear.entry.bias = static_cast<bool>(first.bias);
  linear.entry.activation = first.input_scale ? ActivationMode::static_per_tensor : ActivationMode::dynamic_per_token;
  linear.activation_upper_bound = scheme.activation_upper_bound;
  return linear;
}

}  // namespace octile
