// SPDX-License-Identifier: Apache-2.0
// Checkpoints of every tool read whole and by rank, and what breaks or harms refused by name.
#include <octile/checkpoint.hpp>

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "support/random.h"
#include "support/tiny_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace octile {
namespace {

using test::ScaleShape;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kQ = "model.layers.0.self_attn.q_proj";
constexpr const char* kK = "model.layers.0.self_attn.k_proj";
constexpr const char* kV = "model.layers.0.self_attn.v_proj";

// A matrix of bytes or floats, row by row.
template <class T>
using Rows = std::vector<std::vector<T>>;

// Rows [first, first + count) and columns [first_column, ...) of a stored weight of codes.
Rows<std::uint8_t> stored_codes(test::TinyCheckpoint& checkpoint, const std::string& module, std::int64_t first,
                                std::int64_t count, std::int64_t first_column = 0, std::int64_t columns = -1) {
  const test::TensorToWrite& tensor = checkpoint.tensor(module + ".weight");
  const std::int64_t k = tensor.shape[1];
  Rows<std::uint8_t> rows;
  for (std::int64_t row = first; row < first + count; ++row) {
    const auto begin = tensor.bytes.begin() + row * k + first_column;
    rows.emplace_back(begin, begin + (columns < 0 ? k : columns));
  }
  return rows;
}

// Scales of rows of a stored weight in fp32, those for all expanded.
std::vector<float> stored_scales(test::TinyCheckpoint& checkpoint, const std::string& module, std::int64_t first,
                                 std::int64_t count) {
  const test::TensorToWrite& tensor = checkpoint.tensor(module + ".weight_scale");
  const DType dtype = tensor.dtype == "BF16" ? DType::bf16 : tensor.dtype == "F16" ? DType::fp16 : DType::fp32;
  const bool one = tensor.bytes.size() == static_cast<std::size_t>(size_of(dtype));
  std::vector<float> scales;
  for (std::int64_t row = first; row < first + count; ++row) {
    scales.push_back(load_as_float(tensor.bytes.data(), dtype, one ? 0 : row));
  }
  return scales;
}

template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Rows<std::uint8_t> codes_of(const CheckpointLinear& linear) {
  const WeightSource& weight = linear.weight;
  Rows<std::uint8_t> rows;
  for (std::int64_t row = 0; row < weight.n; ++row) {
    const auto* const begin = static_cast<const std::uint8_t*>(weight.codes) + row * weight.row_stride;
    rows.emplace_back(begin, begin + weight.k);
  }
  return rows;
}

std::vector<float> scales_of(const CheckpointLinear& linear) {
  const auto* const begin = static_cast<const float*>(linear.weight.scales);
  return {begin, begin + linear.weight.scale_count};
}

class CheckpointTest : public testing::Test {
 protected:
  // Writes and opens; a failure is the test's.
  Checkpoint open(const test::TinyCheckpoint& checkpoint, const CheckpointOptions& options = {}, std::size_t shards = 0) {
    checkpoint.write(directory_, shards);
    auto opened = Checkpoint::open(directory_.path(), options);
    if (!opened) {
      throw std::runtime_error(opened.error().message);
    }
    return *std::move(opened);
  }
  static CheckpointLinear load(const Checkpoint& checkpoint, std::size_t index) {
    auto linear = checkpoint.load(index);
    if (!linear) {
      throw std::runtime_error(linear.error().message);
    }
    return *std::move(linear);
  }
  std::string problem_of(const test::TinyCheckpoint& checkpoint, const CheckpointOptions& options = {}) const {
    return test::load_problem(checkpoint, directory_, options);
  }

  test::TemporaryDirectory directory_;
};

TEST_F(CheckpointTest, LinearsAreListedLayerByLayer) {
  const Checkpoint checkpoint = open(test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column));
  EXPECT_EQ(checkpoint.quantization(), "compressed-tensors");
  std::string text;
  for (const CheckpointEntry& entry : checkpoint.linears()) {
    text += entry.name + " " + std::to_string(entry.n) + "x" + std::to_string(entry.k) + "\n";
  }
  EXPECT_EQ(text,
            "model.layers.0.self_attn.qkv_proj 32x8\nmodel.layers.0.self_attn.o_proj 8x16\n"
            "model.layers.0.mlp.gate_up_proj 24x8\nmodel.layers.0.mlp.down_proj 8x12\n"
            "model.layers.1.self_attn.qkv_proj 32x8\nmodel.layers.1.self_attn.o_proj 8x16\n"
            "model.layers.1.mlp.gate_up_proj 24x8\nmodel.layers.1.mlp.down_proj 8x12\n");
  EXPECT_EQ(checkpoint.linears()[4].layer, 1);
  EXPECT_TRUE(checkpoint.linears()[5].row_parallel);
}

