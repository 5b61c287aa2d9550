// SPDX-License-Identifier: Apache-2.0
// The tuner's coordinator: what to measure next and for how long, the journal, the tables. See tune.h and docs/tuning.md.
#include "octile/tune/tune.h"

#include "octile/core/format.h"
#include "octile/table/table_ops.h"
#include "octile/table/table_store.h"
#include "octile/tune/intervals.h"
#include "octile/tune/point.h"
#include "octile/tune/random_data.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/session.h"
#include "octile/tune/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace octile {

namespace {

// Each gap between two winners is halved at most so often; without a budget less, since nothing else would stop it.
constexpr int kRefinements = 8;
constexpr int kRefinementsWithoutBudget = 2;
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

// A weight and M that is still to be measured.
struct Pending {
  std::size_t weight = 0;  // Index into Sweep::weights_.
  std::int64_t m = 0;
  Field field;
};

// One weight of the run; shapes of equal n and k share it.
struct Weight {
  TuneShape shape;
  Plan plan;
  std::vector<TunePoint> points;  // Measured, resumed or failed; in order of measurement.
  bool is_packed = false;
  std::string layout;  // Of our families.
  std::string path;    // Of its table.
};

class Sweep {
 public:
  Sweep(const TuneOptions& options, const RunHooks& hooks) : options_(options), hooks_(hooks) {}

  Expected<TuneSummary> run() {
    if (Expected<void> ready = set_up(); !ready) {
      return std::move(ready).error();
    }
    Expected<std::unique_ptr<Session>> session =
        Session::open(options_, hooks_, measure_settings(options_, options_.seed != 0 ? options_.seed : fresh_seed()));
    if (!session) {
      return std::move(session).error();
    }
    session_ = std::move(*session);
    Expected<void> done = sweep();
    if (done) {
      done = refine();
    }
    if (!done) {
      return make_error(done.error().code, "{} (what was measured is kept in {}; --resume goes on from it)",
                        done.error().message, journal_->path());
    }
    return finish();
  }

 private:
  Expected<void> set_up() {
    Expected<void> valid = check_run_options(options_);
    if (valid) {
      valid = check_shapes(options_.shapes);
    }
    if (!valid) {
      return valid;
    }
    Expected<Device> device = hooks_.find_device(options_.device);
    if (!device) {
      return std::move(device).error();
    }
    device_ = *device;
    const bool is_gpu = device_.info.kind == DeviceKind::cuda;
    Expected<std::vector<std::int64_t>> m_list =
        checked_m_list(options_.m_list.empty() && options_.thorough ? thorough_m_list(is_gpu) : options_.m_list, is_gpu);
    if (!m_list) {
      return std::move(m_list).error();
    }
    m_list_ = std::move(*m_list);
    if (Expected<void> known = check_uses(); !known) {
      return known;
    }
    directory_ = options_.tables.empty() ? user_table_directory() : options_.tables;
    if (directory_.find(':') != std::string::npos) {
      return make_error(ErrorCode::invalid_argument, "tables: wanted one directory to write to, got \"{}\"", directory_);
    }
    if (Expected<void> added = add_weights(); !added) {
      return added;
    }
    return open_journal();
  }

  Expected<void> check_uses() const {
    if (options_.uses.empty()) {
      return {};
    }
    for (const TuneUse& use : options_.uses) {
      const auto is_its = [&](const TuneShape& shape) { return shape.n == use.n && shape.k == use.k; };
      if (use.m < 1 || !std::isfinite(use.calls) || use.calls <= 0 || std::ranges::none_of(options_.shapes, is_its)) {
        return make_error(
            ErrorCode::invalid_argument,
            "uses: wanted m >= 1, calls > 0 and a shape of each n and k, got n = {}, k = {}, m = {}, calls = {}", use.n,
            use.k, use.m, use.calls);
      }
    }
    for (const TuneShape& shape : options_.shapes) {
      if (ms_of(shape).empty()) {
        return make_error(ErrorCode::invalid_argument, "uses: wanted one of shape {}, {}x{}, got none", shape.name, shape.n,
                          shape.k);
      }
    }
    return {};
  }

