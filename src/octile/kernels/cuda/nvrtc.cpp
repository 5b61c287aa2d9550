// SPDX-License-Identifier: Apache-2.0
// NVIDIA's run-time compiler, opened at run time.
#include "octile/kernels/cuda/nvrtc.h"

#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/cuda/function_table.h"

#include <utility>

namespace octile::cuda {
namespace {

Expected<void> resolve_all(const SharedLibrary& library, Nvrtc& table) {
  OCTILE_NVRTC_FUNCTIONS(OCTILE_RESOLVE)
  return {};
}

// Destroys the program whatever happens.
class Program {
 public:
  explicit Program(const Nvrtc& api) noexcept : api_(&api) {}
  ~Program() {
    if (program_ != nullptr) {
      api_->destroy_program(&program_);
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  nvrtcProgram* out() noexcept { return &program_; }
  nvrtcProgram get() const noexcept { return program_; }

 private:
  const Nvrtc* api_;
  nvrtcProgram program_ = nullptr;
};

Error nvrtc_error(const Nvrtc& api, nvrtcResult result, std::string_view what) {
  const ErrorCode code = result == NVRTC_ERROR_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::failed;
  return make_error(code, "{}: {}", what, api.error_string(result));
}

// Size and content of one of a program's results. NVRTC counts a closing zero for text.
template <class Size, class Get>
Expected<std::string> result_of(const Nvrtc& api, nvrtcProgram program, Size size, Get get, const char* what) {
  std::size_t bytes = 0;
  if (const nvrtcResult result = size(program, &bytes); result != NVRTC_SUCCESS) {
    return nvrtc_error(api, result, what);
  }
  std::string text(bytes, '\0');
  if (bytes > 0) {
    if (const nvrtcResult result = get(program, text.data()); result != NVRTC_SUCCESS) {
      return nvrtc_error(api, result, what);
    }
  }
  return text;
}

std::string without_closing_zeros(std::string text) {
  while (!text.empty() && text.back() == '\0') {
    text.pop_back();
  }
  return text;
}

// One attempt; invalid_argument: an option that this NVRTC does not know.
Expected<NvrtcOutput> compile_program(const Nvrtc& nvrtc, const NvrtcInput& input, const std::vector<const char*>& options,
                                      const std::vector<const char*>& texts, const std::vector<const char*>& names) {
  Program program(nvrtc);
  if (const nvrtcResult result = nvrtc.create_program(program.out(), input.source.c_str(), input.name.c_str(),
                                                      static_cast<int>(texts.size()), texts.data(), names.data());
      result != NVRTC_SUCCESS) {
    return nvrtc_error(nvrtc, result, "nvrtcCreateProgram of " + input.name);
  }
  const nvrtcResult compiled = nvrtc.compile_program(program.get(), static_cast<int>(options.size()), options.data());
  NvrtcOutput output;
  auto log = result_of(nvrtc, program.get(), nvrtc.log_size, nvrtc.get_log, "nvrtcGetProgramLog");
  if (log) {
    output.log = without_closing_zeros(std::move(*log));
  }
  if (compiled != NVRTC_SUCCESS) {
    const ErrorCode code = compiled == NVRTC_ERROR_OUT_OF_MEMORY
                               ? ErrorCode::out_of_memory
                               : (compiled == NVRTC_ERROR_INVALID_OPTION ? ErrorCode::invalid_argument : ErrorCode::failed);
    return make_error(code, "NVRTC {} on {}: {}\n{}", version_text(nvrtc.version), input.name, nvrtc.error_string(compiled),
                      output.log);
  }
  auto cubin = result_of(nvrtc, program.get(), nvrtc.cubin_size, nvrtc.get_cubin, "nvrtcGetCUBIN");
  if (!cubin) {
    return cubin.error();
  }
  auto ptx = result_of(nvrtc, program.get(), nvrtc.ptx_size, nvrtc.get_ptx, "nvrtcGetPTX");
  if (!ptx) {
    return ptx.error();
  }
  output.cubin = std::move(*cubin);
  output.ptx = without_closing_zeros(std::move(*ptx));
  return output;
}

}  // namespace

Expected<std::unique_ptr<Nvrtc>> open_nvrtc(const std::string& path) {
  auto opened = path.empty() ? open_library({"NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, true})
                             : open_library_file(path);
  if (!opened) {
    return opened.error();
  }
  const SharedLibrary& library = *opened;
  auto nvrtc = std::make_unique<Nvrtc>();
  if (auto resolved = resolve_all(library, *nvrtc); !resolved) {
    return resolved.error();
  }
  int major = 0;
  int minor = 0;
  if (const nvrtcResult result = nvrtc->version_of(&major, &minor); result != NVRTC_SUCCESS) {
    return make_error(ErrorCode::unavailable, "{}: nvrtcVersion failed: {}", library.path, nvrtc->error_string(result));
  }
  nvrtc->version = major * 1000 + minor * 10;
  nvrtc->path = library.path;
  if (nvrtc->version < kMinNvrtcVersion) {
    return make_error(ErrorCode::unavailable, "{} is NVRTC {}; Octile needs {} or newer", library.path,
                      version_text(nvrtc->version), version_text(kMinNvrtcVersion));
  }
  int count = 0;
  if (nvrtc->num_supported_archs(&count) == NVRTC_SUCCESS && count > 0) {
    nvrtc->archs.resize(static_cast<std::size_t>(count));
    if (nvrtc->supported_archs(nvrtc->archs.data()) != NVRTC_SUCCESS) {
      nvrtc->archs.clear();
    }
  }
  return nvrtc;
}

Expected<const Nvrtc*> nvrtc() {
  static const auto* const opened = new Expected<std::unique_ptr<Nvrtc>>(open_nvrtc(""));
  if (!*opened) {
    return opened->error();
  }
  return opened->value().get();
}

std::string beyond_driver(const Nvrtc& nvrtc, int driver_version) {
  // Within one major version older drivers load newer machine code.
  if (nvrtc.version / 1000 <= driver_version / 1000) {
    return "";
  }
  return format(
      "NVRTC {} ({}) is of a newer CUDA than the driver's {}, which may not load what it compiles: install NVRTC {}",
      version_text(nvrtc.version), nvrtc.path, version_text(driver_version), driver_version / 1000);
}

Expected<NvrtcOutput> run_nvrtc(const Nvrtc& nvrtc, const NvrtcInput& input) {
  std::vector<std::string> header_text;
  std::vector<std::string> header_name;
  for (const NvrtcHeader& header : input.headers) {
    header_text.emplace_back(header.text);
    header_name.emplace_back(header.name);
  }
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (std::size_t i = 0; i < header_text.size(); ++i) {
    texts.push_back(header_text[i].c_str());
    names.push_back(header_name[i].c_str());
  }
  std::vector<const char*> options;
  for (const std::string& option : input.options) {
    options.push_back(option.c_str());
  }
  // Where a driver is, NVRTC 13 keeps a cache of its own on disk, and what comes from there comes without ptxas' report: a
  // spill would go unseen. Older ones may not know the option.
  options.push_back("--no-cache");
  auto output = compile_program(nvrtc, input, options, texts, names);
  if (!output && output.error().code == ErrorCode::invalid_argument) {
    options.pop_back();
    output = compile_program(nvrtc, input, options, texts, names);
  }
  return output;
}

}  // namespace octile::cuda
