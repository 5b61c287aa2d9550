// SPDX-License-Identifier: Apache-2.0
// What a sweep measures and where its tables go, settled before anything runs.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/backend.h"
#include "octile/linear/choose.h"
#include "octile/table/tile_table.h"
#include "octile/tune/shard.h"
#include "octile/tune/tune.h"
#include "octile/tune/worker.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace octile {

// One weight of a sweep; shapes of equal n and k share it.
struct SweptWeight {
  TuneShape shape;
  Plan plan;
  std::string layout;                // Of our families.
  std::string path;                  // Of its table.
  std::vector<std::int64_t> m_list;  // Of the whole request, ascending.
  std::vector<std::int64_t> known;   // Of TuneOptions::known, ascending.
  WeightShare share;
  std::vector<TunePoint> points;  // Measured, resumed or failed; in order of measurement.

  const TunePoint* find_point(std::int64_t m) const;
  // The points, M ascending, in stretches between which other shards measure or something else is known: no interval and no
  // border may reach from one to the next.
  std::vector<std::vector<TunePoint>> stretches() const;
};

struct SweepPlan {
  Device device;                     // The first of them: what the tables say.
  std::vector<std::string> devices;  // Ids; of equal hard keys.
  std::string directory;
  std::vector<SweptWeight> weights;
  std::vector<std::size_t> weight_of_shape;  // For each of TuneOptions::shapes.

  bool is_gpu() const noexcept { return device.info.kind == DeviceKind::cuda; }
  // The request as text, the same for the same shapes, M and shard.
  std::string request_text(const TuneOptions& options) const;
};

// Errors: those of the options, of the device, and of tables in the directory that the results could not be merged into.
Expected<SweepPlan> make_sweep_plan(const TuneOptions& options, const DeviceFinder& find_device);

// The key of a weight's table.
TableKey table_key_of(const SweepPlan& plan, const SweptWeight& weight);
// Leaves out what was measured with another version of a kernel of this build: it cannot serve any more.
void drop_outdated(TileTable& table, const Backend& backend);

}  // namespace octile
