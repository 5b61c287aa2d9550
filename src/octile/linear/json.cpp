// SPDX-License-Identifier: Apache-2.0
// Explanations and devices to JSON, and the two public functions that print them on one line.
#include "octile/linear/json.h"

#include "octile/kernels/backend.h"

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

Json explanation_value(const Explanation& explanation) {
  return {
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
  };
}

Json devices_value() {
  Json list = Json::array();
  for (const Backend* backend : backends()) {
    for (const DeviceInfo& device : backend->devices()) {
      Json families = Json::array();
      for (const KernelFamily* family : backend->families()) {
        if (family->is_vendor()) {
          continue;  // Vendors are listed by library.
        }
        const auto available = family->available(device);
        families.push_back({{"name", family->name()},
                            {"available", available.has_value()},
                            {"reason", available ? std::string() : available.error().message}});
      }
      Json vendors = Json::array();
      for (const VendorStatus& vendor : backend->vendors(device)) {
        vendors.push_back({{"name", vendor.name},
                           {"version", vendor.version},
                           {"available", vendor.available},
                           {"reason", vendor.reason}});
      }
      list.push_back({{"id", device.id},
                      {"device_name", device.name},
                      {"kind", to_string(device.kind)},
                      {"arch", device.arch},
                      {"families", std::move(families)},
                      {"vendors", std::move(vendors)}});
    }
  }
  return list;
}

std::string to_json(const Explanation& explanation) { return on_one_line(explanation_value(explanation)); }

std::string devices_json() { return on_one_line(devices_value()); }

const char* version() noexcept { return OCTILE_VERSION; }

}  // namespace octile
