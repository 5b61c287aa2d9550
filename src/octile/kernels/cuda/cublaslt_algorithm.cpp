// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's algorithms named by their attributes, and the search for fast ones.
#include "octile/kernels/cuda/cublaslt_algorithm.h"

#include "octile/core/format.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <utility>

namespace octile::cuda {
namespace {

struct Attribute {
  const char* name;
  cublasLtMatmulAlgoConfigAttributes_t id;
  std::size_t bytes;  // Of cuBLASLt's value: all are unsigned but the algorithm id and the split, which are never negative.
};
constexpr std::array kAttributes = {
    Attribute{kAlgoId, CUBLASLT_ALGO_CONFIG_ID, 4},
    Attribute{kTileId, CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    Attribute{kStagesId, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    Attribute{kClusterShapeId, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
    Attribute{kCustomOption, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    Attribute{kInnerShapeId, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    Attribute{kSplitK, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    Attribute{kReductionScheme, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    Attribute{kSwizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
};

cublasStatus_t set_attribute(const CublasLt& api, cublasLtMatmulAlgo_t& algorithm, const Attribute& attribute,
                             std::int64_t value) {
  if (attribute.bytes == 2) {
    const auto narrow = static_cast<std::uint16_t>(value);
    return api.algo_config_set(&algorithm, attribute.id, &narrow, sizeof(narrow));
  }
  const auto wide = static_cast<std::uint32_t>(value);
  return api.algo_config_set(&algorithm, attribute.id, &wide, sizeof(wide));
}

std::int64_t get_attribute(const CublasLt& api, const cublasLtMatmulAlgo_t& algorithm, const Attribute& attribute) {
  std::size_t written = 0;
  if (attribute.bytes == 2) {
    std::uint16_t narrow = 0;
    const bool read =
        api.algo_config_get(&algorithm, attribute.id, &narrow, sizeof(narrow), &written) == CUBLAS_STATUS_SUCCESS;
    return read ? narrow : 0;
  }
  std::uint32_t wide = 0;
  const bool read = api.algo_config_get(&algorithm, attribute.id, &wide, sizeof(wide), &written) == CUBLAS_STATUS_SUCCESS;
  return read ? wide : 0;
}

// The tile ids of cublasLtMatmulTile_t follow a rule after the first 35: rows in steps of 8 with tokens in steps of 64, then
// rows in steps of 64 with tokens in steps of 8, sizes that have an id already left out.
std::vector<LtTile> make_tiles() {
  std::vector<LtTile> tiles = {{0, 0},     {8, 8},    {8, 16},   {16, 8},   {8, 32},    {16, 16},   {32, 8},    {8, 64},
                               {16, 32},   {32, 16},  {64, 8},   {32, 32},  {32, 64},   {64, 32},   {32, 128},  {64, 64},
                               {128, 32},  {64, 128}, {128, 64}, {64, 256}, {128, 128}, {256, 64},  {64, 512},  {128, 256},
                               {256, 128}, {512, 64}, {64, 96},  {96, 64},  {96, 128},  {128, 160}, {160, 128}, {192, 128},
                               {128, 192}, {128, 96}, {32, 256}, {256, 32}};
  std::set<std::pair<int, int>> known;
  for (const LtTile& tile : tiles) {
    known.emplace(tile.rows, tile.tokens);
  }
  const auto add_grid = [&](int row_step, int token_step, int limit) {
    for (int rows = row_step; rows <= 768; rows += row_step) {
      for (int tokens = token_step; tokens <= 768; tokens += token_step) {
        if (rows * tokens <= limit && known.emplace(rows, tokens).second) {
          tiles.push_back({rows, tokens});
        }
      }
    }
  };
  add_grid(8, 64, 49152);
  add_grid(64, 8, 65536);
  for (const LtTile large : {LtTile{256, 512}, LtTile{256, 1024}, LtTile{512, 512}, LtTile{512, 1024}}) {
    tiles.push_back(large);
  }
  return tiles;
}

const std::vector<LtTile>& tiles() {
  static const std::vector<LtTile> all = make_tiles();
  return all;
}

struct Cluster {
  std::int64_t id;
  LtTile shape;
};
// Those of up to four blocks: larger ones never won on an H200.
constexpr std::array kClusters = {Cluster{2, {1, 1}}, Cluster{3, {2, 1}}, Cluster{4, {4, 1}},
                                  Cluster{5, {1, 2}}, Cluster{6, {2, 2}}, Cluster{8, {1, 4}}};
constexpr std::array<std::int64_t, 4> kSearchedClusters = {2, 3, 4, 5};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The tile ids that an algorithm offers; those of which a token tile suits M: no more than twice the tokens there are, in
// whole multiples of 8.
std::vector<std::int64_t> tile_ids(const CublasLt& api, const cublasLtMatmulAlgo_t& algorithm, std::int64_t m) {
  std::size_t bytes = 0;
  if (api.algo_cap_get(&algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, nullptr, 0, &bytes) != CUBLAS_STATUS_SUCCESS || bytes == 0) {
    return {};
  }
  std::vector<std::uint32_t> offered(bytes / sizeof(std::uint32_t));
  if (api.algo_cap_get(&algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, offered.data(), bytes, &bytes) != CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  const std::int64_t tokens = ceil_div(m, 8) * 8;
  std::vector<std::int64_t> ids;
  for (const std::uint32_t id : offered) {
    const LtTile tile = lt_tile(id);
    if (tile.rows > 0 && (tile.tokens <= 8 || tile.tokens < 2 * tokens)) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::int64_t custom_option_max(const CublasLt& api, const cublasLtMatmulAlgo_t& algorithm) {
  std::int32_t largest = 0;
  std::size_t written = 0;
  const bool read = api.algo_cap_get(&algorithm, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &largest, sizeof(largest), &written) ==
                    CUBLAS_STATUS_SUCCESS;
  return read ? std::max(largest, 0) : 0;
}

}  // namespace

Expected<void> check_algorithm_config(const TileConfig& config) {
  for (const auto& [name, value] : config.values) {
    const auto known = std::ranges::find_if(kAttributes, [&](const Attribute& attribute) { return name == attribute.name; });
    if (known == kAttributes.end()) {
      return make_error(ErrorCode::invalid_argument, "cublaslt knows no config key '{}'", name);
    }
    const std::int64_t limit =
        known->bytes == 2 ? std::numeric_limits<std::uint16_t>::max() : std::numeric_limits<std::int32_t>::max();
    if (value < 0 || value > limit) {
      return make_error(ErrorCode::invalid_argument, "cublaslt: {}={}: want 0 to {}", name, value, limit);
    }
  }
  if (!config.values.empty() && !config.find(kAlgoId)) {
    return make_error(ErrorCode::invalid_argument, "cublaslt: a config without {} names no algorithm: {}", kAlgoId,
                      config.to_json());
  }
  return {};
}

Expected<cublasLtMatmulAlgo_t> make_algorithm(const LtDevice& device, const Product& product, const TileConfig& config) {
  if (auto valid = check_algorithm_config(config); !valid) {
    return valid.error();
  }
  const CublasLt& api = *device.api;
  cublasLtMatmulAlgo_t algorithm = {};
  const auto id = static_cast<int>(config.get(kAlgoId, 0));
  if (const cublasStatus_t status = api.algo_init(device.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3,
                                                  CUDA_R_8F_E4M3, product.out, product.out, id, &algorithm);
      status != CUBLAS_STATUS_SUCCESS) {
    return cublaslt_error(api, status, format("there is no algorithm {} for e4m3", id));
  }
  for (const Attribute& attribute : kAttributes) {
    const auto value = config.find(attribute.name);
    if (!value || attribute.id == CUBLASLT_ALGO_CONFIG_ID) {
      continue;
    }
    if (const cublasStatus_t status = set_attribute(api, algorithm, attribute, *value); status != CUBLAS_STATUS_SUCCESS) {
      return cublaslt_error(api, status, format("algorithm {} refuses {}={}", id, attribute.name, *value));
    }
  }
  return algorithm;
}

TileConfig config_of(const CublasLt& api, const cublasLtMatmulAlgo_t& algorithm) {
  TileConfig config;
  for (const Attribute& attribute : kAttributes) {
    config.set(attribute.name, get_attribute(api, algorithm, attribute));
  }
  return config;
}

LtTile lt_tile(std::int64_t tile_id) noexcept {
  return tile_id >= 0 && tile_id <= lt_tile_count() ? tiles()[static_cast<std::size_t>(tile_id)] : LtTile{};
}

std::int64_t lt_tile_count() noexcept { return static_cast<std::int64_t>(tiles().size()) - 1; }

LtTile lt_cluster(std::int64_t cluster_shape_id) noexcept {
  const auto found = std::ranges::find(kClusters, cluster_shape_id, &Cluster::id);
  return found == kClusters.end() ? LtTile{1, 1} : found->shape;
}

double predict_tile_us(int sms, std::int64_t m, std::int64_t n, std::int64_t k, LtTile tile, LtTile cluster) {
  // Of an H200: 4.3 TB/s from memory, about 60 bytes a nanosecond into one multiprocessor, 4096 e4m3 FMA a clock at 1.7 GHz.
  // Other devices only need the same order.
  constexpr double kMemoryBytesPerUs = 4.3e6;
  constexpr double kSmBytesPerUs = 60e3;
  constexpr double kSmFmaPerUs = 4096.0 * 1700.0;
  constexpr double kLaunchUs = 2.0;
  if (tile.rows <= 0 || tile.tokens <= 0) {
    tile = {128, 128};
  }
  const std::int64_t blocks_n = ceil_div(ceil_div(n, tile.rows), cluster.rows) * cluster.rows;
  const std::int64_t blocks_m = ceil_div(ceil_div(m, tile.tokens), cluster.tokens) * cluster.tokens;
  const std::int64_t waves = ceil_div(blocks_n * blocks_m, std::max(sms, 1));
  const double bytes = static_cast<double>(tile.rows + tile.tokens) * static_cast<double>(k);
  const double fma = static_cast<double>(tile.rows) * tile.tokens * static_cast<double>(k);
  const double blocks_us = static_cast<double>(waves) * std::max(bytes / kSmBytesPerUs, fma / kSmFmaPerUs);
  const double memory_us = static_cast<double>(n) * static_cast<double>(k) / kMemoryBytesPerUs;
  return kLaunchUs + std::max(blocks_us, memory_us) + 0.1 * std::min(blocks_us, memory_us);
}

std::vector<TileConfig> search_algorithms(const LtDevice& device, const Product& product, std::size_t limit) {
  constexpr int kHeuristicChoices = 16;
  const CublasLt& api = *device.api;
  const std::int64_t m = product.m;
  std::vector<TileConfig> result;
  const auto add = [&](const TileConfig& config) {
    if (std::ranges::find(result, config) == result.end()) {
      result.push_back(config);
    }
  };
  Product scalar = product;
  scalar.outer_scales = false;
  std::set<std::pair<std::int64_t, std::int64_t>> ids;  // Algorithm and stages: an algorithm accepts only its own.
  for (const Product& asked : {product, scalar}) {
    for (const auto& choice : heuristic_algorithms(device, asked, kHeuristicChoices)) {
      TileConfig config = config_of(api, choice.algo);
      ids.emplace(config.get(kAlgoId, 0), config.get(kStagesId, 0));
      if (check_algorithm(device, product, choice.algo)) {
        add(config);
      }
    }
  }

  struct Candidate {
    double predicted_us;
    TileConfig config;
  };
  std::vector<Candidate> candidates;
  for (const auto& [id, stages] : ids) {
    TileConfig config;
    config.set(kAlgoId, id);
    config.set(kStagesId, stages);
    auto algorithm = make_algorithm(device, product, config);
    if (!algorithm) {
      continue;
    }
    const std::int64_t options = custom_option_max(api, *algorithm);
    for (const std::int64_t tile : tile_ids(api, *algorithm, m)) {
      config.set(kTileId, tile);
      for (const std::int64_t cluster : kSearchedClusters) {
        config.set(kClusterShapeId, cluster);
        for (std::int64_t option = 0; option <= options; ++option) {
          config.set(kCustomOption, option);
          auto candidate = make_algorithm(device, product, config);
          if (!candidate || !check_algorithm(device, product, *candidate)) {
            continue;
          }
          candidates.push_back({predict_tile_us(product.max_sms > 0 ? product.max_sms : device.context->info.sm_count, m,
                                                product.n, product.k, lt_tile(tile), lt_cluster(cluster)),
                                config_of(api, *candidate)});
        }
      }
    }
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::predicted_us);
  for (const Candidate& candidate : candidates) {
    if (result.size() >= limit) {
      break;
    }
    add(candidate.config);
  }
  return result;
}

}  // namespace octile::cuda
