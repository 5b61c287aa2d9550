// SPDX-License-Identifier: Apache-2.0
// Host time of a linear's call on a GPU beyond bare launches of the very same kernels, at M = 1 and o's shape of Qwen3-8B
// (N = K = 4096), for each family:
//
//   bare     cuLaunchKernelEx of the recorded kernels with their parameters ready; for cuBLASLt its quantiser that way, and
//            cublasLtMatmul with ready descriptors
//   kernel   Kernel::run
//   linear   Fp8Linear::run
//
// Each round enqueues a burst of calls of each of the three, in an order that turns, and waits for the device between
// bursts, so that no launch queue fills. Prints medians and the paired differences with their 95 % intervals by signed
// ranks.
//
//   gpu_host_time [--json FILE] [--rounds 300] [--calls 100]
#include "must.h"
#include "octile/core/format.h"
#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/cublaslt.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/cuda/library_search.h"
#include "octile/table/table_store.h"
#include "octile/tune/statistics.h"

#include <octile/octile.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kM = 1;
constexpr std::int64_t kN = 4096;
constexpr std::int64_t kK = 4096;

void must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) {
    fail(format("{}: error {}", what, static_cast<int>(result)));
  }
}

// One kernel launch with copies of everything it was given.
struct RecordedLaunch {
  CUlaunchConfig config = {};
  std::vector<CUlaunchAttribute> attributes;
  CUfunction function = nullptr;
  std::vector<std::vector<std::byte>> parameters;
  std::vector<void*> pointers;
};

// Stands in for the driver's launch function while it lives: notes every launch, and makes it. One at a time.
class LaunchRecorder {
 public:
  explicit LaunchRecorder(const Driver& driver) : driver_(const_cast<Driver&>(driver)), launch_(driver.launch_kernel) {
    // The process' driver table is no constant object; nothing else runs while launches are recorded.
    const auto library = must(open_library_file(driver.path));
    parameter_info_ = reinterpret_cast<ParameterInfo*>(find_symbol(library, "cuFuncGetParamInfo"));
    if (parameter_info_ == nullptr) {
      fail("this driver has no cuFuncGetParamInfo: want one of CUDA 12.4 or newer");
    }
    active_ = this;
    driver_.launch_kernel = &LaunchRecorder::note;
  }
  ~LaunchRecorder() {
    driver_.launch_kernel = launch_;
    active_ = nullptr;
  }
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  std::vector<RecordedLaunch> take() { return std::move(launches_); }

 private:
  using ParameterInfo = CUresult(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* bytes);

  static CUresult note(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
    RecordedLaunch launch;
    launch.config = *config;
    launch.attributes.assign(config->attrs, config->attrs + config->numAttrs);
    launch.function = function;
    std::size_t offset = 0;
    std::size_t bytes = 0;
    for (std::size_t i = 0; active_->parameter_info_(function, i, &offset, &bytes) == CUDA_SUCCESS; ++i) {
      const auto* begin = static_cast<const std::byte*>(parameters[i]);
      launch.parameters.emplace_back(begin, begin + bytes);
    }
    active_->launches_.push_back(std::move(launch));
    return active_->launch_(config, function, parameters, extra);
  }

  static inline LaunchRecorder* active_ = nullptr;
  Driver& driver_;
  decltype(Driver::launch_kernel) launch_;
  ParameterInfo* parameter_info_ = nullptr;
  std::vector<RecordedLaunch> launches_;
};

std::vector<RecordedLaunch> record(const Driver& driver, const std::function<void()>& call) {
  std::vector<RecordedLaunch> launches;
  {
    LaunchRecorder recorder(driver);
    call();
    launches = recorder.take();
  }
  for (RecordedLaunch& launch : launches) {
    launch.config.attrs = launch.attributes.data();
    for (std::vector<std::byte>& parameter : launch.parameters) {
      launch.pointers.push_back(parameter.data());
    }
  }
  return launches;
}

bool same_kernels(const std::vector<RecordedLaunch>& a, const std::vector<RecordedLaunch>& b) {
  return std::ranges::equal(a, b, {}, &RecordedLaunch::function, &RecordedLaunch::function);
}