// The scales as each tool writes them, fused without being quantised anew.
TEST_F(CheckpointTest, EveryToolsScalesArriveRowByRow) {
  SCOPED_TRACE(test::seed_text());
  const struct {
    const char* quantization;
    ScaleShape shape;
    const char* dtype;
  } table[] = {
      {test::kCompressedTensors, ScaleShape::column, "BF16"},
      {test::kCompressedTensors, ScaleShape::column, "F32"},
      {test::kCompressedTensors, ScaleShape::column, "F16"},
      {test::kFbgemm, ScaleShape::column, "F32"},
      {test::kFbgemm, ScaleShape::rows, "F32"},
      {test::kModelopt, ScaleShape::rows, "F32"},
      {test::kQuark, ScaleShape::rows, "F32"},
      {test::kQuark, ScaleShape::rows, "BF16"},
      {R"({"quant_method": "fp8", "activation_scheme": "dynamic"})", ScaleShape::scalar, "F32"},
      {R"({"quant_method": "fp8", "activation_scheme": "dynamic"})", ScaleShape::one, "BF16"},
  };
  for (const auto& [quantization, shape, dtype] : table) {
    SCOPED_TRACE(std::string(quantization) + " " + dtype);
    test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(quantization, shape, dtype);
    for (const CheckpointMemory memory : {CheckpointMemory::map, CheckpointMemory::read}) {
      CheckpointOptions options;
      options.memory = memory;
      const Checkpoint checkpoint = open(stored, options, 2);
      const CheckpointLinear qkv = load(checkpoint, 0);
      EXPECT_EQ(codes_of(qkv),
                stored_codes(stored, kQ, 0, 16) + stored_codes(stored, kK, 0, 8) + stored_codes(stored, kV, 0, 8));
      EXPECT_EQ(scales_of(qkv),
                stored_scales(stored, kQ, 0, 16) + stored_scales(stored, kK, 0, 8) + stored_scales(stored, kV, 0, 8));
      const CheckpointLinear down = load(checkpoint, 7);
      EXPECT_EQ(codes_of(down), stored_codes(stored, "model.layers.1.mlp.down_proj", 0, 8));
      EXPECT_EQ(scales_of(down), stored_scales(stored, "model.layers.1.mlp.down_proj", 0, 8));
      EXPECT_EQ(qkv.options.activation, ActivationMode::dynamic_per_token);
      EXPECT_EQ(qkv.options.bias, nullptr);
      EXPECT_EQ(qkv.options.quantize.upper_bound, quantization == test::kFbgemm ? 1200.0F : QuantizeOptions().upper_bound);
    }
  }
}

TEST_F(CheckpointTest, ALoadedLinearRuns) {
  const Checkpoint checkpoint = open(test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column));
  for (std::size_t i = 0; i < checkpoint.linears().size(); ++i) {
    const CheckpointLinear loaded = load(checkpoint, i);
    EXPECT_EQ(loaded.weight.n, loaded.entry.n);
    EXPECT_EQ(loaded.weight.k, loaded.entry.k);
    EXPECT_EQ(loaded.weight.code_dtype, DType::e4m3);
    const auto weight = Fp8Weight::create(loaded.weight);
    ASSERT_TRUE(weight) << weight.error().message;
    ASSERT_TRUE(Fp8Linear::create(*weight, loaded.options));
  }
}

