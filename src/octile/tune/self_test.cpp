// SPDX-License-Identifier: Apache-2.0
// Checking every family's numbers; see self_test.h.
#include "octile/tune/self_test.h"

#include "octile/core/format.h"
#include "octile/tune/session.h"
#include "octile/tune/sweep.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace octile {

namespace {

// Tails on every side: no tile, no vector and no cache line divides these.
constexpr std::int64_t kN = 528;
constexpr std::int64_t kK = 1040;
constexpr std::int64_t kMs[] = {1, 37};

// One family at both M; `id` is the session's next free candidate.
std::string test_family(Session& session, const Device& device, const Problem& problem, const KernelFamily& family, int& id,
                        bool& is_wrong) {
  double rel_error = 0;
  for (const std::int64_t m : kMs) {
    CandidateSpec spec;
    spec.kernel = family.name();
    spec.config = family.heuristic(device.info, problem, m);
    if (const Expected<void> legal = family.check(device.info, problem, spec.config); !legal) {
      return format("does not serve this problem: {}", legal.error().message);
    }
    const Expected<Admission> admission = session.admit(id++, spec, m, true);
    if (!admission) {
      is_wrong = true;
      return format("error: {}", admission.error().message);
    }
    if (!admission->admitted) {
      is_wrong = !admission->kind.empty();
      return is_wrong ? format("{} at M = {}: {}", admission->kind, m, admission->reason) : "no time";
    }
    rel_error = std::max(rel_error, admission->rel_error);
  }
  return format("right, relative error {:.1e}", rel_error);
}

void test_device(const Device& device, const RunHooks& hooks, double limit_s, std::vector<SelfTestRow>& rows) {
  const auto add = [&](const std::string& family, bool is_wrong, std::string result) {
    rows.push_back({device.info.id, family, is_wrong, std::move(result)});
  };
  RunOptions options;
  options.device = device.info.id;
  options.time_budget_s = std::max(limit_s, 0.1);
  options.candidate_timeout_s = options.time_budget_s;
  const Problem problem = problem_of(options, {"self-test", kN, kK});
  Expected<std::unique_ptr<Session>> session = Session::open(options, hooks, measure_settings(options, 1));
  Expected<void> ready = session ? (*session)->set_shape(kN, kK) : Expected<void>(session.error());
  int id = 0;
  for (const KernelFamily* family : device.backend->families()) {
    const std::string name(family->name());
    if (const Expected<void> available = family->available(device.info); !available) {
      add(name, false, format("not available: {}", available.error().message));
    } else if (!ready) {
      add(name, true, format("error: {}", ready.error().message));
    } else {
      bool is_wrong = false;
      std::string result = test_family(**session, device, problem, *family, id, is_wrong);
      add(name, is_wrong, std::move(result));
    }
  }
}

}  // namespace

std::vector<SelfTestRow> self_test(const std::vector<Device>& devices, const RunHooks& hooks, double limit_s) {
  std::vector<SelfTestRow> rows;
  double left_s = limit_s;
  for (const Device& device : devices) {
    const double before_s = hooks.clock_s(device.info.id);
    test_device(device, hooks, left_s, rows);
    left_s -= hooks.clock_s(device.info.id) - before_s;
  }
  return rows;
}

}  // namespace octile
