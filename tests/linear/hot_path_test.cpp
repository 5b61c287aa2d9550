// SPDX-License-Identifier: Apache-2.0
// run() on the CPU allocates nothing and makes no system call but the thread pool's futexes. Allocations are counted by
// replacing malloc in this program, system calls are trapped by a seccomp filter over all threads of a child process.
#include "cpu_table.h"
#include "layer.h"

#include <gtest/gtest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OCTILE_TEST_SANITIZED 1  // A sanitizer's own allocator and system calls are not ours.
#endif

namespace {
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
#ifndef OCTILE_TEST_SANITIZED
void count_allocation() {
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
}
#endif
}  // namespace

#ifndef OCTILE_TEST_SANITIZED
// operator new comes here as well.
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* old, std::size_t bytes);               // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  count_allocation();
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count_allocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  count_allocation();
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
}
#endif

namespace octile {
namespace {

using test::Inputs;
using test::Weights;
using test::Workspace;

constexpr std::int64_t kN = 200;
constexpr std::int64_t kK = 260;
constexpr std::int64_t kMaxM = 64;

// Everything that a call needs, ready before anything is counted or trapped.
struct Ready {
  Weights weights{kN, kK};
  Inputs x{100, kK};  // More than prepared: two chunks.
  test::GuardedOutput y{DType::bf16, 100, kN, kN};
  std::optional<Fp8Linear> linear;
  std::optional<Workspace> workspace;
  std::optional<RmsNorm> norm;
  std::optional<SwiGlu> swiglu;