// A file with one entry for every M, while the object lives.
class OneEntryTable {
 public:
  OneEntryTable(const DeviceInfo& device, const Problem& problem, const KernelFamily& family, const TileConfig& config)
      : directory_(std::filesystem::temp_directory_path() / format("octile-host-time-{}-{}", ::getpid(), family.name())) {
    std::filesystem::create_directories(directory_);
    TileTable table;
    table.key.device_name = device.name;
    table.key.arch = device.arch;
    table.key.sm_count = device.sm_count;
    table.key.n = problem.n;
    table.key.k = problem.k;
    table.key.weight_layout = family.layout();
    TableEntry entry;
    entry.m_lo = 1;
    entry.m_hi = 64;
    entry.kernel = family.is_vendor() ? std::string(kBaselineKernel) : std::string(family.name());
    entry.config = config;
    if (!family.is_vendor()) {
      entry.kernel_source_hash = family.source_hash();
      entry.us = 1.0;
      entry.baseline_us = 1.5;
      entry.ratio = Ratio{1.5, 1.49, 1.51};
    }
    table.entries.push_back(std::move(entry));
    must(write_own_table(table, (directory_ / table_file_name(table.key, false)).string()));
    clear_table_cache();
  }
  ~OneEntryTable() { std::filesystem::remove_all(directory_); }
  OneEntryTable(const OneEntryTable&) = delete;
  OneEntryTable& operator=(const OneEntryTable&) = delete;
  std::string path() const { return directory_.string(); }

 private:
  std::filesystem::path directory_;
};

// cublasLtMatmul with everything ready.
struct ReadyMatmul {
  LtDevice device;
  ProductDescriptors descriptors;
  cublasLtMatmulAlgo_t algorithm;
  ProductPointers pointers;
  CUstream stream = nullptr;

  void operator()() {
    const float one = 1.0F;
    const float zero = 0.0F;
    void* const y = to_pointer(pointers.y);
    const cublasStatus_t status = device.api->matmul(
        device.handle, &descriptors.operation, &one, to_pointer(pointers.codes_w), &descriptors.a,
        to_pointer(pointers.codes_x), &descriptors.b, &zero, y, &descriptors.d, y, &descriptors.d, &algorithm,
        to_pointer(pointers.workspace), static_cast<std::size_t>(pointers.workspace_bytes), stream);
    if (status != CUBLAS_STATUS_SUCCESS) {
      fail(cublaslt_error(*device.api, status, "cublasLtMatmul").message);
    }
  }
};

struct Options {
  std::string json;
  int rounds = 300;
  int calls = 100;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) {
      fail(format("option {} wants a value", name));
    }
    const std::string_view value = argv[i + 1];
    const auto number = [&](int lowest) {
      int parsed = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
      if (error != std::errc{} || end != value.data() + value.size() || parsed < lowest) {
        fail(format("{}: want a number >= {}, got '{}'", name, lowest, value));
      }
      return parsed;
    };
    if (name == "--json") {
      options.json = value;
    } else if (name == "--rounds") {
      options.rounds = number(8);
    } else if (name == "--calls") {
      options.calls = number(1);
    } else {
      fail(format("unknown option {}", name));
    }
  }
  return options;
}

struct Row {
  std::string family;
  std::string config;
  std::size_t launches = 0;       // Kernels of ours a call; cuBLASLt's own are not counted.
  std::array<double, 3> us = {};  // Medians of bare, kernel, linear.
  Interval kernel_beyond_us, linear_beyond_us;
};

