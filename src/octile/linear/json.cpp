// SPDX-License-Identifier: Apache-2.0
// Explanations and devices as JSON on one line, with the fields of docs/guide.md, "Machine-readable output", in their order.
#include "octile/kernels/describe.h"

#include <octile/octile.hpp>

#include <nlohmann/json.hpp>

namespace octile {

namespace {

using Json = nlohmann::ordered_json;

// Names and reasons may hold bytes that are no UTF-8 (file names do): they become U+FFFD rather than an exception.
std::string on_one_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json parsed(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(nullptr) : value;
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  return on_one_line({
      {"device_name", explanation.device_name},
      {"n", explanation.n},
      {"k", explanation.k},
      {"m", explanation.m},
      {"choice", explanation.choice},
      {"kernel", explanation.kernel},
      {"config", parsed(explanation.config)},
      {"table_file", explanation.table_file},
      {"table_key", explanation.table_key},
      {"reason", explanation.reason},
      {"measured", parsed(explanation.measured)},
      {"stale", explanation.stale},
      {"bytes", explanation.bytes},
  });
}

std::string devices_json() {
  Json list = Json::array();
  for (const DeviceReport& device : describe_devices()) {
    Json families = Json::array();
    for (const FamilyReport& family : device.families) {
      families.push_back({{"name", family.name}, {"available", family.available}, {"reason", family.reason}});
    }
    Json vendors = Json::array();
    for (const VendorStatus& vendor : device.vendors) {
      vendors.push_back(
          {{"name", vendor.name}, {"version", vendor.version}, {"available", vendor.available}, {"reason", vendor.reason}});
    }
    list.push_back({{"id", device.id},
                    {"device_name", device.device_name},
                    {"kind", device.kind},
                    {"arch", device.arch},
                    {"families", std::move(families)},
                    {"vendors", std::move(vendors)},
                    {"overhead_bytes", device.overhead_bytes ? Json(*device.overhead_bytes) : Json(nullptr)}});
  }
  return on_one_line(list);
}

const char* version() noexcept { return OCTILE_VERSION; }

}  // namespace octile
