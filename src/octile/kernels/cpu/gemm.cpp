// SPDX-License-Identifier: Apache-2.0
// Cuts a call into units, runs their tiles, and checks what it is given.
#include "octile/kernels/cpu/gemm.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/activations.h"
#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/numa.h"
#include "octile/kernels/cpu/packed_weight.h"
#include "octile/kernels/cpu/row_values.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "octile/kernels/cpu/unit_queue.h"
#include "octile/quant/quantize.h"

#include <algorithm>

namespace octile::cpu {
namespace {

// Below this many elements one thread quantises sooner than another wakes (some 5 us).
constexpr std::int64_t kParallelQuantizeElements = 32768;

// One call in progress, shared by its threads.
struct Call {
  GemmPlan plan;
  const CpuPackedWeight* weight = nullptr;
  const LaunchArgs* args = nullptr;
  float* scales_x = nullptr;
  std::uint8_t* activations = nullptr;
  std::uint8_t* scratch = nullptr;  // [threads][plan.scratch_bytes()]
};

// A unit of work: rows times columns, all of K.
struct Unit {
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t group_begin = 0;
  std::int64_t group_end = 0;
};

Unit unit_at(const Call& call, std::int64_t index) noexcept {
  const Partition rows = call.plan.row_units();
  const std::int64_t groups = call.plan.config.block_n / kGroupColumns;
  const std::int64_t row_unit = index % rows.parts;
  const std::int64_t column_unit = index / rows.parts;
  return {rows.begin(row_unit), rows.size(row_unit), column_unit * groups,
          std::min((column_unit + 1) * groups, call.weight->groups())};
}

// Panels [panel_begin, panel_begin + panels) of one group: the columns of a tile.
struct Strip {
  std::int64_t group = 0;
  std::int64_t panel_begin = 0;
  int panels = 0;
  std::int64_t step_bytes = 0;
};

// Calls function(strip, panels of the unit before it) for each strip of a unit.
template <class Function>
void for_each_strip(const Call& call, const Unit& unit, const Function& function) {
  const std::int64_t widest = call.plan.config.micro_n / kPanelColumns;
  std::int64_t panels_before = 0;
  for (std::int64_t group = unit.group_begin; group < unit.group_end; ++group) {
    const std::int64_t panels = call.weight->panels_of_group(group);
    for (std::int64_t panel = 0; panel < panels; panel += widest) {
      const std::int64_t width = std::min(widest, panels - panel);
      function(Strip{group, panel, static_cast<int>(width), panels * kBlockBytes}, panels_before);
      panels_before += width;
    }
  }
}

// One pass over K of one strip.
struct Pass {
  std::int64_t k_begin = 0;
  std::int64_t k_count = 0;
  bool first = true;
  bool last = true;
};

const std::uint8_t* codes_at(const Call& call, const Strip& strip, std::int64_t k) noexcept {
  return call.weight->group(strip.group) + k / kStepK * strip.step_bytes + strip.panel_begin * kBlockBytes;
}

// Where the codes that a thread will want after those of this strip and pass begin, and how many lines they are.
struct Prefetch {
  const std::uint8_t* codes = nullptr;
  std::int64_t lines = 0;
};

struct StripWork {
  Strip strip;
  std::uint8_t* decoded = nullptr;
  float* partial = nullptr;
  Prefetch prefetch;
};

TileArgs tile_args(const Call& call, const Pass& pass, const StripWork& work) noexcept {
  const Strip& strip = work.strip;
  const std::int64_t column = strip.group * kGroupColumns + strip.panel_begin * kPanelColumns;
  TileArgs tile;
  tile.steps = pass.k_count / kStepK;
  tile.step_bytes = strip.step_bytes;
  tile.keep = work.decoded;
  tile.panels = strip.panels;
  tile.first_pass = pass.first;
  tile.last_pass = pass.last;
  tile.output.y_row_stride = call.args->y.row_stride;
  tile.output.dtype = call.args->y.dtype;
  tile.output.scales_w = call.weight->scales() + column;
  tile.output.bias = call.args->bias == nullptr ? nullptr : call.args->bias + column;
  tile.output.columns = std::min<std::int64_t>(call.plan.n - column, strip.panels * kPanelColumns);
  return tile;
}

TileKind kind_of_tile(Decode decode, std::int64_t tile, std::int64_t tiles) noexcept {
  if (decode == Decode::ahead) {
    return TileKind::decoded;
  }
  if (decode == Decode::in_registers || tiles == 1) {
    return TileKind::fused;
  }
  return tile == 0 ? TileKind::keeping : TileKind::decoded;
}

void run_strip(const Call& call, const Unit& unit, const Pass& pass, const StripWork& work) noexcept {
  const GemmPlan& plan = call.plan;
  const Engine& engine = *plan.engine;
  const MatrixView& y = call.args->y;
  const std::int64_t column = work.strip.group * kGroupColumns + work.strip.panel_begin * kPanelColumns;
  const std::uint8_t* codes = codes_at(call, work.strip, pass.k_begin);
  const Partition tiles = plan.row_tiles(unit.rows);
  TileArgs tile = tile_args(call, pass, work);
  std::int64_t lines_asked = 0;
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t rows = tiles.size(t);
    tile.rows = static_cast<int>(rows);
    const std::int64_t row = unit.row_begin + tiles.begin(t);
    const TileKind kind = kind_of_tile(plan.config.decode, t, tiles.parts);
    tile.activations = call.activations + (row * plan.padded_k + pass.k_begin * rows) * engine.value_bytes;
    tile.partial = work.partial + tiles.begin(t) * work.strip.panels * engine.partial_floats;
    tile.output.y = static_cast<std::uint8_t*>(y.data) + (row * y.row_stride + column) * size_of(y.dtype);
    tile.output.scales_x = call.scales_x + row;
    if (kind == TileKind::decoded) {
      tile.weights = work.decoded;
      // A line each step while there are lines to ask for; then the same line again, which costs next to nothing.
      tile.prefetch = work.prefetch.codes + lines_asked * kBlockBytes;
      tile.prefetch_bytes = lines_asked < work.prefetch.lines ? kBlockBytes : 0;
      lines_asked += tile.prefetch_bytes == 0 ? 0 : tile.steps;
    } else {
      tile.weights = codes;
      tile.prefetch_bytes = plan.config.prefetch_bytes;
    }
    engine.tile(kind, work.strip.panels, tile.rows)(tile);
  }
}

// `next_codes`: the first codes of this thread's next unit, or nullptr.
void run_unit(const Call& call, const Unit& unit, std::uint8_t* scratch, const std::uint8_t* next_codes) noexcept {
  const GemmPlan& plan = call.plan;
  auto* partial = reinterpret_cast<float*>(scratch + plan.decoded_bytes());
  if (plan.engine->begin_unit != nullptr) {
    plan.engine->begin_unit();
  }
  for (std::int64_t k = 0; k < plan.padded_k; k += plan.config.block_k) {
    const std::int64_t count = std::min(plan.config.block_k, plan.padded_k - k);
    const Pass pass = {k, count, k == 0, k + count == plan.padded_k};
    const auto decoded_of = [&](std::int64_t panels_before) {
      return scratch + panels_before * kPanelColumns * count * plan.engine->value_bytes;
    };
    if (plan.config.decode == Decode::ahead) {
      for_each_strip(call, unit, [&](const Strip& strip, std::int64_t panels_before) {
        plan.engine->decode(codes_at(call, strip, k), strip.step_bytes, strip.panels, count / kStepK,
                            plan.config.prefetch_bytes, decoded_of(panels_before));
      });
    }
    for_each_strip(call, unit, [&](const Strip& strip, std::int64_t panels_before) {
      StripWork work;
      work.strip = strip;
      work.decoded = decoded_of(panels_before);
      work.partial = partial + panels_before * plan.engine->partial_floats * unit.rows;
      const std::int64_t lines = count / kStepK * strip.panels;
      const std::uint8_t* next_pass = codes_at(call, strip, k + count);
      const std::uint8_t* next = !pass.last ? next_pass : next_codes;
      work.prefetch = {next, plan.config.prefetch_bytes > 0 && next != nullptr ? lines : 0};
      run_strip(call, unit, pass, work);
    });
  }
  if (plan.engine->end_unit != nullptr) {
    plan.engine->end_unit();
  }
}

class GemmKernel final : public Kernel {
 public:
  GemmKernel(const Engine& engine, const GemmConfig& config, const Problem& problem, int threads) noexcept
      : problem_(problem) {
    plan_.config = config;
    plan_.engine = &engine;
    plan_.n = problem.n;
    plan_.padded_k = round_up(problem.k, kPaddingK);
    plan_.threads = threads;
  }

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override { return plan_for(m).workspace_bytes(); }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    if (auto ok = check(weight, args); !ok) {
      return ok;
    }
    if (args.activation.x.rows == 0) {
      return {};
    }
    Call call;
    call.plan = plan_for(args.activation.x.rows);
    call.weight = static_cast<const CpuPackedWeight*>(&weight);
    call.args = &args;
    auto* workspace = static_cast<std::uint8_t*>(args.workspace);
    call.scales_x = reinterpret_cast<float*>(workspace);
    call.activations = workspace + call.plan.scale_bytes();
    call.scratch = call.activations + call.plan.activation_bytes();
    quantize(call);
    multiply(call);
    return {};
  }