TEST_F(CheckpointTest, ARankGetsItsShareOfEachPart) {
  SCOPED_TRACE(test::seed_text());
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  // 4 heads and 2 key/value heads on 4 ranks: ranks 2 and 3 share the second key/value head.
  for (const CheckpointMemory memory : {CheckpointMemory::map, CheckpointMemory::read}) {
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      CheckpointOptions options;
      options.tp = 4;
      options.rank = rank;
      options.memory = memory;
      const Checkpoint checkpoint = open(stored, options);
      const CheckpointLinear qkv = load(checkpoint, 0);
      const std::int64_t kv = rank / 2 * 4;
      EXPECT_EQ(codes_of(qkv),
                stored_codes(stored, kQ, rank * 4, 4) + stored_codes(stored, kK, kv, 4) + stored_codes(stored, kV, kv, 4));
      EXPECT_EQ(scales_of(qkv), stored_scales(stored, kQ, rank * 4, 4) + stored_scales(stored, kK, kv, 4) +
                                    stored_scales(stored, kV, kv, 4));
      // Columns of o and down, with all of their scales.
      const CheckpointLinear o = load(checkpoint, 1);
      EXPECT_EQ(codes_of(o), stored_codes(stored, "model.layers.0.self_attn.o_proj", 0, 8, rank * 4, 4));
      EXPECT_EQ(scales_of(o), stored_scales(stored, "model.layers.0.self_attn.o_proj", 0, 8));
      const CheckpointLinear gate_up = load(checkpoint, 2);
      EXPECT_EQ(codes_of(gate_up), stored_codes(stored, "model.layers.0.mlp.gate_proj", rank * 3, 3) +
                                       stored_codes(stored, "model.layers.0.mlp.up_proj", rank * 3, 3));
      const CheckpointLinear down = load(checkpoint, 3);
      EXPECT_EQ(codes_of(down), stored_codes(stored, "model.layers.0.mlp.down_proj", 0, 8, rank * 3, 3));
    }
  }
}

TEST_F(CheckpointTest, WithoutFusingEachWeightIsALinear) {
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kFbgemm, ScaleShape::column);
  CheckpointOptions options;
  options.fuse = false;
  const Checkpoint checkpoint = open(stored, options);
  ASSERT_EQ(checkpoint.linears().size(), 14U);
  EXPECT_EQ(checkpoint.linears()[1].name, kK);
  EXPECT_EQ(checkpoint.linears()[1].kind, "k");
  const CheckpointLinear k = load(checkpoint, 1);
  EXPECT_EQ(codes_of(k), stored_codes(stored, kK, 0, 8));
  EXPECT_EQ(scales_of(k), stored_scales(stored, kK, 0, 8));
}

// As Phi-3 stores them.
TEST_F(CheckpointTest, WeightsThatAreStoredFusedAreDividedSectionBySection) {
  test::TinyCheckpoint apart = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  test::TinyCheckpoint stored = apart;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const std::string suffix : {".weight", ".weight_scale"}) {
      test::TensorToWrite fused = stored.tensor(format("{}self_attn.q_proj{}", layer, suffix));
      fused.name = format("{}self_attn.qkv_proj{}", layer, suffix);
      fused.shape[0] = 32;
      for (const std::string part : {"self_attn.k_proj", "self_attn.v_proj"}) {
        fused.bytes += stored.tensor(format("{}{}{}", layer, part, suffix)).bytes;
      }
      stored.put(fused);
      for (const std::string part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}) {
        stored.remove(format("{}{}{}", layer, part, suffix));
      }
    }
  }
  for (const std::int64_t tp : {1, 2}) {
    CheckpointOptions options;
    options.tp = tp;
    options.rank = tp - 1;
    const test::TemporaryDirectory other;
    apart.write(other);
    const auto wanted = Checkpoint::open(other.path(), options);
    ASSERT_TRUE(wanted) << wanted.error().message;
    const Checkpoint checkpoint = open(stored, options);
    const CheckpointLinear qkv = load(checkpoint, 0);
    EXPECT_EQ(qkv.entry.name, "model.layers.0.self_attn.qkv_proj");
    EXPECT_EQ(codes_of(qkv), codes_of(load(*wanted, 0)));
    EXPECT_EQ(scales_of(qkv), scales_of(load(*wanted, 0)));
  }
}

TEST_F(CheckpointTest, AWeightInOnePieceOfAFileIsNotCopied) {
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  CheckpointOptions options;
  options.tp = 2;
  options.rank = 1;
  CheckpointLinear o;
  {
    const Checkpoint checkpoint = open(stored, options);
    o = load(checkpoint, 1);
    EXPECT_EQ(load(checkpoint, 1).weight.codes, o.weight.codes);  // The mapping's address, each time.
    EXPECT_EQ(o.weight.row_stride, 16);
    EXPECT_NE(load(checkpoint, 0).weight.codes, load(checkpoint, 0).weight.codes);
  }
  // It outlives the checkpoint.
  EXPECT_EQ(codes_of(o), stored_codes(stored, "model.layers.0.self_attn.o_proj", 0, 8, 8, 8));
  options.memory = CheckpointMemory::read;
  const Checkpoint copied = open(stored, options);
  EXPECT_EQ(load(copied, 1).weight.row_stride, 8);
}

