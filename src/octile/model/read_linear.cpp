// SPDX-License-Identifier: Apache-2.0
// The weight, the scales and the bias of a linear: mapped where they may stay where they are, else copied, and checked.
#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/model/checkpoint_linear.h"
#include "octile/quant/weight_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

namespace octile {
namespace {

// What a CheckpointLinear's pointers point at.
struct LinearMemory {
  std::shared_ptr<const std::byte> mapping;  // One of the two holds the weight.
  std::unique_ptr<std::byte[]> copy;
  std::vector<float> scales;
  std::vector<float> bias;
};

DType float_dtype(StoredType type) {
  return type == StoredType::bf16 ? DType::bf16 : type == StoredType::f16 ? DType::fp16 : DType::fp32;
}

// All elements of a tensor of BF16, F16 or F32.
Expected<std::vector<float>> read_floats(const FoundTensor& found) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(found.tensor->bytes));
  if (auto ok = found.file->read(*found.tensor, 0, bytes); !ok) {
    return std::move(ok).error();
  }
  const DType dtype = float_dtype(found.tensor->type);
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  load_floats(bytes.data(), dtype, 0, static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

// Of a tensor of one element: finite and > 0.
Expected<float> read_positive(const FoundTensor& found) {
  const auto values = read_floats(found);
  if (!values) {
    return values.error();
  }
  const float value = values->front();
  if (!std::isfinite(value) || value <= 0.0F) {
    return make_error(ErrorCode::invalid_argument, "{}: wanted a finite value > 0, got {}", describe_place(found), value);
  }
  return value;
}

// The elements of `rows` of a tensor that has one a row, or one for all; `accepts` says which values may be.
template <class Accepts>
Expected<void> append_rows(const FoundTensor& found, std::span<const Range> rows, std::string_view wanted, Accepts accepts,
                           std::vector<float>& into) {
  const auto values = read_floats(found);
  if (!values) {
    return values.error();
  }
  for (const Range& range : rows) {
    for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
      const float value = values->size() == 1 ? values->front() : (*values)[static_cast<std::size_t>(row)];
      if (!accepts(value)) {
        return make_error(ErrorCode::invalid_argument, "{}: row {}: wanted {}, got {}", describe_place(found), row, wanted,
                          value);
      }
      into.push_back(value);
    }
  }
  return {};
}

// Ranges that follow each other as one.
std::vector<Range> merged(std::span<const Range> ranges) {
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (!result.empty() && result.back().first + result.back().count == range.first) {
      result.back().count += range.count;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

constexpr std::uint8_t kMagnitude = 0x7F;

// Where rows of a part lie in memory.
struct PlacedRows {
  const BoundPart* part = nullptr;
  Range rows;  // Of the stored weight.
  const std::byte* data = nullptr;
  std::int64_t row_bytes = 0;  // From one row to the next.
};

Expected<void> check_codes(const PlacedRows& placed) {
  const BoundPart& part = *placed.part;
  const std::int64_t k = part.plan.columns.count;
  for (std::int64_t row = 0; row < placed.rows.count; ++row) {
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(placed.data + row * placed.row_bytes);
    unsigned nan = 0;
    for (std::int64_t column = 0; column < k; ++column) {
      nan |= static_cast<unsigned>((codes[column] & kMagnitude) == kE4m3NaN);
    }
    if (nan != 0) {
      const auto* const first =
          std::find_if(codes, codes + k, [](std::uint8_t code) { return (code & kMagnitude) == kE4m3NaN; });
      return make_error(ErrorCode::corrupt, "{}: wanted numbers, got NaN (code {:02X}) in row {}, column {}",
                        describe_place(part.weight), *first, placed.rows.first + row,
                        part.plan.columns.first + (first - codes));
    }
  }
  return {};
}

class LinearReader {
 public:
  LinearReader(const BoundLinear& linear, const Mappings& mappings)
      : linear_(linear),
        mappings_(mappings),
        element_bytes_(size_of(linear.entry.dtype)),
        memory_(std::make_shared<LinearMemory>()) {}

  Expected<CheckpointLinear> read() {
    result_.entry = linear_.entry;
    const auto mapped = map_weight();
    if (!mapped) {
      return mapped.error();
    }
    if (!*mapped) {
      if (auto ok = copy_weight(); !ok) {
        return ok.error();
      }
    }
    using Step = Expected<void> (LinearReader::*)();
    constexpr Step kSteps[] = {&LinearReader::check_weight, &LinearReader::read_scales, &LinearReader::read_bias,
                               &LinearReader::read_activation};
    for (const Step step : kSteps) {
      if (auto ok = (this->*step)(); !ok) {
        return ok.error();
      }
    }
    result_.memory = memory_;
    return finish();
  }

 private:
  bool quantised() const { return linear_.entry.dtype == DType::e4m3; }

  // Byte of the stored weight's element (row, first column of the part).
  std::int64_t byte_of(const LinearPart& part, std::int64_t row) const {
    return (row * part.stored_k + part.columns.first) * element_bytes_;
  }

  // True where the weight can be used where its file is mapped.
  Expected<bool> map_weight() {
    const BoundPart& part = linear_.parts.front();
    const auto rows = merged(part.plan.rows);
    const auto mapping = mappings_.find(part.weight.file);
    if (linear_.parts.size() != 1 || rows.size() != 1 || mapping == mappings_.end()) {
      return false;
    }
    const std::byte* const data = mapping->second.get() + part.weight.tensor->begin + byte_of(part.plan, rows.front().first);
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(element_bytes_) != 0) {
      return false;
    }
    if (auto ok = part.weight.file->check_unchanged(); !ok) {
      return ok.error();
    }
    memory_->mapping = mapping->second;
    weight_ = data;
    row_stride_ = part.plan.stored_k;
    placed_ = {{&part, rows.front(), data, row_stride_ * element_bytes_}};
    return true;
  }

  Expected<void> copy_weight() {
    const std::int64_t row_bytes = linear_.entry.k * element_bytes_;
    memory_->copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(linear_.entry.n * row_bytes));
    std::byte* into = memory_->copy.get();
    weight_ = into;
    row_stride_ = linear_.entry.k;
    for (const BoundPart& part : linear_.parts) {
      // A file that is replaced piece by piece while it is read would give a weight that never was.
      if (auto ok = part.weight.file->check_unchanged(); !ok) {
        return ok;
      }
      for (const Range& rows : merged(part.plan.rows)) {
        placed_.push_back({&part, rows, into, row_bytes});
        // Whole rows lie one behind the other.
        const std::int64_t step = part.plan.columns.count == part.plan.stored_k ? rows.count : 1;
        for (std::int64_t row = 0; row < rows.count; row += step) {
          const auto bytes = static_cast<std::size_t>(step * row_bytes);
          if (auto ok = part.weight.file->read(*part.weight.tensor, byte_of(part.plan, rows.first + row), {into, bytes});
              !ok) {
            return ok;
          }
          into += bytes;
        }
      }
    }
    return {};
  }

  Expected<void> check_weight() {
    for (const PlacedRows& placed : placed_) {
      if (quantised()) {
        if (auto ok = check_codes(placed); !ok) {
          return ok;
        }
      }
      if (auto ok = placed.part->weight.file->check_unchanged(); !ok) {
        return ok;
      }
    }
    return {};
  }

  Expected<void> read_scales() {
    if (!quantised()) {
      return {};
    }
    const auto accepts = [](float scale) { return std::isfinite(scale) && scale >= 0.0F; };
    for (const BoundPart& part : linear_.parts) {
      if (auto ok = append_rows(part.scale, part.plan.rows, "a finite scale > 0", accepts, memory_->scales); !ok) {
        return ok;
      }
    }
    return {};
  }

  Expected<void> read_bias() {
    if (!linear_.entry.bias) {
      return {};
    }
    const auto accepts = [](float value) { return std::isfinite(value); };
    for (const BoundPart& part : linear_.parts) {
      if (auto ok = append_rows(part.bias, part.plan.rows, "a finite value", accepts, memory_->bias); !ok) {
        return ok;
      }
    }
    result_.options.bias = memory_->bias.data();
    result_.options.bias_dtype = DType::fp32;
    return {};
  }

  // Parts share their input: it is quantised once, with the largest of their scales.
  Expected<void> read_activation() {
    LinearOptions& options = result_.options;
    options.activation = linear_.entry.activation;
    options.quantize.upper_bound = linear_.activation_upper_bound;
    bool bounded = linear_.activation_upper_bound != QuantizeOptions().upper_bound;
    for (const BoundPart& part : linear_.parts) {
      if (part.input_scale) {
        const auto scale = read_positive(part.input_scale);
        if (!scale) {
          return scale.error();
        }
        options.static_scale = std::max(options.static_scale, *scale);
      }
      if (part.input_bound) {
        const auto bound = read_positive(part.input_bound);
        if (!bound) {
          return bound.error();
        }
        if (bounded && *bound != options.quantize.upper_bound) {
          return make_error(ErrorCode::invalid_argument,
                            "{}: wanted {}, as elsewhere in the linear and in config.json, got {}",
                            describe_place(part.input_bound), options.quantize.upper_bound, *bound);
        }
        options.quantize.upper_bound = *bound;
        bounded = true;
      }
    }
    return {};
  }

  Expected<CheckpointLinear> finish() {
    const CheckpointEntry& entry = linear_.entry;
    if (!quantised()) {
      result_.values = {weight_, entry.dtype, entry.n, entry.k, row_stride_, 1};
      return std::move(result_);
    }
    result_.weight = {.n = entry.n,
                      .k = entry.k,
                      .codes = weight_,
                      .code_dtype = DType::e4m3,
                      .row_stride = row_stride_,
                      .scales = memory_->scales.data(),
                      .scale_dtype = DType::fp32,
                      .scale_count = entry.n};
    if (auto ok = check_weight_source(result_.weight); !ok) {
      return make_error(ok.error().code, "{}: {}", entry.name, ok.error().message);
    }
    return std::move(result_);
  }

  const BoundLinear& linear_;
  const Mappings& mappings_;
  std::int64_t element_bytes_;
  std::shared_ptr<LinearMemory> memory_;
  CheckpointLinear result_;
  const std::byte* weight_ = nullptr;
  std::int64_t row_stride_ = 0;
  std::vector<PlacedRows> placed_;  // Of all parts, in their order.
};

}  // namespace

Expected<CheckpointLinear> read_linear(const BoundLinear& linear, const Mappings& mappings) {
  return LinearReader(linear, mappings).read();
}

}  // namespace octile