class HostTime {
 public:
  explicit HostTime(const Options& options)
      : options_(options),
        device_(must(find_device("cuda:0"))),
        context_(*must(device_context(0))),
        current_(context_),
        x_(must(allocate_device(context_, kM * kK * 2))),
        y_(must(allocate_device(context_, kM * kN * 2))) {
    problem_.n = kN;
    problem_.k = kK;
    must(driver().stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(fill_bytes(context_, x_->pointer(), 0x3C, x_->bytes()));
    codes_.assign(static_cast<std::size_t>(kN * kK), 0x38);
    scales_.assign(static_cast<std::size_t>(kN), 0.01F);
    source_.n = kN;
    source_.k = kK;
    source_.codes = codes_.data();
    source_.scales = scales_.data();
    source_.scale_count = kN;
  }
  ~HostTime() { driver().stream_destroy(stream_); }
  HostTime(const HostTime&) = delete;
  HostTime& operator=(const HostTime&) = delete;

  const DeviceInfo& info() const { return device_.info; }

  Row measure(const KernelFamily& family) {
    Row row;
    row.family = family.name();
    const TileConfig config = family.heuristic(device_.info, problem_, kM);
    row.config = config.to_json();

    const auto weight = must(device_.backend->pack(device_.info, family.layout(), source_));
    const auto kernel = must(family.prepare(device_.info, problem_, config, kM));
    const auto workspace = must(allocate_device(context_, kernel->workspace_bytes(kM)));
    LaunchArgs args;
    args.activation.x = x_view();
    args.y = y_view();
    args.workspace = workspace->data();
    args.workspace_bytes = workspace->bytes();
    args.stream = stream_;
    const auto run_kernel = [&] { must(kernel->run(*weight, args)); };

    const OneEntryTable table(device_.info, problem_, family, config);
    WeightOptions weight_options;
    weight_options.device = device_.info.id;
    weight_options.tables = table.path();
    auto linear = must(Fp8Linear::create(must(Fp8Weight::create(source_, weight_options))));
    must(linear.prepare(kM));
    if (const Explanation explained = linear.explain(kM); explained.kernel != family.name()) {
      fail(format("the linear runs {} in place of {}: {}", explained.kernel, family.name(), explained.reason));
    }
    const auto linear_workspace = must(allocate_device(context_, linear.workspace_bytes(kM)));
    const auto run_linear = [&] {
      must(linear.run(x_view(), y_view(), linear_workspace->data(), linear_workspace->bytes(), stream_));
    };

    std::vector<RecordedLaunch> launches = record(driver(), run_kernel);
    if (const auto others = record(driver(), run_linear); launches.empty() || !same_kernels(launches, others)) {
      fail(format("{}: Kernel::run launches {} kernels, Fp8Linear::run {}, or others", family.name(), launches.size(),
                  others.size()));
    }
    row.launches = launches.size();
    std::function<void()> finish = [] {};
    if (family.is_vendor()) {
      finish = ready_matmul(static_cast<const CudaWeight&>(*weight));
    }
    const bool has_matmul = family.is_vendor();
    const auto run_bare = [&] {
      for (RecordedLaunch& launch : launches) {
        must(driver().launch_kernel(&launch.config, launch.function, launch.pointers.data(), nullptr), "cuLaunchKernelEx");
      }
      if (has_matmul) {
        finish();
      }
    };
    time_all(run_bare, run_kernel, run_linear, row);
    return row;
  }

 private:
  const Driver& driver() const { return *context_.driver; }
  ConstMatrixView x_view() const { return {x_->data(), DType::bf16, kM, kK, kK, 1}; }
  MatrixView y_view() const { return {y_->data(), DType::bf16, kM, kN, kN, 1}; }

  ReadyMatmul ready_matmul(const CudaWeight& weight) {
    ReadyMatmul matmul;
    matmul.device = must(lt_device(context_));
    Product product;
    product.m = kM;
    product.n = product.y_stride = kN;
    product.k = product.x_stride = kK;
    const auto algorithms = heuristic_algorithms(matmul.device, product, 1);
    if (algorithms.empty()) {
      fail("cuBLASLt has no algorithm for the product");
    }
    matmul.algorithm = algorithms.front().algo;
    // Codes and scales of their own: what they hold does not matter to the host.
    codes_x_ = must(allocate_device(context_, kM * kK));
    scales_x_ = must(allocate_device(context_, kM * 4));
    library_workspace_ = must(allocate_device(context_, static_cast<std::int64_t>(algorithms.front().workspaceSize)));
    matmul.pointers = {weight.codes(),
                       weight.scales(),
                       codes_x_->pointer(),
                       scales_x_->pointer(),
                       y_->pointer(),
                       library_workspace_->pointer(),
                       static_cast<std::int64_t>(algorithms.front().workspaceSize)};
    matmul.stream = stream_;
    const CublasLt& api = *matmul.device.api;
    cublasStatus_t status = describe_product(api, product, matmul.descriptors);
    for (const auto& [attribute, pointer] : {std::pair{CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, weight.scales()},
                                             {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales_x_->pointer()}}) {
      const void* value = to_pointer(pointer);
      if (status == CUBLAS_STATUS_SUCCESS) {
        status = api.desc_set(&matmul.descriptors.operation, attribute, static_cast<const void*>(&value), sizeof(value));
      }
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
      fail(cublaslt_error(api, status, "describing the product").message);
    }
    return matmul;
  }

  // Host microseconds a call of a burst; then waits for the device.
  template <class Call>
  double burst_us(const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < options_.calls; ++i) {
      call();
    }
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
    must(driver().stream_synchronize(stream_), "cuStreamSynchronize");
    return taken.count() / options_.calls;
  }