TEST_F(CheckpointTest, StaticScalesOfActivationsArePassedOnAndTheLargestServesAFusedLinear) {
  for (const char* quantization : {test::kCompressedTensorsStatic, test::kFp8Static}) {
    test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(quantization, ScaleShape::one);
    float scale = 0.5F;
    for (const test::TensorToWrite& tensor : std::vector(stored.tensors)) {
      if (tensor.dtype == "F8_E4M3") {
        const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
        stored.put({module + ".input_scale", "F32", {}, test::bytes_of<float>({scale})});
        scale += 0.25F;
      }
    }
    const Checkpoint checkpoint = open(stored);
    const CheckpointLinear qkv = load(checkpoint, 0);
    EXPECT_EQ(qkv.entry.activation, ActivationMode::static_per_tensor);
    EXPECT_EQ(qkv.options.activation, ActivationMode::static_per_tensor);
    EXPECT_EQ(qkv.options.static_scale, 1.0F);                   // Of 0.5, 0.75 and 1.
    EXPECT_EQ(load(checkpoint, 1).options.static_scale, 1.25F);  // o's.
    for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
      test::TinyCheckpoint broken = stored;
      broken.tensor("model.layers.1.mlp.up_proj.input_scale").bytes = test::bytes_of<float>({bad});
      EXPECT_THAT(problem_of(broken),
                  AllOf(HasSubstr("layers.1.mlp.up_proj.input_scale"), HasSubstr("wanted a finite value > 0")));
    }
    test::TinyCheckpoint without = stored;
    without.remove("model.layers.1.mlp.up_proj.input_scale");
    EXPECT_THAT(problem_of(without), HasSubstr("wanted a tensor \"model.layers.1.mlp.up_proj.input_scale\""));
  }
}

TEST_F(CheckpointTest, AnUpperBoundOfActivationsIsTakenFromConfigurationAndTensors) {
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kFbgemm, ScaleShape::column);
  for (const char* module : {kQ, kK, kV}) {
    stored.put({std::string(module) + ".input_scale_ub", "F32", {1}, test::bytes_of<float>({1200})});
  }
  EXPECT_EQ(load(open(stored), 0).options.quantize.upper_bound, 1200.0F);
  stored.tensor(std::string(kV) + ".input_scale_ub").bytes = test::bytes_of<float>({1000});
  EXPECT_THAT(problem_of(stored), HasSubstr("v_proj.input_scale_ub\""));
  // Without one in config.json, the tensor's.
  stored.tensor(std::string(kV) + ".input_scale_ub").bytes = test::bytes_of<float>({1200});
  stored.config["quantization_config"].erase("activation_scale_ub");
  const Checkpoint checkpoint = open(stored);
  EXPECT_EQ(load(checkpoint, 0).options.quantize.upper_bound, 1200.0F);
  EXPECT_EQ(load(checkpoint, 1).options.quantize.upper_bound, QuantizeOptions().upper_bound);
}

