// SPDX-License-Identifier: Apache-2.0
// Reading and checking configs, and the sizes that follow from them.
#include "octile/kernels/cpu/gemm_config.h"

#include "octile/core/format.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace octile::cpu {
namespace {

constexpr std::int64_t kAlignment = 64;

struct Key {
  const char* name;
  std::int64_t low, high, multiple;
};
constexpr Key kMicroM = {"MICRO_M", 1, 32, 1};
constexpr Key kMicroN = {"MICRO_N", kPanelColumns, kGroupColumns, kPanelColumns};
constexpr Key kBlockM = {"BLOCK_M", 1, 65536, 1};
constexpr Key kBlockN = {"BLOCK_N", kGroupColumns, 4096, kGroupColumns};
constexpr Key kBlockK = {"BLOCK_K", kPaddingK, 65536, kPaddingK};
constexpr Key kDecode = {"DECODE", 0, 2, 1};
constexpr Key kPrefetch = {"PREFETCH", 0, 65536, 64};
constexpr Key kDot = {"DOT", 0, 1, 1};
constexpr std::array kKeys = {kMicroM, kMicroN, kBlockM, kBlockN, kBlockK, kDecode, kPrefetch, kDot};

Expected<void> check_value(const Key& key, std::int64_t value) {
  if (value < key.low || value > key.high || value % key.multiple != 0) {
    const std::string multiple = key.multiple == 1 ? "" : octile::format(", a multiple of {}", key.multiple);
    return make_error(ErrorCode::invalid_argument, "{}: want {} to {}{}, got {}", key.name, key.low, key.high, multiple,
                      value);
  }
  return {};
}

}  // namespace

TileConfig to_tile_config(const GemmConfig& config, bool has_dot) {
  TileConfig result;
  result.set(kMicroM.name, config.micro_m);
  result.set(kMicroN.name, config.micro_n);
  result.set(kBlockM.name, config.block_m);
  result.set(kBlockN.name, config.block_n);
  result.set(kBlockK.name, config.block_k);
  result.set(kDecode.name, static_cast<std::int64_t>(config.decode));
  result.set(kPrefetch.name, config.prefetch_bytes);
  if (has_dot) {
    result.set(kDot.name, config.dot ? 1 : 0);
  }
  return result;
}

Expected<GemmConfig> parse_gemm_config(const TileConfig& config, bool has_dot) {
  const std::size_t key_count = kKeys.size() - (has_dot ? 0 : 1);
  for (const auto& [name, value] : config.values) {
    const auto* end = kKeys.begin() + key_count;
    const auto* key = std::find_if(kKeys.begin(), end, [&name](const Key& k) { return name == k.name; });
    if (key == end) {
      return make_error(ErrorCode::invalid_argument,
                        "{} = {}: unknown key; known are MICRO_M, MICRO_N, BLOCK_M, BLOCK_N, BLOCK_K, DECODE, PREFETCH{}",
                        name, value, has_dot ? ", DOT" : "");
    }
    if (auto ok = check_value(*key, value); !ok) {
      return ok.error();
    }
  }
  for (std::size_t i = 0; i < key_count; ++i) {
    if (!config.find(kKeys[i].name)) {
      return make_error(ErrorCode::invalid_argument, "{}: missing", kKeys[i].name);
    }
  }
  GemmConfig result;
  result.micro_m = static_cast<int>(config.get(kMicroM.name, 0));
  result.micro_n = static_cast<int>(config.get(kMicroN.name, 0));
  result.block_m = config.get(kBlockM.name, 0);
  result.block_n = config.get(kBlockN.name, 0);
  result.block_k = config.get(kBlockK.name, 0);
  result.decode = static_cast<Decode>(config.get(kDecode.name, 0));
  result.prefetch_bytes = config.get(kPrefetch.name, 0);
  result.dot = config.get(kDot.name, 0) != 0;
  return result;
}

Expected<void> check_for_engine(const GemmConfig& config, const Engine& engine, std::int64_t n, std::int64_t k) {
  const auto panels = static_cast<std::size_t>(config.micro_n / kPanelColumns);
  const int max_rows = engine.max_rows[panels - 1];
  if (max_rows == 0) {
    return make_error(ErrorCode::invalid_argument, "MICRO_N: the {} engine has no tiles of {} columns", engine.name,
                      config.micro_n);
  }
  if (config.micro_m > max_rows) {
    return make_error(ErrorCode::invalid_argument, "MICRO_M: want 1 to {} with MICRO_N = {} on the {} engine, got {}",
                      max_rows, config.micro_n, engine.name, config.micro_m);
  }
  GemmPlan largest;
  largest.config = config;
  largest.engine = &engine;
  largest.m = config.block_m;
  largest.n = n;
  largest.padded_k = round_up(k, kPaddingK);
  if (largest.scratch_bytes() > kLargestScratchBytes) {
    return make_error(ErrorCode::invalid_argument,
                      "BLOCK_M = {}, BLOCK_N = {}, BLOCK_K = {}: want at most {} bytes of scratch a thread, got {}",
                      config.block_m, config.block_n, config.block_k, kLargestScratchBytes, largest.scratch_bytes());
  }
  return {};
}

std::int64_t GemmPlan::scale_bytes() const noexcept {
  return round_up(m * static_cast<std::int64_t>(sizeof(float)), kAlignment);
}

std::int64_t GemmPlan::activation_bytes() const noexcept { return round_up(m * padded_k * engine->value_bytes, kAlignment); }

std::int64_t GemmPlan::decoded_bytes() const noexcept {
  const std::int64_t columns = std::min(config.block_n, round_up(n, kPanelColumns));
  return config.decode == Decode::in_registers ? 0 : columns * std::min(config.block_k, padded_k) * engine->value_bytes;
}

std::int64_t GemmPlan::partial_bytes() const noexcept {
  if (passes() == 1 || m == 0) {
    return 0;
  }
  const std::int64_t panels = std::min(config.block_n, round_up(n, kPanelColumns)) / kPanelColumns;
  const std::int64_t floats = row_units().size(0) * panels * engine->partial_floats;
  return round_up(floats * static_cast<std::int64_t>(sizeof(float)), kAlignment);
}

GemmPlan::RowPlace GemmPlan::place_of_row(std::int64_t row) const noexcept {
  const Partition units = row_units();
  const std::int64_t unit = units.part_of(row);
  const Partition tiles = row_tiles(units.size(unit));
  const std::int64_t in_unit = row - units.begin(unit);
  const std::int64_t tile = tiles.part_of(in_unit);
  const std::int64_t first_row = units.begin(unit) + tiles.begin(tile);
  return {first_row * padded_k * engine->value_bytes, row - first_row, tiles.size(tile)};
}

}  // namespace octile::cpu