  template <class Bare, class OfKernel, class OfLinear>
  void time_all(const Bare& bare, const OfKernel& of_kernel, const OfLinear& of_linear, Row& row) {
    std::array<std::vector<double>, 3> us;
    for (int round = -10; round < options_.rounds; ++round) {  // The first ten warm up.
      std::array<double, 3> now = {};
      for (int i = 0; i < 3; ++i) {
        const auto which = static_cast<std::size_t>((round + 12 + (round % 2 == 0 ? i : 2 - i)) % 3);
        now[which] = which == 0 ? burst_us(bare) : (which == 1 ? burst_us(of_kernel) : burst_us(of_linear));
      }
      for (std::size_t i = 0; round >= 0 && i < us.size(); ++i) {
        us[i].push_back(now[i]);
      }
    }
    for (std::size_t i = 0; i < us.size(); ++i) {
      row.us[i] = median(us[i]);
    }
    const auto beyond = [&](std::size_t which) {
      std::vector<double> differences(us[0].size());
      std::ranges::transform(us[which], us[0], differences.begin(), std::minus<>());
      return signed_rank_interval(differences, 0.025);
    };
    row.kernel_beyond_us = beyond(1);
    row.linear_beyond_us = beyond(2);
  }

  const Options& options_;
  Device device_;
  const DeviceContext& context_;
  CurrentContext current_;
  Problem problem_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
  WeightSource source_;
  std::unique_ptr<CudaBuffer> x_, y_, codes_x_, scales_x_, library_workspace_;
  CUstream stream_ = nullptr;
};

std::string json_of(const Interval& interval) {
  return format("[{:.4f}, {:.4f}, {:.4f}]", interval.mid, interval.lo, interval.hi);
}

void write_json(const Options& options, const DeviceInfo& device, const std::vector<Row>& rows) {
  std::string text = format(
      "{{\n  \"device_name\": \"{}\",\n  \"octile_version\": \"{}\",\n  \"unit\": \"us of host time a call\",\n  \"m\": "
      "{},\n  "
      "\"n\": {},\n  \"k\": {},\n  \"rounds\": {},\n  \"calls_a_burst\": {},\n  \"rows\": [\n",
      device.name, version(), kM, kN, kK, options.rounds, options.calls);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    text += format(
        "    {{\"family\": \"{}\", \"config\": {}, \"launches\": {}, \"bare_us\": {:.4f}, \"kernel_us\": {:.4f}, "
        "\"linear_us\": {:.4f}, \"kernel_beyond_bare_us\": {}, \"linear_beyond_bare_us\": {}}}{}\n",
        row.family, row.config, row.launches, row.us[0], row.us[1], row.us[2], json_of(row.kernel_beyond_us),
        json_of(row.linear_beyond_us), i + 1 < rows.size() ? "," : "");
  }
  text += "  ]\n}\n";
  std::ofstream file(options.json);
  if (!(file << text << std::flush)) {
    fail(format("cannot write {}", options.json));
  }
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  HostTime host_time(options);
  std::printf("%s, M = %d, N = K = %d: host us a call, median of %d rounds of %d calls; beyond bare: paired, 95 %%\n",
              host_time.info().name.c_str(), static_cast<int>(kM), static_cast<int>(kN), options.rounds, options.calls);
  std::printf("%-14s %8s %8s %8s %8s   %-24s %-24s\n", "family", "launches", "bare", "kernel", "linear",
              "kernel beyond bare", "linear beyond bare");
  std::vector<Row> rows;
  for (const char* name : {"ada_mma", "hopper_decode", "cublaslt"}) {
    const KernelFamily* family = find_family(name);
    if (family == nullptr || !family->available(host_time.info())) {
      std::printf("%-14s not available here\n", name);
      continue;
    }
    rows.push_back(host_time.measure(*family));
    const Row& row = rows.back();
    const auto text = [](const Interval& interval) {
      return format("{:.3f} [{:.3f}, {:.3f}]", interval.mid, interval.lo, interval.hi);
    };
    std::printf("%-14s %8zu %8.3f %8.3f %8.3f   %-24s %-24s\n", row.family.c_str(), row.launches, row.us[0], row.us[1],
                row.us[2], text(row.kernel_beyond_us).c_str(), text(row.linear_beyond_us).c_str());
  }
  if (!options.json.empty()) {
    write_json(options, host_time.info(), rows);
  }
  return rows.empty() ? 1 : 0;
}

}  // namespace
}  // namespace octile

int main(int argc, char** argv) {
  return octile::status_of([&] { return octile::run(argc, argv); });
}
