// SPDX-License-Identifier: Apache-2.0
// From embedded device source to machine code: NVRTC behind the cubin cache. Works on a machine without a GPU.
#include "octile/kernels/cuda/compile.h"

#include "octile/core/cores.h"
#include "octile/core/env.h"
#include "octile/core/log.h"
#include "octile/kernels/cuda/cubin_cache.h"
#include "octile/kernels/cuda/cubin_cache_limit.h"
#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/cuda/nvrtc.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

namespace octile::cuda {
namespace {

const DeviceSource* find_source(std::string_view name) {
  const auto sources = device_sources();
  const auto found = std::ranges::find(sources, name, &DeviceSource::name);
  return found == sources.end() ? nullptr : &*found;
}

// Names in `#include "name"` lines, in order.
std::vector<std::string_view> includes_of(std::string_view text) {
  constexpr std::string_view kDirective = "#include \"";
  std::vector<std::string_view> names;
  for (std::size_t at = text.find(kDirective); at != std::string_view::npos; at = text.find(kDirective, at)) {
    at += kDirective.size();
    const std::size_t end = text.find('"', at);
    if (end == std::string_view::npos) {
      break;
    }
    names.push_back(text.substr(at, end - at));
  }
  return names;
}

// A source with everything it includes, in order of their names.
struct SourceTree {
  const DeviceSource* root = nullptr;
  std::vector<const DeviceSource*> headers;
};
Expected<SourceTree> tree_of(const DeviceSource& root) {
  SourceTree tree;
  tree.root = &root;
  std::vector<const DeviceSource*> open = {tree.root};
  std::set<std::string_view> seen = {tree.root->name};
  while (!open.empty()) {
    const DeviceSource* source = open.back();
    open.pop_back();
    for (const std::string_view include : includes_of(source->text)) {
      const DeviceSource* header = find_source(include);
      if (header == nullptr) {
        return make_error(ErrorCode::invalid_argument, "device source {} includes '{}', which is not embedded", source->name,
                          include);
      }
      if (seen.insert(header->name).second) {
        tree.headers.push_back(header);
        open.push_back(header);
      }
    }
  }
  std::ranges::sort(tree.headers, {}, &DeviceSource::name);
  return tree;
}

Expected<SourceTree> tree_of(std::string_view name) {
  const DeviceSource* root = find_source(name);
  if (root == nullptr) {
    std::string known;
    for (const DeviceSource& source : device_sources()) {
      known += format("{}{}", known.empty() ? "" : ", ", source.name);
    }
    return make_error(ErrorCode::invalid_argument, "no device source '{}': embedded are {}", name, known);
  }
  return tree_of(*root);
}

std::string hash_of(const SourceTree& tree) {
  std::string all = format("{}\n{}", tree.root->name, tree.root->text);
  for (const DeviceSource* header : tree.headers) {
    all += format("\n{}\n{}", header->name, header->text);
  }
  return digest_of(all);
}

// Options that every kernel is compiled with. Division and square root stay exact: the quantiser's contract needs them so.
constexpr const char* kOptions[] = {"--std=c++17", "--extra-device-vectorization", "--ptxas-options=-v"};

std::vector<std::string> options_of(const CompileRequest& request) {
  std::vector<std::string> options = {"--gpu-architecture=" + request.arch};
  for (const char* option : kOptions) {
    options.emplace_back(option);
  }
  for (const std::string& define : request.defines) {
    options.push_back("-D" + define);
  }
  return options;
}

// What the machine code depends on. `compiler` is NVRTC's version; an exported entry serves machines that have none, so its
// key leaves it out.
CubinKey key_of(const CompileRequest& request, const SourceTree& tree, std::string_view compiler) {
  std::string text = format("octile cubin, with report\nsource {} {}\nkernel {}\ncompiler {}\n", request.source,
                            hash_of(tree), request.kernel, compiler);
  for (const std::string& option : options_of(request)) {
    text += format("option {}\n", option);
  }
  return make_cubin_key(std::move(text));
}

// The integer that stands before `word` in `line`, or 0: "Used 40 registers", "16 bytes spill stores".
int number_before(std::string_view line, std::string_view word) {
  const std::size_t at = line.find(word);
  if (at == std::string_view::npos) {
    return 0;
  }
  std::size_t end = at;
  while (end > 0 && line[end - 1] == ' ') {
    --end;
  }
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') {
    --begin;
  }
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

// Reads ptxas' report on `kernel`: the lines from "Compiling entry function 'kernel'" to the next entry.
void read_resources(CompiledKernel& compiled) {
  const std::string_view log = compiled.log;
  const std::size_t begin = log.find("Compiling entry function '" + compiled.kernel + "'");
  if (begin == std::string_view::npos) {
    return;
  }
  const std::size_t next = log.find("Compiling entry function '", begin + 1);
  const std::string_view report = log.substr(begin, next == std::string_view::npos ? next : next - begin);
  compiled.registers = number_before(report, "registers");
  compiled.stack_bytes = number_before(report, "bytes stack frame");
  compiled.spill_store_bytes = number_before(report, "bytes spill stores");
  compiled.spill_load_bytes = number_before(report, "bytes spill loads");
  compiled.static_shared_bytes = number_before(report, "bytes smem");
}

CompiledKernel make_compiled(const CompileRequest& request, CubinEntry entry, bool from_cache) {
  CompiledKernel compiled;
  compiled.arch = request.arch;
  compiled.kernel = request.kernel;
  compiled.cubin.resize(entry.cubin.size());
  std::memcpy(compiled.cubin.data(), entry.cubin.data(), entry.cubin.size());
  compiled.log = std::move(entry.log);
  compiled.from_cache = from_cache;
  read_resources(compiled);
  return compiled;
}

Expected<void> check_request(const CompileRequest& request) {
  const bool arch_fits = request.arch.size() > 3 && request.arch.starts_with("sm_");
  if (!arch_fits || request.kernel.empty()) {
    return make_error(ErrorCode::invalid_argument, "cannot compile kernel '{}' of {} for architecture '{}': want sm_XX",
                      request.kernel, request.source, request.arch);
  }
  return {};
}

Expected<void> check_arch(const Nvrtc& api, const std::string& arch) {
  int number = 0;
  std::from_chars(arch.data() + 3, arch.data() + arch.size(), number);
  if (api.archs.empty() || std::ranges::find(api.archs, number) != api.archs.end()) {
    return {};
  }
  return make_error(ErrorCode::unavailable, "NVRTC {} ({}) compiles for sm_{} to sm_{}, not for {}",
                    version_text(api.version), api.path, api.archs.front(), api.archs.back(), arch);
}

Expected<NvrtcOutput> run_compiler(const Nvrtc& api, const CompileRequest& request, const SourceTree& tree) {
  if (auto fits = check_arch(api, request.arch); !fits) {
    return fits.error();
  }
  NvrtcInput input;
  input.name = request.source;
  input.source = tree.root->text;
  for (const DeviceSource* header : tree.headers) {
    input.headers.push_back({header->name, header->text});
  }
  input.options = options_of(request);
  auto output = run_nvrtc(api, input);
  if (output && output->ptx.find(".entry " + request.kernel + "(") == std::string::npos) {
    return make_error(ErrorCode::invalid_argument, "{} has no extern \"C\" __global__ function '{}'", request.source,
                      request.kernel);
  }
  return output;
}

// The entry of `directory`, or nothing: what is wrong with it is said once, and the caller compiles and replaces it.
std::optional<CubinEntry> look_up(const std::string& directory, const CubinKey& key) {
  auto entry = read_entry(directory, key);
  if (!entry) {
    log_once(LogLevel::warning, "cubin cache entry " + key.digest, "cubin cache: " + entry.error().message);
    return std::nullopt;
  }
  return std::move(*entry);
}

// Writes into the cache, and makes room there.
void store(const std::string& directory, const CubinKey& key, const CubinEntry& entry) {
  if (auto written = write_entry(directory, key, entry); !written) {
    log_once(LogLevel::warning, "cubin cache write",
             format("cubin cache: going on without it: {}", written.error().message));
    return;
  }
  const auto limit = cache_limit_bytes();
  if (limit && *limit == 0) {
    return;
  }
  const auto trimmed = limit ? trim_cache(directory, *limit) : Expected<CacheRemoval>(limit.error());
  if (!trimmed) {
    log_once(LogLevel::warning, "cubin cache limit",
             format("cubin cache: its limit is not kept: {}", trimmed.error().message));
  }
}

std::string export_directory() {
  const auto path = env::get_text("OCTILE_CUBIN_PATH");
  return path ? *path : std::string();
}

CubinKey cache_key_of(const CompileRequest& request, const SourceTree& tree, const Nvrtc& api) {
  return key_of(request, tree, format("NVRTC {}", version_text(api.version)));
}

// The compiler's output of `tree`, past every cache.
Expected<NvrtcOutput> compile_anew(const CompileRequest& request, const Expected<SourceTree>& tree) {
  if (auto valid = check_request(request); !valid) {
    return valid.error();
  }
  if (!tree) {
    return tree.error();
  }
  auto api = nvrtc();
  if (!api) {
    return api.error();
  }
  return run_compiler(**api, request, *tree);
}

}  // namespace

std::string compile_arch(std::string_view device_arch) {
  const bool has_own_instructions = device_arch == "sm_90" || device_arch == "sm_100" || device_arch == "sm_103";
  return std::string(device_arch) + (has_own_instructions ? "a" : "");
}

Expected<CompiledKernel> compile(const CompileRequest& request) {
  if (auto valid = check_request(request); !valid) {
    return valid.error();
  }
  auto tree = tree_of(request.source);
  if (!tree) {
    return tree.error();
  }
  const std::string exported = export_directory();
  if (!exported.empty()) {
    if (auto entry = look_up(exported, key_of(request, *tree, "any"))) {
      return make_compiled(request, std::move(*entry), true);
    }
  }
  auto api = nvrtc();
  if (!api) {
    return make_error(ErrorCode::unavailable, "kernel {} of {} for {} is not compiled yet{}, and {}", request.kernel,
                      request.source, request.arch, exported.empty() ? "" : format(" (nor exported to {})", exported),
                      api.error().message);
  }
  const std::string directory = cubin_cache_directory();
  const CubinKey key = cache_key_of(request, *tree, **api);
  if (directory.empty()) {
    log_once(LogLevel::warning, "cubin cache directory",
             "cubin cache: none, since neither OCTILE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set; kernels are compiled anew");
  } else if (auto entry = look_up(directory, key)) {
    note_use(entry_path(directory, key));
    return make_compiled(request, std::move(*entry), true);
  }
  auto output = run_compiler(**api, request, *tree);
  if (!output) {
    return output.error();
  }
  CubinEntry entry{std::move(output->cubin), std::move(output->log)};
  if (!directory.empty()) {
    store(directory, key, entry);
  }
  return make_compiled(request, std::move(entry), false);
}

bool is_compiled(const CompileRequest& request) {
  const auto tree = tree_of(request.source);
  if (!tree || !check_request(request)) {
    return false;
  }
  const auto is_in = [](const std::string& directory, const CubinKey& key) {
    std::error_code unknown;
    return !directory.empty() && std::filesystem::exists(entry_path(directory, key), unknown);
  };
  if (is_in(export_directory(), key_of(request, *tree, "any"))) {
    return true;
  }
  const auto api = nvrtc();
  return api && is_in(cubin_cache_directory(), cache_key_of(request, *tree, **api));
}

int compile_threads_within(int cores, int spare) noexcept {
  constexpr int kMaxThreads = 64;
  const int half = (std::max(cores, 1) + 1) / 2;
  return std::clamp(cores - std::max(spare, 0), std::min(half, kMaxThreads), kMaxThreads);
}

int compile_threads(int spare_cores) { return compile_threads_within(usable_cores(), spare_cores); }

std::vector<Expected<CompiledKernel>> compile_all(std::span<const CompileRequest> requests, int threads,
                                                  const std::function<void(std::size_t)>& done) {
  std::vector<std::optional<Expected<CompiledKernel>>> results(requests.size());
  std::atomic<std::size_t> next = 0;
  std::mutex done_mutex;
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < requests.size(); i = next.fetch_add(1)) {
      // An exception that left a thread would end the process.
      try {
        results[i] = compile(requests[i]);
      } catch (const std::bad_alloc&) {
        results[i] = out_of_memory("kernel {} of {}: out of memory", requests[i].kernel, requests[i].source);
      }
      if (done) {
        const std::lock_guard lock(done_mutex);
        done(i);
      }
    }
  };
  const int count = std::clamp(threads > 0 ? threads : compile_threads(), 1, std::max(1, static_cast<int>(requests.size())));
  {
    std::vector<std::jthread> helpers;
    try {
      for (int i = 1; i < count; ++i) {
        helpers.emplace_back(work);
      }
    } catch (const std::system_error& refused) {  // Those that there are compile all.
      log_once(LogLevel::warning, "compile.threads",
               format("compiling with {} threads in place of {}: {}", helpers.size() + 1, count, refused.what()));
    }
    work();
  }
  std::vector<Expected<CompiledKernel>> all;
  all.reserve(results.size());
  for (auto& result : results) {
    all.push_back(std::move(*result));
  }
  return all;
}