  // Ascending: the M that are asked for of one shape.
  std::vector<std::int64_t> ms_of(const TuneShape& shape) const {
    if (options_.uses.empty()) {
      return m_list_;
    }
    std::set<std::int64_t> ms;
    for (const TuneUse& use : options_.uses) {
      if (use.n == shape.n && use.k == shape.k) {
        ms.insert(use.m);
      }
    }
    return {ms.begin(), ms.end()};
  }

  Expected<void> add_weights() {
    for (const TuneShape& shape : options_.shapes) {
      const auto same = [&](const Weight& weight) { return weight.shape.n == shape.n && weight.shape.k == shape.k; };
      const auto found = std::find_if(weights_.begin(), weights_.end(), same);
      weight_of_shape_.push_back(static_cast<std::size_t>(found - weights_.begin()));
      if (found != weights_.end()) {
        continue;
      }
      const Problem problem = problem_of(options_, shape);
      Weight weight{shape, plan_without_table(*device_.backend, device_.info, problem), {}, false, {}, {}};
      const Choice own = weight.plan.heuristic_choice(1, {}, {});
      const Choice baseline = weight.plan.baseline_choice(1, {});
      const KernelFamily* family = own.family != nullptr ? own.family : baseline.family;
      if (family == nullptr) {
        return make_error(ErrorCode::unavailable, "no kernel family serves {}: {}", device_.info.id, baseline.reason);
      }
      weight.layout = family->layout();
      const std::string name = table_file_name(table_key(device_.info, problem, weight.layout), false);
      const std::string nested = format("{}/{}/{}", directory_, device_.info.name, name);
      weight.path = std::filesystem::exists(nested) ? nested : format("{}/{}", directory_, name);
      if (Expected<void> fits = check_existing_table(weight); !fits) {
        return fits;
      }
      weights_.push_back(std::move(weight));
    }
    return {};
  }

  // What is there must be of the same hard keys, else hours of measuring could not be written at the end.
  Expected<void> check_existing_table(const Weight& weight) const {
    if (!std::filesystem::exists(weight.path)) {
      return {};
    }
    std::vector<Finding> findings;
    Expected<TileTable> current = read_table(weight.path, findings);
    if (!current) {
      return make_error(current.error().code, "{}; move it away, or tune into another directory", current.error().message);
    }
    if (drop_outdated(*current); current->entries.empty()) {
      return {};  // Nothing of it can serve: it will be replaced, whatever its keys.
    }
    TileTable mine;
    mine.key = table_key(device_.info, weight.plan.problem(), weight.layout);
    mine.file = "this run";
    if (Expected<TileTable> merged = merge_tables({*current, mine}); !merged) {
      return make_error(merged.error().code, "{}; tune into another directory", merged.error().message);
    }
    return {};
  }

  static std::string listed(const std::vector<std::int64_t>& ms) {
    std::string text;
    for (const std::int64_t m : ms) {
      text += format(" {}", m);
    }
    return text;
  }

  std::string request_text() const {
    std::string text;
    for (const TuneShape& shape : options_.shapes) {
      text += format("{} {}x{}, ", shape.name, shape.n, shape.k);
      if (!options_.uses.empty()) {
        text += format("M{}, ", listed(ms_of(shape)));
      }
    }
    return options_.uses.empty() ? format("{}M{}", text, listed(m_list_)) : text;
  }

