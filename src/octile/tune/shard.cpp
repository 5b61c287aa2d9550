// SPDX-License-Identifier: Apache-2.0
// Longest parts first, cut where that balances; see shard.h.
#include "octile/tune/shard.h"

#include "octile/core/format.h"
#include "octile/tune/samples.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace octile {

namespace {

// A shard may be so much larger than the mean before a weight is cut.
constexpr double kImbalance = 1.1;
// More parts than this for each shard balance nothing any more.
constexpr std::size_t kPartsPerShard = 4;

// Nominal speeds for each multiprocessor or thread, of the order that the kernels reach. Measured ones would differ from job
// to job, and with them the shares.
constexpr double kGpuFlops = 8e12;
constexpr double kGpuBytesPerS = 3e10;
constexpr double kCpuFlops = 3e11;
constexpr double kCpuBytesPerS = 1e10;
// A point's samples in screening and race, and its seconds beside them: checks and what is compiled for it.
constexpr double kSamples = 100;
constexpr double kFixedS = 1.0;
// Copies of a weight in two layouts, and what packing takes.
constexpr double kPackedBytes = 6;
constexpr double kPackSPerByte = 5e-9;

double nominal_point_s(const DeviceInfo& device, const SharedWeight& weight, std::int64_t m) {
  const bool is_gpu = device.kind == DeviceKind::cuda;
  const double units = std::max(device.sm_count, 1);
  const double codes = static_cast<double>(weight.n) * static_cast<double>(weight.k);
  const double call_s = std::max(2 * codes * static_cast<double>(m) / (units * (is_gpu ? kGpuFlops : kCpuFlops)),
                                 codes / (units * (is_gpu ? kGpuBytesPerS : kCpuBytesPerS)));
  return kFixedS + kSamples * Sampling(device.kind).seconds(call_s * 1e6);
}

// Neighbouring M of one weight: [first, last) of the request's list.
struct Part {
  std::size_t weight = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  double cost_s = 0;
};

// Of every shard, the largest first.
using Dealt = std::vector<std::vector<Part>>;

class Sharing {
 public:
  Sharing(const std::vector<SharedWeight>& weights, const DeviceInfo& device) : weights_(weights), device_(device) {}

  Dealt share(std::size_t shards) const {
    std::vector<Part> parts;
    double mean_s = 0;
    for (std::size_t w = 0; w < weights_.size(); ++w) {
      parts.push_back(part(w, 0, weights_[w].m_list.size()));
      mean_s += parts.back().cost_s / static_cast<double>(shards);
    }
    Dealt dealt = deal(parts, shards);
    Dealt best = dealt;
    while (largest_s(best) > kImbalance * mean_s && parts.size() < kPartsPerShard * shards + weights_.size()) {
      const std::optional<Part> large = largest_to_cut(dealt);
      if (!large) {
        break;
      }
      cut(*large, parts);
      dealt = deal(parts, shards);
      if (largest_s(dealt) < largest_s(best)) {
        best = dealt;
      }
    }
    return best;
  }

 private:
  Part part(std::size_t weight, std::size_t first, std::size_t last) const {
    const SharedWeight& shared = weights_[weight];
    Part result{weight, first, last, 0};
    result.cost_s = static_cast<double>(shared.n) * static_cast<double>(shared.k) * kPackedBytes * kPackSPerByte;
    for (std::size_t i = first > 0 ? first - 1 : first; i < last; ++i) {  // The border below as well.
      result.cost_s += nominal_point_s(device_, shared, shared.m_list[i]);
    }
    return result;
  }

  // Each part, the longest first, to the shard with the least so far.
  static Dealt deal(std::vector<Part> parts, std::size_t shards) {
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return std::tuple(-a.cost_s, a.weight, a.first) < std::tuple(-b.cost_s, b.weight, b.first);
    });
    Dealt result(shards);
    std::set<std::pair<double, std::size_t>> loads;
    for (std::size_t i = 0; i < shards; ++i) {
      loads.emplace(0.0, i);
    }
    for (const Part& part : parts) {
      const auto [load_s, shard] = *loads.begin();
      loads.erase(loads.begin());
      loads.emplace(load_s + part.cost_s, shard);
      result[shard].push_back(part);
    }
    return result;
  }

  static double load_s(const std::vector<Part>& parts) {
    return std::accumulate(parts.begin(), parts.end(), 0.0, [](double sum, const Part& p) { return sum + p.cost_s; });
  }
  static const std::vector<Part>& fullest(const Dealt& dealt) {
    return *std::max_element(dealt.begin(), dealt.end(), [](const auto& a, const auto& b) { return load_s(a) < load_s(b); });
  }
  static double largest_s(const Dealt& dealt) { return load_s(fullest(dealt)); }

  // Of the fullest shard the largest part that has more than one M.
  static std::optional<Part> largest_to_cut(const Dealt& dealt) {
    const std::vector<Part>& parts = fullest(dealt);
    const auto found = std::find_if(parts.begin(), parts.end(), [](const Part& p) { return p.last - p.first > 1; });
    return found == parts.end() ? std::nullopt : std::optional<Part>(*found);
  }

  // Into halves of equal cost.
  void cut(const Part& whole, std::vector<Part>& parts) const {
    std::pair<Part, Part> halves;
    double larger_s = std::numeric_limits<double>::infinity();
    for (std::size_t middle = whole.first + 1; middle < whole.last; ++middle) {
      const std::pair<Part, Part> candidate{part(whole.weight, whole.first, middle), part(whole.weight, middle, whole.last)};
      const double candidate_s = std::max(candidate.first.cost_s, candidate.second.cost_s);
      if (candidate_s < larger_s) {
        halves = candidate;
        larger_s = candidate_s;
      }
    }
    std::erase_if(parts, [&](const Part& p) { return p.weight == whole.weight && p.first == whole.first; });
    parts.push_back(halves.first);
    parts.push_back(halves.second);
  }

  const std::vector<SharedWeight>& weights_;
  const DeviceInfo& device_;
};

}  // namespace

std::string Shard::to_string() const { return format("{}/{}", index, count); }

Expected<void> check_shard(const Shard& shard) {
  if (shard.index < 1 || shard.index > shard.count || shard.count > kMaxShards) {
    return make_error(ErrorCode::invalid_argument, "shard: wanted i/n with 1 <= i <= n <= {}, got {}", kMaxShards,
                      shard.to_string());
  }
  return {};
}

std::vector<WeightShare> share_of(const std::vector<SharedWeight>& weights, const DeviceInfo& device, const Shard& shard) {
  std::vector<WeightShare> result(weights.size());
  if (shard.is_whole()) {
    for (std::size_t w = 0; w < weights.size(); ++w) {
      result[w].own = weights[w].m_list;
    }
    return result;
  }
  const Dealt dealt = Sharing(weights, device).share(static_cast<std::size_t>(shard.count));
  std::vector<std::set<std::size_t>> own(weights.size());
  for (const Part& part : dealt[static_cast<std::size_t>(shard.index - 1)]) {
    for (std::size_t i = part.first; i < part.last; ++i) {
      own[part.weight].insert(i);
    }
  }
  for (std::size_t w = 0; w < weights.size(); ++w) {
    for (const std::size_t i : own[w]) {
      result[w].own.push_back(weights[w].m_list[i]);
      if (i > 0 && !own[w].contains(i - 1)) {
        result[w].borders.push_back(weights[w].m_list[i - 1]);
      }
    }
  }
  return result;
}

}  // namespace octile