 private:
  GemmPlan plan_for(std::int64_t m) const noexcept {
    GemmPlan plan = plan_;
    plan.m = m;
    return plan;
  }

  Expected<void> check(const PackedWeight& weight, const LaunchArgs& args) const {
    const Activation& activation = args.activation;
    if (weight.layout() != kCpuPackedLayout || weight.n() != problem_.n || weight.k() != problem_.k) {
      return make_error(ErrorCode::invalid_argument, "weight: want [{}, {}] in layout {}, got [{}, {}] in {}", problem_.n,
                        problem_.k, kCpuPackedLayout, weight.n(), weight.k(), weight.layout());
    }
    if (auto ok = check_activation(activation, problem_.k); !ok) {
      return ok;
    }
    if (auto ok = check_output_view(args.y, activation.x.rows, problem_.n, problem_.out_dtype); !ok) {
      return ok;
    }
    const std::int64_t wanted = workspace_bytes(activation.x.rows);
    if (activation.x.rows > 0 && (args.workspace_bytes < wanted || args.workspace == nullptr ||
                                  reinterpret_cast<std::uintptr_t>(args.workspace) % 64 != 0)) {
      return make_error(ErrorCode::invalid_argument, "workspace: want {} bytes at a multiple of 64, got {} bytes at {}",
                        wanted, args.workspace_bytes, args.workspace);
    }
    return {};
  }

