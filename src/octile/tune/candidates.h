// SPDX-License-Identifier: Apache-2.0
// Which configs stand for election at one M: the incumbents, and of each family's space what the cost model thinks best.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/linear/choose.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace octile {

struct Candidate {
  const KernelFamily* family = nullptr;
  TileConfig config;
  double predicted_us = 0;

  // "avx512 {"rows": 4}": for messages, and equal for equal candidates.
  std::string to_string() const;
};
bool operator==(const Candidate& a, const Candidate& b) noexcept;

struct Field {
  std::optional<Candidate> baseline;   // The vendor's own choice; nullopt where no vendor serves.
  std::optional<Candidate> heuristic;  // What the dispatcher would run of ours without a table.
  std::vector<Candidate> challengers;  // Neither of these: the best of each family in turn.
  // The weight lies in a layout that only our families read: baseline and vendors are there to compare with, and cannot
  // serve.
  bool own_only = false;
};

struct FieldLimits {
  std::size_t challengers = 16;  // Of each family of ours.
  std::size_t vendor_challengers =
      24;                       // Of a vendor: no model of ours tells options of one tile apart, and none is compiled.
  std::size_t vendor_head = 6;  // So many of a vendor's space stand whatever the cost model says of them.
  // Challengers predicted to take longer than this times the best prediction are not tried, except that the best of every
  // family is, up to family_slack.
  double slack = 2.0;
  double family_slack = 4.0;
};

// `plan` is one without a table. `left_out` holds to_string() of candidates that failed before.
Field make_field(const Backend& backend, const Plan& plan, std::int64_t m, const FieldLimits& limits,
                 const std::set<std::string>& left_out);

}  // namespace octile