  Expected<void> open_journal() {
    JournalContent content;
    Expected<Journal> journal =
        Journal::open(directory_, device_.info.name, hard_keys_of_run(*device_.backend, device_.info, options_),
                      request_text(), options_.resume, content, summary_.notes);
    if (!journal) {
      return std::move(journal).error();
    }
    journal_ = std::move(*journal);
    for (const TunePoint& point : content.points) {
      for (Weight& weight : weights_) {
        if (weight.shape.n == point.shape.n && weight.shape.k == point.shape.k) {
          weight.points.push_back(point);
        }
      }
      for (const std::string& kernel : point.worked) {
        ++state_.families[kernel].admitted;
      }
    }
    for (const FailedCandidate& failed : content.failed) {
      summary_.failed.push_back(failed);
      const std::string name = format("{} {}", failed.kernel, failed.config.to_json());
      SweepState::FamilyRecord& record = state_.families[failed.kernel];
      ++record.failed;
      if (record.first_reason.empty()) {
        record.first_reason = format("{} at {} m={}: {}: {}", name, failed.shape, failed.m, failed.kind, failed.reason);
      }
      for (const TuneShape& shape : options_.shapes) {
        if (shape.name == failed.shape) {
          leave_out(state_, shape, name, failed.kind);
        }
      }
    }
    return {};
  }

  static const TunePoint* find_point(const Weight& weight, std::int64_t m) {
    const auto found =
        std::find_if(weight.points.begin(), weight.points.end(), [&](const TunePoint& point) { return point.m == m; });
    return found == weight.points.end() ? nullptr : &*found;
  }

  // One more point that is asked for, unless the journal holds it.
  void plan_point(std::size_t weight, std::int64_t m) {
    ++total_;
    if (find_point(weights_[weight], m) == nullptr) {
      pending_.push_back({weight, m, field_of(*device_.backend, weights_[weight].plan, m, options_.thorough)});
    } else {
      ++done_;
    }
  }

  // What a service spends most of its time on comes first.
  void plan_uses() {
    std::map<std::pair<std::size_t, std::int64_t>, double> calls;
    for (const TuneUse& use : options_.uses) {
      for (std::size_t w = 0; w < weights_.size(); ++w) {
        if (weights_[w].shape.n == use.n && weights_[w].shape.k == use.k) {
          calls[{w, use.m}] += use.calls;
        }
      }
    }
    for (const auto& [point, count] : calls) {
      plan_point(point.first, point.second);
    }
    const auto spent = [&](const Pending& pending) {
      const std::optional<Candidate>& incumbent = pending.field.baseline ? pending.field.baseline : pending.field.heuristic;
      return calls[{pending.weight, pending.m}] * (incumbent ? incumbent->predicted_us : 1.0);
    };
    std::ranges::stable_sort(pending_, std::greater{}, spent);
  }

  void plan_points() {
    if (!options_.uses.empty()) {
      plan_uses();
      return;
    }
    // Small M first: they are what decoding runs all day, and cheap, so that a short budget covers them. With --thorough
    // the usual M come before the rest, for the same reason.
    const std::vector<std::int64_t> usual = default_m_list(device_.info.kind == DeviceKind::cuda);
    std::vector<std::int64_t> order = m_list_;
    if (options_.thorough) {
      std::stable_partition(order.begin(), order.end(),
                            [&](std::int64_t m) { return std::binary_search(usual.begin(), usual.end(), m); });
    }
    for (const std::int64_t m : order) {
      for (std::size_t w = 0; w < weights_.size(); ++w) {
        plan_point(w, m);
      }
    }
  }

  // On a device that compiles at run time, every kernel of the fields on all cores at once, smallest M first: one at a time,
  // between measurements, compiling would take most of a budget.
  Expected<void> compile_ahead() {
    constexpr std::size_t kAtOnce = 64;
    constexpr double kShareOfBudget = 0.2;
    if (device_.info.kind != DeviceKind::cuda) {
      return {};
    }
    const double enough_s = options_.time_budget_s > 0 ? kShareOfBudget * options_.time_budget_s : HUGE_VAL;
    std::set<std::string> known;
    std::vector<CompileItem> items;
    for (std::size_t i = 0; i < pending_.size() && session_->elapsed_s() < enough_s && !session_->ended(); ++i) {
      const Field& field = pending_[i].field;
      const auto add = [&](const Candidate& candidate) {
        const TuneShape& shape = weights_[pending_[i].weight].shape;
        if (known.insert(place_of(shape) + candidate.to_string()).second) {
          CandidateSpec spec;
          spec.kernel = candidate.family->name();
          spec.config = candidate.config;
          items.push_back({shape.n, shape.k, std::move(spec)});
        }
      };
      for (const std::optional<Candidate>& incumbent : {field.baseline, field.heuristic}) {
        if (incumbent) {
          add(*incumbent);
        }
      }
      std::ranges::for_each(field.challengers, add);
      if (items.size() >= kAtOnce || i + 1 == pending_.size()) {
        report("compiling", false);
        if (Expected<void> done = session_->compile_ahead(items); !done) {
          return done;
        }
        items.clear();
      }
    }
    return {};
  }

