// SPDX-License-Identifier: Apache-2.0
// Who has which device; see host_devices.h.
#include "octile/tune/host_devices.h"

#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/tune/protocol.h"
#include "octile/tune/sweep.h"
#include "octile/tune/worker_host.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

namespace octile {

using nlohmann::json;

namespace {

// A rank may take so long to list its devices: the first call of a GPU's driver takes seconds.
constexpr std::chrono::seconds kListingLimit{120};

json to_json(const HostDevice& device) {
  return {{"id", device.id}, {"host", device.host}, {"identity", device.identity}, {"keys", device.keys}};
}

HostDevice from_json(const json& value, int rank) {
  HostDevice device;
  device.rank = rank;
  device.id = json_get(value, "id", std::string());
  device.host = json_get(value, "host", std::string());
  device.identity = json_get(value, "identity", std::string());
  const json keys = value.value("keys", json::object());
  for (const auto& [name, key] : keys.items()) {
    device.keys[name] = key.is_string() ? key.get<std::string>() : key.dump();
  }
  return device;
}

// Every other rank's devices, by rank. Errors name the rank.
Expected<std::vector<HostDevice>> receive_devices(const Postbox& postbox) {
  std::set<int> waiting;
  for (int rank = 1; rank < postbox.size; ++rank) {
    waiting.insert(rank);
  }
  std::vector<HostDevice> devices;
  const auto end = std::chrono::steady_clock::now() + kListingLimit;
  while (!waiting.empty()) {
    if (std::chrono::steady_clock::now() > end) {
      return make_error(ErrorCode::failed, "rank {} has not said in {} s which devices it has", *waiting.begin(),
                        kListingLimit.count());
    }
    const Expected<std::vector<Letter>> letters = postbox.receive();
    if (!letters) {
      return letters.error();
    }
    for (const Letter& letter : *letters) {
      const Expected<json> message = parse_line(letter.text);
      if (!message) {
        return make_error(ErrorCode::failed, "rank {}: {}", letter.from, message.error().message);
      }
      if (message->contains("error")) {
        return Error{static_cast<ErrorCode>(json_get(*message, "code", static_cast<int>(ErrorCode::failed))),
                     format("rank {} on {}: {}", letter.from, json_get(*message, "host", std::string()),
                            json_get(*message, "error", std::string()))};
      }
      if (message->contains("devices")) {
        for (const json& device : (*message)["devices"]) {
          devices.push_back(from_json(device, letter.from));
        }
        waiting.erase(letter.from);
      }
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(postbox.poll_interval_s));
  }
  return devices;
}

}  // namespace

std::string host_name() {
  if (const Expected<std::string> wanted = env::get_text("OCTILE_MPI_HOST"); wanted && !wanted->empty()) {
    return *wanted;
  }
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

Expected<std::vector<HostDevice>> devices_of_host(const std::vector<std::string>& ids, const std::string& host, int rank,
                                                  const RunOptions& options, const RunHooks& hooks) {
  std::vector<HostDevice> result;
  for (const std::string& id : ids) {
    if (std::ranges::count(ids, id) > 1) {
      return make_error(ErrorCode::invalid_argument, "devices: wanted each once, got {} several times", id);
    }
    const Expected<Device> device = hooks.find_device(id);
    if (!device) {
      return device.error();
    }
    HostDevice here{rank, host, id, {}, {}, hard_keys_of_run(*device->backend, device->info, options)};
    here.identity = device->info.uuid.empty() ? format("{}/{}", host, id) : device->info.uuid;
    result.push_back(std::move(here));
  }
  return result;
}

std::vector<HostDevice> each_once(std::vector<HostDevice> seen) {
  std::ranges::stable_sort(seen, {}, &HostDevice::rank);
  std::vector<HostDevice> result;
  std::set<std::string> identities;
  std::set<std::string> names;
  for (HostDevice& device : seen) {
    if (!identities.insert(device.identity).second) {
      continue;
    }
    device.name = device.rank == 0 ? device.id : format("{}/{}", device.host, device.id);
    if (!names.insert(device.name).second) {
      // A scheduler that shows each rank of a host one GPU only calls all of them cuda:0.
      device.name += format("#{}", device.rank);
      names.insert(device.name);
    }
    result.push_back(std::move(device));
  }
  return result;
}

Expected<DeviceGroups> group_by_keys(const std::vector<HostDevice>& devices) {
  DeviceGroups groups;
  std::vector<const HostDevice*> first_of_group;
  for (const HostDevice& device : devices) {
    const auto found = std::ranges::find_if(first_of_group, [&](const HostDevice* first) {
      return difference_of_keys(first->name, first->keys, device.name, device.keys).empty();
    });
    if (found != first_of_group.end()) {
      groups[static_cast<std::size_t>(found - first_of_group.begin())].push_back(device.name);
    } else if (device.rank == 0) {
      first_of_group.push_back(&device);
      groups.push_back({device.name});
    } else {
      const HostDevice& nearest = devices.front();
      return make_error(ErrorCode::invalid_argument,
                        "devices: rank 0 has none like {}: {}; what is measured on one is not true of the other: leave that "
                        "host out, or name devices that are alike by --devices",
                        device.name, difference_of_keys(nearest.name, nearest.keys, device.name, device.keys));
    }
  }
  return groups;
}

HostedRun::HostedRun(Postbox postbox, RunHooks hooks, std::vector<std::string> worker_command,
                     std::vector<HostDevice> devices, DeviceGroups groups)
    : hooks_(std::move(hooks)),
      worker_command_(std::move(worker_command)),
      ranks_(postbox.size),
      groups_(std::move(groups)),
      workers_(std::move(postbox)) {
  for (HostDevice& device : devices) {
    devices_[device.name] = std::move(device);
  }
}

Expected<std::unique_ptr<HostedRun>> HostedRun::open(Postbox postbox, const std::vector<std::string>& ids,
                                                     const RunOptions& options, const RunHooks& hooks) {
  Expected<std::vector<HostDevice>> seen = devices_of_host(ids, host_name(), 0, options, hooks);
  if (!seen) {
    return seen.error();
  }
  const Expected<std::vector<HostDevice>> others = receive_devices(postbox);
  if (!others) {
    return others.error();
  }
  seen->insert(seen->end(), others->begin(), others->end());
  std::vector<HostDevice> devices = each_once(*std::move(seen));
  Expected<DeviceGroups> groups = group_by_keys(devices);
  if (!groups) {
    return groups.error();
  }
  return std::unique_ptr<HostedRun>(
      new HostedRun(std::move(postbox), hooks, options.worker_command, std::move(devices), std::move(*groups)));
}

RunHooks HostedRun::hooks() {
  RunHooks hooks = hooks_;
  hooks.find_device = [this](std::string_view id) -> Expected<Device> {
    const auto found = devices_.find(std::string(id));
    if (found == devices_.end() || found->second.rank == 0) {
      return hooks_.find_device(id);
    }
    // It is like the first of its group, which is here.
    for (const std::vector<std::string>& group : groups_) {
      if (std::ranges::find(group, found->first) != group.end()) {
        Expected<Device> device = hooks_.find_device(group.front());
        if (device) {
          device->info.id = id;
        }
        return device;
      }
    }
    return make_error(ErrorCode::unavailable, "no device {} in this run", id);
  };
  hooks.place = [this](const std::string& name) {
    const auto found = devices_.find(name);
    if (found == devices_.end() || found->second.rank == 0) {
      return WorkerPlace{launcher_here(worker_command_), name};
    }
    return WorkerPlace{workers_.launcher(found->second.rank, found->second.id), found->second.id};
  };
  return hooks;
}

std::string HostedRun::description() const {
  std::set<std::string> hosts;
  std::set<int> used{0};
  for (const auto& [name, device] : devices_) {
    hosts.insert(device.host);
    used.insert(device.rank);
  }
  const auto counted = [](std::size_t count, const char* what) {
    return format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string text = format("{} on {}", counted(devices_.size(), "device"), counted(hosts.size(), "host"));
  for (int rank = 1; rank < ranks_; ++rank) {
    if (!used.contains(rank)) {
      text += format("; rank {} has none that another does not drive", rank);
    }
  }
  return text;
}

Expected<void> serve_devices(const Postbox& postbox, const std::vector<std::string>& ids, const RunOptions& options,
                             const RunHooks& hooks) {
  const std::string host = host_name();
  const Expected<std::vector<HostDevice>> devices = devices_of_host(ids, host, postbox.rank, options, hooks);
  json message;
  if (devices) {
    message["devices"] = json::array();
    for (const HostDevice& device : *devices) {
      message["devices"].push_back(to_json(device));
    }
  } else {
    message = {{"error", devices.error().message}, {"code", static_cast<int>(devices.error().code)}, {"host", host}};
  }
  if (Expected<void> sent = postbox.send(0, message.dump(-1, ' ', false, json::error_handler_t::replace)); !sent) {
    return sent;
  }
  return serve_workers(postbox, options.worker_command);
}

}  // namespace octile