Expected<CompiledKernel> compile_text(const CompileRequest& request, std::string_view text) {
  auto output = compile_anew(request, tree_of(DeviceSource{request.source, text}));
  if (!output) {
    return output.error();
  }
  return make_compiled(request, {std::move(output->cubin), std::move(output->log)}, false);
}

Expected<std::string> compile_to_ptx(const CompileRequest& request) {
  auto output = compile_anew(request, tree_of(request.source));
  if (!output) {
    return output.error();
  }
  return std::move(output->ptx);
}

Expected<int> export_cubins(std::span<const CompileRequest> requests, const std::string& directory) {
  std::set<std::string> written;
  const auto compiled = compile_all(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!compiled[i]) {
      return compiled[i].error();
    }
    auto tree = tree_of(requests[i].source);
    if (!tree) {
      return tree.error();
    }
    const CubinKey key = key_of(requests[i], *tree, "any");
    CubinEntry entry{std::string(compiled[i]->cubin.size(), '\0'), compiled[i]->log};
    std::memcpy(entry.cubin.data(), compiled[i]->cubin.data(), entry.cubin.size());
    // For other machines and users, so with the rights that the process gives to any file.
    if (auto stored = write_entry(directory, key, entry, NewFileAccess::by_umask); !stored) {
      return stored.error();
    }
    written.insert(key.digest);
  }
  return static_cast<int>(written.size());
}

std::string source_hash(std::string_view source) {
  auto tree = tree_of(source);
  return tree ? hash_of(*tree) : std::string();
}

}  // namespace octile::cuda