  PointRequest request_for(const Pending& pending) const {
    const Weight& weight = weights_[pending.weight];
    PointRequest request;
    request.shape = weight.shape;
    request.m = pending.m;
    request.field = &pending.field;
    request.thorough = options_.thorough;
    request.is_packed = weight.is_packed;
    return request;
  }

  PointCost cost_of(const Pending& pending) const { return estimate_cost(device_.info, request_for(pending), state_); }

  // What won at the nearest smaller M, as far as it is a kernel of its own.
  std::optional<Candidate> carried_to(const Weight& weight, std::int64_t m) const {
    const TunePoint* nearest = nullptr;
    for (const TunePoint& point : weight.points) {
      const bool is_winner = point.status == PointStatus::tile || point.status == PointStatus::vendor;
      if (is_winner && point.m < m && (nearest == nullptr || point.m > nearest->m)) {
        nearest = &point;
      }
    }
    if (nearest == nullptr) {
      return std::nullopt;
    }
    for (const KernelFamily* family : device_.backend->families()) {
      if (family->name() == nearest->kernel) {
        return Candidate{family, nearest->config, 0};
      }
    }
    return std::nullopt;
  }

  void report(const std::string& doing, bool finished) {
    if (!options_.progress) {
      return;
    }
    double needed_s = 0;
    // A sum over thousands of points at every point would cost more than it tells.
    const std::size_t stride = 1 + pending_.size() / 256;
    for (std::size_t i = 0; i < pending_.size(); i += stride) {
      needed_s += cost_of(pending_[i]).standard_s * static_cast<double>(stride);
    }
    TuneProgress progress;
    progress.done = done_;
    progress.total = total_;
    progress.elapsed_s = session_->elapsed_s();
    progress.left_s = finished ? 0 : std::max(std::min(needed_s, session_->left_s()), 0.0);
    progress.doing = doing;
    progress.finished = finished;
    options_.progress(progress);
  }

  Expected<void> measure(const Pending& pending, double quota_s) {
    Weight& weight = weights_[pending.weight];
    PointRequest request = request_for(pending);
    request.quota_s = quota_s;
    request.carried = carried_to(weight, pending.m);
    report(format("{} m={}", weight.shape.name, pending.m), false);
    Expected<PointResult> result = tune_point(*session_, weight.plan, request, state_);
    if (!result) {
      return std::move(result).error();
    }
    weight.is_packed = true;
    for (const FailedCandidate& failed : result->failed) {
      summary_.failed.push_back(failed);
      if (Expected<void> written = journal_->append(failed); !written) {
        return written;
      }
    }
    if (result->point.status == PointStatus::no_budget) {
      if (!result->point.reason.empty()) {
        no_budget_reasons_[{pending.weight, pending.m}] = result->point.reason;
      }
      return {};
    }
    ++done_;
    weight.points.push_back(result->point);
    return journal_->append(result->point);
  }

  // Seconds for pending_[i] were it next; 0: not now.
  double quota_for(std::size_t i) {
    const bool has_budget = options_.time_budget_s > 0;
    if (!has_budget) {
      return 3 * cost_of(pending_[i]).standard_s + 10;
    }
    std::vector<PointCost> costs{cost_of(pending_[i])};
    for (std::size_t j = 0; j < pending_.size(); ++j) {
      if (j != i) {
        costs.push_back(cost_of(pending_[j]));
      }
    }
    return share_of_budget(costs, session_->left_s());
  }

  // The first point in order that fits beside the cheaper ones; pending_.size() where none does.
  std::size_t next_point(double& quota_s) {
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      quota_s = quota_for(i);
      if (quota_s > 0) {
        return i;
      }
    }
    return pending_.size();
  }