  explicit Ready(const WeightOptions& options) {
    auto made = Fp8Linear::create(Fp8Weight::create(weights.source(), options).value());
    linear = std::move(*made);
    if (!linear->prepare(kMaxM)) {
      linear.reset();
      return;
    }
    workspace.emplace(linear->workspace_bytes(kMaxM));
    workspace->data();
    ProducerOptions of_producer;
    of_producer.k = kK / 2;
    swiglu = std::move(*SwiGlu::create(of_producer));
    RmsNormOptions of_norm;
    of_norm.producer.k = kK;
    const std::vector<std::uint16_t> gamma(kK, 0x3F80);  // Ones.
    of_norm.gamma = gamma.data();
    norm = std::move(*RmsNorm::create(of_norm));
  }
  // One call for each of several M; false where one failed.
  bool run_all() {
    bool ok = true;
    for (const std::int64_t m : {1, 2, 7, 16, 33, 64, 65, 100}) {
      MatrixView out = y.view();
      out.rows = m;
      ok = linear->run(x.view(0, m), out, workspace->data(), workspace->bytes()).has_value() && ok;
      ConstMatrixView codes = x.codes_view();
      codes.rows = m;
      ok = linear->run_quantized(codes, x.scales.data(), out, workspace->data(), workspace->bytes()).has_value() && ok;
      const auto produced = [&](std::int64_t k) {
        return QuantizedRows{{x.codes.data(), DType::e4m3, m, k, kK, 1}, x.scales.data()};
      };
      ok = norm->run(x.view(0, m), nullptr, produced(kK)).has_value() && ok;
      ok = swiglu->run(x.view(0, m), produced(kK / 2)).has_value() && ok;
    }
    return ok;
  }
};

class HotPath : public testing::TestWithParam<std::string> {
 protected:
  test::CpuTable table{{kN, kK}, GetParam()};
};

TEST_P(HotPath, RunAllocatesNothing) {
#ifdef OCTILE_TEST_SANITIZED
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  if (!table.available() || GetParam() == kBaselineKernel) {
    GTEST_SKIP() << GetParam() << " does not run on this machine, or is a vendor's library with an allocator of its own";
  }
  Ready ready(table.options());
  ASSERT_TRUE(ready.linear.has_value());
  ASSERT_EQ(ready.linear->explain(1).kernel, GetParam());
  allocations = 0;
  counting = true;
  const bool ok = ready.run_all();
  counting = false;
  EXPECT_TRUE(ok);
  EXPECT_EQ(allocations, 0);
  counting = true;
  const std::vector<int> control(100);
  counting = false;
  EXPECT_EQ(allocations, 1) << "the counter must see an allocation of " << control.size() << " integers";
}

// Exit statuses of the child.
constexpr int kQuiet = 0;
constexpr int kNotReady = 3;
constexpr int kNoSeccomp = 4;
constexpr int kCallFailed = 5;
constexpr int kTrapped = 100;  // The system call's number goes to stderr.

[[noreturn]] void on_trapped(int /*signal*/, siginfo_t* info, void* /*context*/) {
  char text[64];
  const int length = std::snprintf(text, sizeof(text), "system call %d\n", info->si_syscall);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  ::_exit(kTrapped);
}

// From here on every system call of every thread is trapped, but for the two with which the thread pool waits (it yields
// before it sleeps) and those of leaving.
bool trap_system_calls() {
  struct sigaction action{};
  action.sa_sigaction = on_trapped;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSYS, &action, nullptr);
  constexpr std::array kAllowed = {SYS_futex, SYS_sched_yield, SYS_exit_group, SYS_write};
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offsetof(seccomp_data, nr)))};
  for (std::size_t i = 0; i < kAllowed.size(); ++i) {
    const auto to_allow = static_cast<std::uint8_t>(kAllowed.size() - i);
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(kAllowed[i]), to_allow, 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

// Threads that have just been made are still making system calls of their own: waits until all but this one sleep.
bool other_threads_sleep() {
  for (int attempt = 0; attempt < 500; ++attempt) {
    bool asleep = true;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream stat(task.path() / "stat");
      const std::string text((std::istreambuf_iterator<char>(stat)), {});
      const std::size_t state = text.rfind(") ");
      const bool is_self = task.path().filename() == std::to_string(::gettid());
      asleep = asleep && (is_self || (state != std::string::npos && text[state + 2] == 'S'));
    }
    if (asleep) {
      return true;
    }
    ::usleep(10'000);
  }
  return false;
}

// `warm`: after calls that were not trapped.
[[noreturn]] void run_trapped(Ready& ready, bool warm, bool control) {
  if (!ready.linear || (warm && !ready.run_all()) || !other_threads_sleep()) {
    ::_exit(kNotReady);
  }
  if (!trap_system_calls()) {
    ::_exit(kNoSeccomp);
  }
  if (control) {
    [[maybe_unused]] const int is_there = ::access("/", F_OK);
  }
  const bool ok = ready.run_all();
  ::_exit(ok ? kQuiet : kCallFailed);
}

testing::AssertionResult exits_with(int wanted, int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == wanted
             ? testing::AssertionSuccess()
             : testing::AssertionFailure() << "wait status " << status << ", exit status " << WEXITSTATUS(status);
}

TEST_P(HotPath, RunMakesNoSystemCallButFutexes) {
#ifdef OCTILE_TEST_SANITIZED
  GTEST_SKIP() << "the sanitizer makes system calls of its own";
#endif
  if (!table.available()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  for (const bool control : {true, false}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Ready ready(table.options());
      run_trapped(ready, true, control);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSeccomp) {
      GTEST_SKIP() << "this kernel or container allows no seccomp filter";
    }
    EXPECT_TRUE(exits_with(control ? kTrapped : kQuiet, status));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, HotPath, testing::Values("reference", "avx2", "avx512", kBaselineKernel),
                         [](const testing::TestParamInfo<std::string>& kernel) { return kernel.param; });

// Our own families only: a vendor's library may do what it likes at its first call.
class FirstCall : public testing::TestWithParam<std::string> {
 protected:
  // In a process that has run nothing yet. The table is gone before anything is trapped.
  [[noreturn]] static void run_first(bool control) {
    std::optional<Ready> ready;
    {
      const test::CpuTable table({kN, kK}, GetParam());
      ready.emplace(table.options());
      if (!ready->linear || ready->linear->explain(1).kernel != GetParam()) {
        ::_exit(kNotReady);
      }
    }
    run_trapped(*ready, false, control);
  }
};

TEST_P(FirstCall, AfterPrepareMakesNoSystemCallButFutexes) {
#ifdef OCTILE_TEST_SANITIZED
  GTEST_SKIP() << "the sanitizer makes system calls of its own";
#endif
  if (!test::CpuTable({kN, kK}, GetParam()).available()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // A fresh process, not a fork of one in which other tests have run.
  for (const bool control : {true, false}) {
    bool no_seccomp = false;
    const auto as_wanted = [&](int status) {
      no_seccomp = WIFEXITED(status) && WEXITSTATUS(status) == kNoSeccomp;
      return no_seccomp || exits_with(control ? kTrapped : kQuiet, status);
    };
    EXPECT_EXIT(run_first(control), as_wanted, "");
    if (no_seccomp) {
      GTEST_SKIP() << "this kernel or container allows no seccomp filter";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OwnKernels, FirstCall, testing::Values("reference", "avx2", "avx512"),
                         [](const testing::TestParamInfo<std::string>& kernel) { return kernel.param; });

}  // namespace
}  // namespace octile
