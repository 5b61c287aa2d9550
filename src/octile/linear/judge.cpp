// SPDX-License-Identifier: Apache-2.0
// Judging tables and entries.
#include "octile/linear/judge.h"

#include "octile/core/format.h"
#include "octile/kernels/known_devices.h"
#include "octile/table/field_format.h"

#include <octile/octile.hpp>

#include <algorithm>
#include <string_view>

namespace octile {

namespace {

// FP8 matrix instructions begin with Ada.
constexpr int kFirstFp8Capability = 89;

// "x differs" in one form for all hard keys.
template <class T>
std::string difference(std::string_view key, const T& in_table, const T& wanted) {
  return format("{}: the table has {}, here it is {}", key, in_table, wanted);
}

}  // namespace

const char* to_string(ChoiceKind kind) noexcept {
  switch (kind) {
    case ChoiceKind::tile:
      return "tile";
    case ChoiceKind::vendor:
      return "vendor";
    case ChoiceKind::baseline:
      return "baseline";
    case ChoiceKind::heuristic:
      return "heuristic";
  }
  return "unknown";
}

Verdict Judge::verdict(const TableEntry& entry) const {
  Verdict verdict;
  if (!entry.left_out.empty()) {
    verdict.skipped = format("left out when the file was read: {}", entry.left_out);
    return verdict;
  }
  if (entry.kernel == kBaselineKernel) {
    verdict.kind = ChoiceKind::baseline;
  } else {
    verdict.family = backend == nullptr ? find_family(entry.kernel) : find_family(*backend, entry.kernel);
    if (verdict.family != nullptr) {
      verdict.kind = verdict.family->is_vendor() ? ChoiceKind::vendor : ChoiceKind::tile;
      if (auto ok = check_family(*verdict.family, entry); !ok) {
        verdict.skipped = ok.error().message;
      } else if (problem.max_sms > 0 && table.key.max_sms != problem.max_sms) {
        verdict.note = table.key.max_sms == 0 ? "measured on all multiprocessors"
                                              : format("measured on {} multiprocessors", table.key.max_sms);
      } else if (is_precise_for_fast(table, device, problem)) {
        verdict.note = "measured with precise sums";
      }
    } else if (backend == nullptr && entry.kernel == kFieldKernel) {
      judge_field_tile_without_family(entry, verdict);
    } else {
      verdict.skipped = format("kernel {} is unknown to this build on this device", entry.kernel);
    }
  }
  if (auto ok = check_strength(verdict.kind); !ok && verdict.skipped.empty()) {
    verdict.skipped = ok.error().message;
  }
  return verdict;
}

Expected<void> Judge::check_family(const KernelFamily& family, const TableEntry& entry) const {
  const bool present = backend != nullptr;
  if (present) {
    if (auto ok = family.available(device); !ok) {
      return ok;
    }
  }
  if (!entry.kernel_source_hash.empty() && entry.kernel_source_hash != family.source_hash()) {
    return make_error(ErrorCode::invalid_argument,
                      "kernel source hash of {}: the entry was measured with {}, this build has {}", family.name(),
                      entry.kernel_source_hash, family.source_hash());
  }
  // A library's version is known on the machine that has it only.
  if (present && !entry.vendor_version.empty() && entry.vendor_version != family.version()) {
    return make_error(ErrorCode::invalid_argument, "version of {}: the entry was measured with {}, here it is {}",
                      family.name(), entry.vendor_version, family.version());
  }
  // The CPU's vendor keeps a copy of its own; every other kernel reads the one layout of the table.
  const bool own_copy = device.kind == DeviceKind::cpu && family.is_vendor();
  const bool has_layout = !table.key.weight_layout.empty();
  if (!own_copy && has_layout && family.layout_for(problem) != table.key.weight_layout) {
    return make_error(ErrorCode::invalid_argument, "weight layout: the table has {}, {} reads {}", table.key.weight_layout,
                      family.name(), family.layout_for(problem));
  }
  // A table of the field's format names none.
  if (!has_layout && problem.layout == WeightLayout::slab64 && family.layout_for(problem) != to_string(problem.layout)) {
    return make_error(ErrorCode::invalid_argument, "weight layout: asked for is {}, {} reads {}", to_string(problem.layout),
                      family.name(), family.layout());
  }
  if (auto ok = family.check(device, problem, entry.config); !ok || problem.max_sms == 0) {
    return ok;
  }
  return family.check_sm_limit(problem, entry.config, largest_m(entry));
}

std::int64_t Judge::largest_m(const TableEntry& entry) const {
  std::int64_t largest = entry.m_hi;
  for (const TableSegment& segment : segments_of(table)) {
    if (segment.entry == &entry) {
      largest = std::max(largest, segment.m_hi);
    }
  }
  return largest;
}

Expected<void> Judge::check_strength(ChoiceKind kind) const {
  if (problem.batch_invariant && problem.numerics != Numerics::baseline &&
      (kind == ChoiceKind::vendor || kind == ChoiceKind::baseline)) {
    return make_error(ErrorCode::invalid_argument,
                      "weaker than asked: batch_invariant needs our own kernels, whose rows do not depend on the batch");
  }
  if (kind == ChoiceKind::baseline) {
    return {};  // It serves in the mode that was asked for.
  }
  if (problem.numerics == Numerics::baseline && table.key.numerics != to_string(Numerics::baseline)) {
    return make_error(ErrorCode::invalid_argument,
                      "weaker than asked: the entry is numerics={}, asked was numerics=baseline", table.key.numerics);
  }
  // On a CPU both modes accumulate in fp32 over all of K.
  if (device.kind == DeviceKind::cuda && problem.accumulate == Accumulate::precise &&
      table.key.accumulate != to_string(Accumulate::precise)) {
    return make_error(ErrorCode::invalid_argument,
                      "weaker than asked: the entry is accumulate={}, asked was accumulate=precise", table.key.accumulate);
  }
  return {};
}

// A build without the family can still say whether the tile fits a device that is elsewhere.
void Judge::judge_field_tile_without_family(const TableEntry& entry, Verdict& verdict) const {
  if (auto ok = check_field_tile(entry.config); !ok) {
    verdict.skipped = ok.error().message;
    return;
  }
  if (device.shared_memory_bytes == 0) {
    verdict.note = "nothing is known of this device, so that its shared memory was not checked";
    return;
  }
  if (compute_capability(device.arch) < kFirstFp8Capability) {
    verdict.skipped = format("{} has no FP8 matrix instructions, they begin with sm_{}", device.arch, kFirstFp8Capability);
    return;
  }
  if (auto ok = check_field_tile_fits(entry.config, device.shared_memory_bytes); !ok) {
    verdict.skipped = ok.error().message;
    return;
  }
  verdict.note = format("its {} bytes of shared memory fit the {} of a block", field_tile_shared_bytes(entry.config),
                        device.shared_memory_bytes);
}

std::string find_table_refusal(const TileTable& table, const std::string& alias, const Backend* backend,
                               const DeviceInfo& device, const Problem& problem) {
  const TableKey& key = table.key;
  const std::string& device_name = alias.empty() ? device.name : alias;
  const std::string out_dtype = to_string(problem.out_dtype);
  if (!key.device_name.empty() && key.device_name != device_name) {
    return difference("device_name", key.device_name, device_name);
  }
  if (!key.arch.empty() && !device.arch.empty() && key.arch != device.arch) {
    return difference("arch", key.arch, device.arch);
  }
  if (!key.model.empty() && !device.model.empty() && key.model != device.model) {
    return difference("model", key.model, device.model);
  }
  if (key.sm_count != 0 && device.sm_count != 0 && key.sm_count != device.sm_count) {
    return difference(device.kind == DeviceKind::cpu ? "threads" : "sm_count", key.sm_count, device.sm_count);
  }
  if (key.n != 0 && key.n != problem.n) {
    return difference("n", key.n, problem.n);
  }
  if (key.k != 0 && key.k != problem.k) {
    return difference("k", key.k, problem.k);
  }
  if (!key.scheme.empty() && key.scheme != kSchemeChannelwise) {
    return difference("scheme", key.scheme, std::string(kSchemeChannelwise));
  }
  // A field file states no output type.
  if (!table.field_format && !key.out_dtype.empty() && key.out_dtype != out_dtype) {
    return difference("out_dtype", key.out_dtype, out_dtype);
  }
  // What was measured with few multiprocessors says nothing of all of them, and what needs more than are allowed cannot
  // serve. With a few more it is held to these, and with a table of all of them the best there is a fair guess.
  if (key.max_sms != 0 && (problem.max_sms == 0 || key.max_sms > problem.max_sms)) {
    return difference("max_sms", key.max_sms, problem.max_sms);
  }
  // On a CPU there is nothing to choose from.
  const bool is_slab = key.weight_layout == to_string(WeightLayout::slab64);
  if (device.kind == DeviceKind::cuda && !key.weight_layout.empty() && problem.layout != WeightLayout::automatic &&
      is_slab != (problem.layout == WeightLayout::slab64)) {
    return difference("weight_layout", key.weight_layout, std::string(to_string(problem.layout)));
  }
  if (!key.weight_layout.empty() && backend != nullptr) {
    const auto families = backend->families();
    Problem in_layout = problem;
    in_layout.layout = is_slab ? WeightLayout::slab64 : WeightLayout::row_major;
    if (std::none_of(families.begin(), families.end(),
                     [&](const KernelFamily* family) { return family->layout_for(in_layout) == key.weight_layout; })) {
      return format("weight_layout: the table has {}, which no kernel family of this build reads", key.weight_layout);
    }
  }
  return {};
}

std::string soft_key_difference(const TileTable& table, const Backend* backend, const DeviceInfo& device) {
  const auto differs = [&](const std::string& name, std::string_view here) {
    const auto found = table.provenance.find(name);
    return found != table.provenance.end() && !found->second.empty() && !here.empty() && found->second != here
               ? format("stale: measured with {} {}, here it is {}", name, found->second, here)
               : std::string();
  };
  if (std::string note = differs("octile", version()); !note.empty()) {
    return note;
  }
  if (backend != nullptr) {
    for (const VendorStatus& vendor : backend->vendors(device)) {
      if (std::string note = differs(vendor.name, vendor.version); !note.empty()) {
        return note;
      }
    }
  }
  return {};
}

bool is_precise_for_fast(const TileTable& table, const DeviceInfo& device, const Problem& problem) {
  return device.kind == DeviceKind::cuda && problem.accumulate != Accumulate::precise &&
         table.key.accumulate == to_string(Accumulate::precise);
}

std::string missing_vendor_reason(const Backend& backend, const DeviceInfo& device) {
  std::string reason = "there is no baseline here";
  for (const VendorStatus& vendor : backend.vendors(device)) {
    if (!vendor.available) {
      reason += format(" ({}: {})", vendor.name, vendor.reason);
    }
  }
  return reason;
}

}  // namespace octile