  Expected<void> sweep() {
    plan_points();
    if (Expected<void> done = compile_ahead(); !done) {
      return done;
    }
    while (!pending_.empty() && !session_->ended()) {
      double quota_s = 0;
      const std::size_t i = next_point(quota_s);
      if (i == pending_.size()) {
        break;
      }
      const Pending next = std::move(pending_[i]);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      if (Expected<void> done = measure(next, quota_s); !done) {
        return done;
      }
    }
    return {};
  }

  // With time left: the borders between different winners are narrowed.
  Expected<void> refine() {
    if (!options_.known.empty()) {
      return {};
    }
    const int rounds = options_.time_budget_s > 0 ? kRefinements : kRefinementsWithoutBudget;
    for (int round = 0; round < rounds && pending_.empty() && !session_->ended(); ++round) {
      for (std::size_t w = 0; w < weights_.size(); ++w) {
        for (const std::int64_t m : border_candidates(weights_[w].points)) {
          const Pending pending{w, m, field_of(*device_.backend, weights_[w].plan, m, options_.thorough)};
          const PointCost cost = cost_of(pending);
          if (session_->ended() || cost.standard_s > 0.9 * session_->left_s()) {
            continue;
          }
          ++total_;
          if (Expected<void> done = measure(pending, 2 * cost.standard_s); !done) {
            return done;
          }
        }
      }
    }
    return {};
  }

  Expected<TuneSummary> finish() {
    summary_.elapsed_s = session_->elapsed_s();
    summary_.interrupted_by = session_->interrupted_by();
    collect_points();
    find_failure();
    if (summary_.interrupted_by != 0) {
      summary_.journal = journal_->path();
      report("interrupted", true);
      return std::move(summary_);
    }
    report("writing tables", true);
    session_.reset();
    for (const Weight& weight : weights_) {
      if (Expected<void> written = write_table(weight); !written) {
        return make_error(written.error().code, "{} (what was measured is kept in {})", written.error().message,
                          journal_->path());
      }
    }
    clear_table_cache();
    if (Expected<void> removed = journal_->remove(); !removed) {
      summary_.notes.push_back(removed.error().message);
    }
    return std::move(summary_);
  }

  void collect_points() {
    std::vector<double> ratios;
    const auto add = [&](TunePoint point) {
      if (point.ratio > 0) {
        ratios.push_back(point.ratio);
      }
      summary_.points.push_back(std::move(point));
    };
    for (std::size_t s = 0; s < options_.shapes.size(); ++s) {
      const Weight& weight = weights_[weight_of_shape_[s]];
      for (const std::int64_t m : ms_of(options_.shapes[s])) {
        TunePoint point;
        point.shape = options_.shapes[s];
        point.m = m;
        if (const TunePoint* measured = find_point(weight, m); measured != nullptr) {
          point = *measured;
          point.shape.name = options_.shapes[s].name;
        } else {
          const auto reason = no_budget_reasons_.find({weight_of_shape_[s], m});
          point.reason = reason != no_budget_reasons_.end() ? reason->second : "it did not fit the time budget";
        }
        add(std::move(point));
      }
    }
    for (const Weight& weight : weights_) {
      const std::vector<std::int64_t> asked = ms_of(weight.shape);
      for (const TunePoint& point : weight.points) {
        if (!std::ranges::binary_search(asked, point.m)) {
          add(point);
        }
      }
    }
    summary_.geomean_ratio = geometric_mean(ratios);
  }

  void find_failure() {
    std::vector<std::string> failures;
    for (const auto& [kernel, record] : state_.families) {
      if (record.admitted == 0 && record.failed > 0) {
        failures.push_back(format("kernel family {} failed at every candidate that was tried ({}); the first: {}", kernel,
                                  record.failed, record.first_reason));
      }
    }
    const auto is_measured = [](const TunePoint& point) {
      return point.status != PointStatus::no_budget && point.status != PointStatus::failed;
    };
    if (failures.empty() && summary_.interrupted_by == 0 &&
        std::none_of(summary_.points.begin(), summary_.points.end(), is_measured)) {
      failures.push_back(format("no point was measured; the first, {} m={}: {}", summary_.points.front().shape.name,
                                summary_.points.front().m, summary_.points.front().reason));
    }
    for (const std::string& failure : failures) {
      summary_.failure = summary_.failure ? format("{}\n{}", *summary_.failure, failure) : failure;
    }
  }