// As Qwen2 has them: of q, k and v.
TEST_F(CheckpointTest, BiasesAreFusedAndDividedAndOfRowParallelLinearsRankZeros) {
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  stored.config["num_hidden_layers"] = 1;
  std::erase_if(stored.tensors,
                [](const test::TensorToWrite& tensor) { return tensor.name.find("layers.1") != std::string::npos; });
  std::vector<float> q(16);
  std::vector<float> kv(8);
  for (std::size_t i = 0; i < 16; ++i) {
    q[i] = static_cast<float>(i);
    kv[i % 8] = 100.0F + static_cast<float>(i % 8);
  }
  stored.put({std::string(kQ) + ".bias", "BF16", {16}, test::bytes_of(test::as_bytes(q, DType::bf16))});
  stored.put({std::string(kK) + ".bias", "F32", {8}, test::bytes_of(kv)});
  stored.put({std::string(kV) + ".bias", "F16", {8}, test::bytes_of(test::as_bytes(kv, DType::fp16))});
  stored.put({"model.layers.0.self_attn.o_proj.bias", "F32", {8}, test::bytes_of(kv)});
  CheckpointOptions options;
  options.tp = 2;
  for (options.rank = 0; options.rank < 2; ++options.rank) {
    const Checkpoint checkpoint = open(stored, options);
    const CheckpointLinear qkv = load(checkpoint, 0);
    ASSERT_TRUE(qkv.entry.bias);
    EXPECT_EQ(qkv.options.bias_dtype, DType::fp32);
    const auto* const bias = static_cast<const float*>(qkv.options.bias);
    const float first = options.rank == 0 ? 0.0F : 8.0F;
    const float first_kv = options.rank == 0 ? 100.0F : 104.0F;
    EXPECT_THAT(
        std::vector<float>(bias, bias + 16),
        testing::ElementsAre(first, first + 1, first + 2, first + 3, first + 4, first + 5, first + 6, first + 7, first_kv,
                             first_kv + 1, first_kv + 2, first_kv + 3, first_kv, first_kv + 1, first_kv + 2, first_kv + 3));
    EXPECT_EQ(checkpoint.linears()[1].bias, options.rank == 0);
    EXPECT_EQ(load(checkpoint, 1).options.bias != nullptr, options.rank == 0);
  }
  stored.remove(std::string(kV) + ".bias");
  EXPECT_THAT(problem_of(stored), HasSubstr("cannot become one linear: only one has a bias"));
  options = {};
  options.fuse = false;
  EXPECT_EQ(problem_of(stored, options), "loaded");
  stored.tensor(std::string(kK) + ".bias").bytes[3] = '\x7F';  // 100 becomes a huge value, then NaN.
  stored.tensor(std::string(kK) + ".bias").bytes[2] = '\xC0';
  EXPECT_THAT(problem_of(stored, options), HasSubstr("k_proj.bias"));
}

TEST_F(CheckpointTest, WeightsThatAreNotQuantisedComeAsTheyAre) {
  test::TinyCheckpoint stored = test::tiny_checkpoint();
  const Checkpoint checkpoint = open(stored);
  EXPECT_EQ(checkpoint.quantization(), "none");
  EXPECT_EQ(checkpoint.linears()[0].dtype, DType::bf16);
  const CheckpointLinear qkv = load(checkpoint, 0);
  EXPECT_EQ(qkv.weight.codes, nullptr);
  EXPECT_EQ(qkv.values.dtype, DType::bf16);
  EXPECT_EQ(qkv.values.rows, 32);
  EXPECT_EQ(qkv.values.cols, 8);
  const std::string bytes(static_cast<const char*>(qkv.values.data), 512);  // [32, 8] of two bytes.
  EXPECT_EQ(bytes, stored.tensor(std::string(kQ) + ".weight").bytes + stored.tensor(std::string(kK) + ".weight").bytes +
                       stored.tensor(std::string(kV) + ".weight").bytes);
}

// What a quantisation left out: "ignore", "modules_to_not_convert".
TEST_F(CheckpointTest, ALinearThatWasLeftOutOfTheQuantisationComesAsItIs) {
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  const test::TinyCheckpoint trained = test::tiny_checkpoint();
  for (const test::TensorToWrite& tensor : trained.tensors) {
    if (tensor.name == "model.layers.1.mlp.down_proj.weight") {
      stored.put(tensor);
    }
  }
  stored.remove("model.layers.1.mlp.down_proj.weight_scale");
  const Checkpoint checkpoint = open(stored);
  EXPECT_EQ(checkpoint.linears()[7].dtype, DType::bf16);
  EXPECT_EQ(load(checkpoint, 7).values.rows, 8);
  EXPECT_EQ(checkpoint.linears()[3].dtype, DType::e4m3);
}

// A header may put bf16 at an odd address; the numbers are right, and the pointer may be read.
TEST_F(CheckpointTest, WeightsAtOddPlacesAreCopied) {
  test::TinyCheckpoint stored = test::tiny_checkpoint();
  stored.tensors.insert(stored.tensors.begin(), {"odd", "U8", {1}, "x"});
  const Checkpoint checkpoint = open(stored);
  for (std::size_t i = 0; i < checkpoint.linears().size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(load(checkpoint, i).values.data) % 2, 0U);
  }
  const std::string bytes(static_cast<const char*>(load(checkpoint, 1).values.data), 256);  // [8, 16] of two bytes.
  EXPECT_EQ(bytes, stored.tensor("model.layers.0.self_attn.o_proj.weight").bytes);
}

