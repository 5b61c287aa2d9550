// SPDX-License-Identifier: Apache-2.0
// What the families of our own kernels have in common: a config is a tile, a tile is legal or not, a kernel is compiled from
// one source for it and quantises before it multiplies.
#pragma once

#include "octile/core/format.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/product_call.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/kernels/family.h"
#include "octile/kernels/known_devices.h"

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile::cuda {

// A call of one of our products: what check_product_call() checks, then the codes, then `multiply(weight, codes, stream)`. M
// = 0 enqueues nothing.
template <class Multiply>
Expected<void> quantise_and_multiply(std::string_view family, const DeviceContext& context, const Problem& problem,
                                     const QuantiseKernel& quantise, Pdl pdl, const PackedWeight& packed,
                                     const LaunchArgs& args, std::int64_t workspace_bytes, const Multiply& multiply,
                                     std::string_view layout = kRowMajor) {
  const auto weight = check_product_call(family, context, problem, packed, args, workspace_bytes, layout);
  if (!weight) {
    return weight.error();
  }
  if (args.activation.x.rows == 0) {
    return {};
  }
  const CurrentContext current(context);
  if (auto made = current.made(); !made) {
    return made.error();
  }
  auto* const stream = static_cast<CUstream>(args.stream);
  const auto codes = quantise.run(args.activation, args.workspace, stream, allowed_pdl(pdl, args) == Pdl::full);
  if (!codes) {
    return codes.error();
  }
  return multiply(**weight, *codes, stream);
}

// Traits::prepare of kernels that read through tensor maps: the driver's encoder of them, and the product compiled as
// `request` says with `shared_bytes` of dynamic shared memory.
template <class KernelOfTile, class Tile>
Expected<std::unique_ptr<Kernel>> prepare_with_maps(const DeviceContext& context, const Problem& problem, const Tile& tile,
                                                    QuantiseKernel quantise, const CompileRequest& request,
                                                    std::int64_t shared_bytes) {
  const auto encoder = tensor_map_encoder_for(context);
  if (!encoder) {
    return encoder.error();
  }
  if (CompileRecorder::active() != nullptr && hopper_layout(problem) == kSlab64) {
    // The weight needs it before the product does.
    if (auto noted = load_rows_to_slabs(context); !noted) {
      return noted.error();
    }
  }
  auto product = compile_and_load(context, request, static_cast<unsigned>(shared_bytes));
  if (!product) {
    return product.error();
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<KernelOfTile>(context, problem, tile, std::move(quantise), std::move(*product), *encoder));
}

// Traits::check_sm_limit of kernels that launch a block a tile: `blocks` of them stay on as many multiprocessors at most.
inline Expected<void> check_block_limit(std::string_view family, const Problem& problem, double blocks) {
  if (blocks > problem.max_sms) {
    return make_error(ErrorCode::unavailable,
                      "{} launches a block a tile, {:.0f} here, and cannot be held to {} multiprocessors", family, blocks,
                      problem.max_sms);
  }
  return {};
}

// Traits::available of kernels with wgmma, which is Hopper's alone.
template <const char* kName>
Expected<void> hopper_only(const DeviceInfo& device) {
  constexpr int kCapability = 90;
  if (device.kind != DeviceKind::cuda || compute_capability(device.arch) != kCapability) {
    return make_error(ErrorCode::unavailable, "{} needs a GPU of sm_{} (wgmma), this is {}", kName, kCapability,
                      device.arch);
  }
  return {};
}

// `Traits` names the family (kName, kSource), says whether it reads weights in slabs as well as row-major (kReadsSlabs), and
// of its `Tile`: available(device), parse(config), check(device, problem, tile), space(device, problem, m),
// check_sm_limit(problem, tile, max_m), heuristic(device, problem, m), predict_us(device, problem, m, tile) and
// prepare(context, problem, tile); to_config(tile) is found by the tile's type.
template <class Traits>
class TileFamily final : public KernelFamily {
 public:
  using Tile = typename Traits::Tile;

  std::string_view name() const noexcept override { return Traits::kName; }
  std::string source_hash() const override { return cuda::source_hash(Traits::kSource); }
  std::string_view layout() const noexcept override { return kRowMajor; }
  std::string_view layout_for(const Problem& problem) const noexcept override {
    return Traits::kReadsSlabs ? hopper_layout(problem) : kRowMajor;
  }

  Expected<void> available(const DeviceInfo& device) const override { return Traits::available(device); }

  Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const override {
    if (auto tile = legal_tile(device, problem, config); !tile) {
      return tile.error();
    }
    return {};
  }

  Expected<void> check_sm_limit(const Problem& problem, const TileConfig& config, std::int64_t max_m) const override {
    const auto tile = Traits::parse(config);
    return tile ? Traits::check_sm_limit(problem, *tile, max_m) : Expected<void>(tile.error());
  }

  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    std::vector<TileConfig> configs;
    for (const Tile& tile : Traits::space(device, problem, m)) {
      configs.push_back(to_config(tile));
    }
    return configs;
  }

  TileConfig heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    return to_config(Traits::heuristic(device, problem, m));
  }

  double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                    const TileConfig& config) const override {
    const auto tile = Traits::parse(config);
    return tile ? Traits::predict_us(device, problem, m, *tile) : std::numeric_limits<double>::infinity();
  }

  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                            std::int64_t /*max_m*/) const override {
    if (const auto tile = legal_tile(device, problem, config); !tile) {
      return tile.error();
    }
    const auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    return prepare_on(**context, problem, config);
  }
  // On a device that is open.
  Expected<std::unique_ptr<Kernel>> prepare_on(const DeviceContext& context, const Problem& problem,
                                               const TileConfig& config) const {
    const auto tile = legal_tile(context.info, problem, config);
    if (!tile) {
      return tile.error();
    }
    auto quantise = QuantiseKernel::prepare(context, problem.k);
    if (!quantise) {
      return quantise.error();
    }
    return Traits::prepare(context, problem, *tile, std::move(*quantise));
  }

 private:
  static Expected<Tile> legal_tile(const DeviceInfo& device, const Problem& problem, const TileConfig& config) {
    constexpr std::int64_t kMostK = std::numeric_limits<std::int32_t>::max() - 1024;  // The kernels count K in 32 bits.
    if (auto ok = Traits::available(device); !ok) {
      return ok.error();
    }
    if (problem.k >= kMostK) {
      return make_error(ErrorCode::invalid_argument, "{}: K = {}, want less than 2^31 - 1024", Traits::kName, problem.k);
    }
    if (Traits::kReadsSlabs && hopper_layout(problem) == kSlab64) {
      if (auto ok = check_slab64_shape(problem.n, problem.k); !ok) {
        return ok.error();
      }
    }
    auto tile = Traits::parse(config);
    if (!tile) {
      return tile;
    }
    if (auto ok = Traits::check(device, problem, *tile); !ok) {
      return ok.error();
    }
    return tile;
  }
};

}  // namespace octile::cuda