  static void quantize(const Call& call) noexcept {
    const std::int64_t m = call.plan.m;
    const std::int64_t elements = m * call.plan.padded_k;
    const std::int64_t parts = elements < kParallelQuantizeElements ? 1 : std::min(call.plan.threads, m);
    const Partition rows = {m, parts};
    const auto work = [&](int part) {
      prepare_activations(call.plan, call.args->activation, rows.begin(part), rows.begin(part) + rows.size(part),
                          call.activations, call.scales_x);
    };
    if (parts == 1) {
      work(0);
    } else {
      ThreadPool::instance().run(static_cast<int>(parts), work);
    }
  }

  // Threads take the next unit as they finish one: on a machine that others use as well, equal shares would wait for the
  // slowest thread.
  static void multiply(const Call& call) noexcept {
    const Numa& machine = numa();
    const std::int64_t row_units = call.plan.row_units().parts;
    const std::int64_t units = row_units * call.plan.column_units();
    const std::int64_t groups_of_unit = call.plan.config.block_n / kGroupColumns;
    const Partition nodes = groups_of_nodes(call.weight->groups(), machine.nodes());
    // A unit belongs to the node of its first group.
    UnitQueue queue(machine.nodes(), [&](int node) {
      const std::int64_t group = node == machine.nodes() ? call.weight->groups() : nodes.begin(node);
      return std::min((group + groups_of_unit - 1) / groups_of_unit * row_units, units);
    });
    const auto work = [&](int part) {
      const int node = machine.node_of_this_thread();
      std::uint8_t* scratch = call.scratch + part * call.plan.scratch_bytes();
      // The next unit is taken one ahead, so that its first codes can be asked for.
      std::int64_t unit = queue.take(node);
      while (unit >= 0) {
        const std::int64_t following = queue.take(node);
        const std::uint8_t* next_codes = following >= 0 ? call.weight->group(unit_at(call, following).group_begin) : nullptr;
        run_unit(call, unit_at(call, unit), scratch, next_codes);
        unit = following;
      }
    };
    ThreadPool::instance().run(static_cast<int>(std::min(call.plan.threads, units)), work);
  }

  Problem problem_;
  GemmPlan plan_;
};

}  // namespace

std::unique_ptr<Kernel> make_gemm_kernel(const Engine& engine, const GemmConfig& config, const Problem& problem,
                                         int threads) {
  return std::make_unique<GemmKernel>(engine, config, problem, threads);
}

}  // namespace octile::cpu