  std::string protocol_of(const Weight& weight) const {
    std::string memory;
    const std::string prefix = place_of(weight.shape);
    for (const auto& [place, copies] : state_.memory) {
      if (place.starts_with(prefix)) {
        memory += format("{}{} {}", memory.empty() ? "" : "; ", place.substr(prefix.size()), copies);
      }
    }
    return format(
        "cold weights ({}), interleaved passes forward and backward, signed-rank intervals over several looks, "
        "margin 2 %, error 5 % a point",
        memory.empty() ? "resumed" : memory);
  }

  // The weight's points, and as failed ones, which end an interval, those of which something else is known.
  std::vector<TunePoint> with_known(const Weight& weight) const {
    std::vector<TunePoint> points = weight.points;
    for (const TuneUse& known : options_.known) {
      if (known.n == weight.shape.n && known.k == weight.shape.k && find_point(weight, known.m) == nullptr) {
        TunePoint point;
        point.m = known.m;
        point.status = PointStatus::failed;
        points.push_back(std::move(point));
      }
    }
    return points;
  }

  Expected<void> write_table(const Weight& weight) {
    const std::string date = utc_now();
    TileTable mine;
    mine.key = table_key(device_.info, weight.plan.problem(), weight.layout);
    mine.provenance = provenance_of_run(*device_.backend, device_.info, options_, date, protocol_of(weight));
    mine.entries = make_entries(with_known(weight), *device_.backend, date);
    if (mine.entries.empty()) {
      return {};
    }
    mine.file = "this run";
    const auto change = [&](const TileTable* current) -> Expected<TileTable> {
      if (current == nullptr) {
        return mine;
      }
      TileTable kept = *current;
      drop_outdated(kept);
      return kept.entries.empty() ? mine : merge_tables({kept, mine});
    };
    if (Expected<void> written = update_own_table(weight.path, change); !written) {
      return written;
    }
    summary_.files.push_back(weight.path);
    return {};
  }

  void drop_outdated(TileTable& table) const {
    std::erase_if(table.entries, [&](const TableEntry& entry) { return is_outdated(entry); });
  }

  // Measured with another version of a kernel of this build: it cannot serve any more.
  bool is_outdated(const TableEntry& entry) const {
    for (const KernelFamily* family : device_.backend->families()) {
      if (family->name() == entry.kernel) {
        return (!entry.kernel_source_hash.empty() && entry.kernel_source_hash != family->source_hash()) ||
               (!entry.vendor_version.empty() && entry.vendor_version != family->version());
      }
    }
    return false;
  }

  const TuneOptions& options_;
  const RunHooks& hooks_;
  Device device_;
  std::vector<std::int64_t> m_list_;
  std::string directory_;
  std::vector<Weight> weights_;
  std::vector<std::size_t> weight_of_shape_;
  std::optional<Journal> journal_;
  std::unique_ptr<Session> session_;
  SweepState state_;
  std::vector<Pending> pending_;
  std::map<std::pair<std::size_t, std::int64_t>, std::string> no_budget_reasons_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  TuneSummary summary_;
};

}  // namespace

const char* to_string(PointStatus status) noexcept {
  switch (status) {
    case PointStatus::tile:
      return "tile";
    case PointStatus::vendor:
      return "vendor";
    case PointStatus::baseline:
      return "baseline";
    case PointStatus::no_budget:
      return "no budget";
    case PointStatus::failed:
      return "failed";
  }
  return "unknown";
}

Expected<TuneSummary> tune_with(const TuneOptions& options, const RunHooks& hooks) { return Sweep(options, hooks).run(); }

}  // namespace octile
