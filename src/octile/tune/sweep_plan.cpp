// SPDX-License-Identifier: Apache-2.0
// From options to weights, M and files; see sweep_plan.h.
#include "octile/tune/sweep_plan.h"

#include "octile/core/format.h"
#include "octile/table/table_ops.h"
#include "octile/table/table_store.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/sweep.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

namespace octile {

namespace {

// --thorough: every M up to this, then steps of a tenth up to the largest of the default list.
constexpr std::int64_t kThoroughEveryM = 1024;

std::vector<std::int64_t> thorough_m_list(bool is_gpu) {
  std::vector<std::int64_t> result = default_m_list(is_gpu);
  const std::int64_t largest = std::max<std::int64_t>(result.back(), 2 * kThoroughEveryM);
  for (std::int64_t m = 1; m <= kThoroughEveryM; ++m) {
    result.push_back(m);
  }
  for (std::int64_t m = kThoroughEveryM; m <= largest; m += m / 10) {
    result.push_back(m);
  }
  return result;
}

// Measured with another version of a kernel of this build.
bool is_outdated(const TableEntry& entry, const Backend& backend) {
  const KernelFamily* family = find_family(backend, entry.kernel);
  return family != nullptr && ((!entry.kernel_source_hash.empty() && entry.kernel_source_hash != family->source_hash()) ||
                               (!entry.vendor_version.empty() && entry.vendor_version != family->version()));
}

// What is there must be of the same hard keys, else hours of measuring could not be written at the end.
Expected<void> check_existing_table(const SweepPlan& plan, const SweptWeight& weight) {
  // Where that cannot be told, reading says why.
  std::error_code unknown;
  if (std::filesystem::status(weight.path, unknown).type() == std::filesystem::file_type::not_found) {
    return {};
  }
  std::vector<Finding> findings;
  Expected<TileTable> current = read_table(weight.path, findings);
  if (!current) {
    return make_error(current.error().code, "{}; move it away, or tune into another directory", current.error().message);
  }
  if (drop_outdated(*current, *plan.device.backend); current->entries.empty()) {
    return {};  // Nothing of it can serve: it will be replaced, whatever its keys.
  }
  TileTable mine;
  mine.key = table_key_of(plan, weight);
  mine.file = "this run";
  if (Expected<TileTable> merged = merge_tables({*current, mine}); !merged) {
    return make_error(merged.error().code, "{}; tune into another directory", merged.error().message);
  }
  return {};
}

struct KnownDevice {
  Device device;
  HardKeys keys;
};

Expected<std::vector<KnownDevice>> known_devices(const std::vector<std::string>& ids, const RunOptions& options,
                                                 const DeviceFinder& find_device) {
  std::vector<KnownDevice> result;
  for (const std::string& id : ids) {
    if (std::ranges::count(ids, id) > 1) {
      return make_error(ErrorCode::invalid_argument, "devices: wanted each once, got {} several times", id);
    }
    Expected<Device> device = find_device(id);
    if (!device) {
      return std::move(device).error();
    }
    HardKeys keys = hard_keys_of_run(*device->backend, device->info, options);
    result.push_back({std::move(*device), std::move(keys)});
  }
  return result;
}

std::string difference(const KnownDevice& a, const KnownDevice& b) {
  return difference_of_keys(a.device.info.id, a.keys, b.device.info.id, b.keys);
}

std::string listed(const std::vector<std::int64_t>& ms) {
  std::string text;
  for (const std::int64_t m : ms) {
    text += format(" {}", m);
  }
  return text;
}

// Ascending: the M that are asked for of one shape. `m_list` where the options name no uses.
std::vector<std::int64_t> ms_of(const TuneShape& shape, const std::vector<TuneUse>& uses,
                                const std::vector<std::int64_t>& m_list) {
  if (uses.empty()) {
    return m_list;
  }
  std::set<std::int64_t> ms;
  for (const TuneUse& use : uses) {
    if (use.n == shape.n && use.k == shape.k) {
      ms.insert(use.m);
    }
  }
  return {ms.begin(), ms.end()};
}

Expected<void> check_uses(const TuneOptions& options) {
  for (const TuneUse& use : options.uses) {
    const auto is_its = [&](const TuneShape& shape) { return shape.n == use.n && shape.k == use.k; };
    if (use.m < 1 || !std::isfinite(use.calls) || use.calls <= 0 || std::ranges::none_of(options.shapes, is_its)) {
      return make_error(ErrorCode::invalid_argument,
                        "uses: wanted m >= 1, calls > 0 and a shape of each n and k, got n = {}, k = {}, m = {}, calls = {}",
                        use.n, use.k, use.m, use.calls);
    }
  }
  for (const TuneShape& shape : options.shapes) {
    if (!options.uses.empty() && ms_of(shape, options.uses, {}).empty()) {
      return make_error(ErrorCode::invalid_argument, "uses: wanted one of shape {}, {}x{}, got none", shape.name, shape.n,
                        shape.k);
    }
  }
  return {};
}

Expected<void> add_weights(const TuneOptions& options, const std::vector<std::int64_t>& m_list, SweepPlan& plan) {
  const DeviceInfo& device = plan.device.info;
  for (const TuneShape& shape : options.shapes) {
    const auto same = [&](const SweptWeight& weight) { return weight.shape.n == shape.n && weight.shape.k == shape.k; };
    const auto found = std::find_if(plan.weights.begin(), plan.weights.end(), same);
    plan.weight_of_shape.push_back(static_cast<std::size_t>(found - plan.weights.begin()));
    if (found != plan.weights.end()) {
      continue;
    }
    const Problem problem = problem_of(options, shape);
    if (Expected<void> readable = check_weight_layout(*plan.device.backend, device, problem); !readable) {
      return make_error(readable.error().code, "{}x{}: {}", shape.n, shape.k, readable.error().message);
    }
    SweptWeight weight{shape, plan_without_table(*plan.device.backend, device, problem), {}, {}, {}, {}, {}, {}};
    weight.m_list = ms_of(shape, options.uses, m_list);
    weight.known = ms_of(shape, options.known, {});
    const Choice own = weight.plan.heuristic_choice(1, {}, {});
    const Choice baseline = weight.plan.baseline_choice(1, {});
    const KernelFamily* family = own.family != nullptr ? own.family : baseline.family;
    if (family == nullptr) {
      return make_error(ErrorCode::unavailable, "no kernel family serves {}: {}", device.id, baseline.reason);
    }
    weight.layout = family->layout_for(problem);
    const std::string name = table_file_name(table_key_of(plan, weight), false);
    const std::string nested = format("{}/{}/{}", plan.directory, device.name, name);
    std::error_code unknown;
    const bool is_nested = std::filesystem::status(nested, unknown).type() != std::filesystem::file_type::not_found;
    weight.path = is_nested ? nested : format("{}/{}", plan.directory, name);
    if (Expected<void> fits = check_existing_table(plan, weight); !fits) {
      return fits;
    }
    plan.weights.push_back(std::move(weight));
  }
  return {};
}

}  // namespace

const TunePoint* SweptWeight::find_point(std::int64_t m) const {
  const auto found = std::find_if(points.begin(), points.end(), [&](const TunePoint& point) { return point.m == m; });
  return found == points.end() ? nullptr : &*found;
}

std::vector<std::vector<TunePoint>> SweptWeight::stretches() const {
  std::vector<TunePoint> sorted = points;
  std::stable_sort(sorted.begin(), sorted.end(), [](const TunePoint& a, const TunePoint& b) { return a.m < b.m; });
  // Neither of this shard nor measured here all the same.
  std::set<std::int64_t> elsewhere(known.begin(), known.end());
  elsewhere.insert(m_list.begin(), m_list.end());
  for (const std::int64_t m : share.own) {
    elsewhere.erase(m);
  }
  for (const TunePoint& point : points) {
    elsewhere.erase(point.m);
  }
  std::vector<std::vector<TunePoint>> result;
  std::int64_t last_m = 0;
  for (TunePoint& point : sorted) {
    const auto between = elsewhere.upper_bound(last_m);
    if (result.empty() || (between != elsewhere.end() && *between < point.m)) {
      result.emplace_back();
    }
    last_m = point.m;
    result.back().push_back(std::move(point));
  }
  return result;
}

std::string SweepPlan::request_text(const TuneOptions& options) const {
  std::string text;
  for (std::size_t s = 0; s < options.shapes.size(); ++s) {
    const TuneShape& shape = options.shapes[s];
    text += format("{} {}x{}, ", shape.name, shape.n, shape.k);
    if (!options.uses.empty()) {
      text += format("M{}, ", listed(weights[weight_of_shape[s]].m_list));
    }
  }
  if (options.uses.empty()) {
    text += format("M{}", listed(weights.front().m_list));
  }
  return options.shard.is_whole() ? text : format("{}, shard {}", text, options.shard.to_string());
}

Expected<SweepPlan> make_sweep_plan(const TuneOptions& options, const DeviceFinder& find_device) {
  Expected<void> valid = check_run_options(options);
  if (valid) {
    valid = check_shapes(options.shapes);
  }
  if (valid) {
    valid = check_uses(options);
  }
  if (valid) {
    valid = check_shard(options.shard);
  }
  if (!valid) {
    return std::move(valid).error();
  }
  SweepPlan plan;
  plan.devices = options.devices.empty() ? std::vector<std::string>{options.device} : options.devices;
  Expected<std::vector<KnownDevice>> devices = known_devices(plan.devices, options, find_device);
  if (!devices) {
    return std::move(devices).error();
  }
  for (const KnownDevice& other : *devices) {
    if (const std::string why = difference(devices->front(), other); !why.empty()) {
      return make_error(ErrorCode::invalid_argument, "devices: {}; what is measured on one is not true of the other", why);
    }
  }
  plan.device = std::move(devices->front().device);
  if (Expected<void> limit = check_max_sms(options, plan.device.info); !limit) {
    return std::move(limit).error();
  }
  Expected<std::vector<std::int64_t>> m_list = checked_m_list(
      options.m_list.empty() && options.thorough ? thorough_m_list(plan.is_gpu()) : options.m_list, plan.is_gpu());
  if (!m_list) {
    return std::move(m_list).error();
  }
  plan.directory = options.tables.empty() ? user_table_directory() : options.tables;
  if (plan.directory.find(':') != std::string::npos) {
    return make_error(ErrorCode::invalid_argument, "tables: wanted one directory to write to, got \"{}\"", plan.directory);
  }
  if (Expected<void> added = add_weights(options, *m_list, plan); !added) {
    return std::move(added).error();
  }
  std::vector<SharedWeight> shared;
  for (const SweptWeight& weight : plan.weights) {
    shared.push_back({weight.shape.n, weight.shape.k, weight.m_list});
  }
  const std::vector<WeightShare> shares = share_of(shared, plan.device.info, options.shard);
  for (std::size_t w = 0; w < plan.weights.size(); ++w) {
    plan.weights[w].share = shares[w];
  }
  return plan;
}

Expected<DeviceGroups> group_devices_with(const std::vector<std::string>& devices, const RunOptions& options,
                                          const RunHooks& hooks) {
  Expected<std::vector<KnownDevice>> known = known_devices(devices, options, hooks.find_device);
  if (!known) {
    return std::move(known).error();
  }
  DeviceGroups groups;
  std::vector<const KnownDevice*> first_of_group;
  for (const KnownDevice& device : *known) {
    const auto found =
        std::ranges::find_if(first_of_group, [&](const KnownDevice* first) { return difference(*first, device).empty(); });
    if (found == first_of_group.end()) {
      first_of_group.push_back(&device);
      groups.push_back({device.device.info.id});
    } else {
      groups[static_cast<std::size_t>(found - first_of_group.begin())].push_back(device.device.info.id);
    }
  }
  return groups;
}

TableKey table_key_of(const SweepPlan& plan, const SweptWeight& weight) {
  return table_key(plan.device.info, weight.plan.problem(), weight.layout);
}

void drop_outdated(TileTable& table, const Backend& backend) {
  std::erase_if(table.entries, [&](const TableEntry& entry) { return is_outdated(entry, backend); });
}

}  // namespace octile