TEST_F(CheckpointTest, LayersOfMultimodalModelsAreFound) {
  for (const std::string prefix : {"model.language_model.layers.", "language_model.model.layers."}) {
    test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
    for (test::TensorToWrite& tensor : stored.tensors) {
      if (tensor.name.starts_with("model.layers.")) {
        tensor.name = prefix + tensor.name.substr(13);
      }
    }
    EXPECT_EQ(open(stored).linears()[7].name, prefix + "1.mlp.down_proj");
  }
}

TEST_F(CheckpointTest, WithoutANumberOfLayersThoseThatAreThereAreTaken) {
  test::TinyCheckpoint stored = test::tiny_checkpoint();
  stored.config.erase("num_hidden_layers");
  EXPECT_EQ(open(stored).linears().size(), 8U);
  stored.config["num_hidden_layers"] = 3;
  EXPECT_THAT(problem_of(stored),
              HasSubstr("wanted tensor \"model.layers.2.self_attn.q_proj.weight\", which no file holds"));
  stored.config["num_hidden_layers"] = 1;
  EXPECT_THAT(problem_of(stored), HasSubstr("config.json says num_hidden_layers 1, but the files hold 2 layers"));
}

TEST_F(CheckpointTest, ALinearOfAFileThatHasChangedIsRefused) {
  for (const CheckpointMemory memory : {CheckpointMemory::map, CheckpointMemory::read}) {
    CheckpointOptions options;
    options.memory = memory;
    const Checkpoint checkpoint = open(test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column), options);
    const std::string path = directory_.file("model.safetensors");
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    for (std::size_t i = 0; i < checkpoint.linears().size(); ++i) {
      const auto linear = checkpoint.load(i);
      ASSERT_FALSE(linear) << i;
      EXPECT_EQ(linear.error().code, ErrorCode::io);
      EXPECT_THAT(linear.error().message, AllOf(HasSubstr(path), HasSubstr("has changed since it was opened")));
    }
  }
}

TEST_F(CheckpointTest, SeveralThreadsMayLoadAtOnce) {
  const Checkpoint checkpoint = open(test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column), {}, 3);
  std::vector<Rows<std::uint8_t>> wanted;
  for (std::size_t i = 0; i < checkpoint.linears().size(); ++i) {
    wanted.push_back(codes_of(load(checkpoint, i)));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, copy = checkpoint] {
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto linear = copy.load(i);
        wrong += !linear || codes_of(*linear) != wanted[i] ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(CheckpointTest, AnIndexBeyondTheLinearsIsRefused) {
  const auto linear = open(test::tiny_checkpoint()).load(8);
  ASSERT_FALSE(linear);
  EXPECT_THAT(linear.error().message, HasSubstr("wanted the index of one of 8 linears, got 8"));
}

// Every byte of config.json and of the index set to others: an answer, never a crash.
TEST_F(CheckpointTest, AByteChangedInAJsonFileGivesAnAnswer) {
  test::TinyCheckpoint stored = test::tiny_fp8_checkpoint(test::kFbgemm, ScaleShape::column);
  stored.write(directory_, 2);
  for (const char* name : {"config.json", "model.safetensors.index.json"}) {
    const std::string path = directory_.file(name);
    const std::string whole = test::read_text(path);
    std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&bytes](std::size_t at, char byte) {
      bytes.seekp(static_cast<std::streamoff>(at));
      bytes.put(byte).flush();
    };
    for (std::size_t at = 0; at < whole.size(); at += 3) {
      for (const char change : {'"', '{', '-', '0', '9', '/', '.', '\xFF'}) {
        put(at, change);
        const auto opened = Checkpoint::open(directory_.path());
        if (!opened) {
          EXPECT_LT(opened.error().message.size(), 1000U);
          continue;
        }
        for (std::size_t i = 0; i < opened->linears().size(); ++i) {
          if (const auto linear = opened->load(i); linear && linear->entry.dtype == DType::e4m3) {
            EXPECT_EQ(linear->weight.scale_count, linear->entry.n);
          }
        }
      }
      put(at, whole[at]);
    }
  }
}

}  // namespace
}  // namespace octile
