// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time: its functions, its errors in words, and each device's primary context.
#include "octile/kernels/cuda/driver.h"

#include "octile/kernels/cuda/function_table.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/table/device_names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <iomanip>
#include <map>
#include <mutex>
#include <utility>

namespace octile::cuda {
namespace {

Expected<void> resolve_all(const SharedLibrary& library, Driver& table) {
  OCTILE_CUDA_DRIVER_FUNCTIONS(OCTILE_RESOLVE)
  return {};
}

// The version is asked before the other functions are resolved, so that an old driver is called old, not incomplete.
Expected<int> version_of(const SharedLibrary& library) {
  std::add_pointer_t<CUresult(int*)> get_version = nullptr;
  if (auto resolved = resolve(library, "cuDriverGetVersion", get_version); !resolved) {
    return resolved.error();
  }
  int version = 0;
  if (const CUresult result = get_version(&version); result == CUDA_ERROR_STUB_LIBRARY) {
    return make_error(ErrorCode::unavailable, "{} is a toolkit's stub, not the driver", library.path);
  } else if (result != CUDA_SUCCESS) {
    return make_error(ErrorCode::unavailable, "{}: cuDriverGetVersion failed with error {}", library.path,
                      static_cast<int>(result));
  }
  if (version < kMinDriverVersion) {
    return make_error(ErrorCode::unavailable, "the CUDA driver {} speaks CUDA {}; Octile needs {} or newer", library.path,
                      version_text(version), version_text(kMinDriverVersion));
  }
  return version;
}

Expected<int> attribute_of(const Driver& driver, CUdevice device, CUdevice_attribute attribute, const char* name) {
  int value = 0;
  if (const CUresult result = driver.device_get_attribute(&value, attribute, device); result != CUDA_SUCCESS) {
    return driver_error(driver, result, name);
  }
  return value;
}

// As nvidia-smi prints it; "" where the driver does not say.
std::string uuid_of(const Driver& driver, CUdevice device) {
  CUuuid uuid{};
  if (driver.device_get_uuid(&uuid, device) != CUDA_SUCCESS) {
    return {};
  }
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    const bool is_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += format("{}{:02x}", is_group ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

Expected<DeviceInfo> describe(const Driver& driver, int index) {
  CUdevice device = 0;
  if (const CUresult result = driver.device_get(&device, index); result != CUDA_SUCCESS) {
    return driver_error(driver, result, format("cuDeviceGet({})", index));
  }
  std::array<char, 256> name = {};
  if (const CUresult result = driver.device_get_name(name.data(), static_cast<int>(name.size()) - 1, device);
      result != CUDA_SUCCESS) {
    return driver_error(driver, result, "cuDeviceGetName");
  }
  DeviceInfo info;
  info.id = format("cuda:{}", index);
  info.kind = DeviceKind::cuda;
  info.index = index;
  info.model = name.data();
  info.name = device_file_name(info.model);

  info.uuid = uuid_of(driver, device);

  struct Query {
    CUdevice_attribute attribute;
    const char* name;
    int value = 0;
  };
  std::array queries = {
      Query{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)"},
      Query{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MINOR)"},
      Query{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "cuDeviceGetAttribute(MULTIPROCESSOR_COUNT)"},
      Query{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, "cuDeviceGetAttribute(L2_CACHE_SIZE)"},
      Query{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            "cuDeviceGetAttribute(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)"}};
  for (Query& query : queries) {
    auto value = attribute_of(driver, device, query.attribute, query.name);
    if (!value) {
      return value.error();
    }
    query.value = *value;
  }
  info.arch = format("sm_{}{}", queries[0].value, queries[1].value);
  info.sm_count = queries[2].value;
  info.llc_bytes = queries[3].value;
  info.shared_memory_bytes = queries[4].value;
  std::size_t bytes = 0;
  if (const CUresult result = driver.device_total_mem(&bytes, device); result != CUDA_SUCCESS) {
    return driver_error(driver, result, "cuDeviceTotalMem");
  }
  info.memory_bytes = static_cast<std::int64_t>(bytes);
  return info;
}

}  // namespace

std::string version_text(int version) { return format("{}.{}", version / 1000, version % 1000 / 10); }

Error driver_error(const Driver& driver, CUresult result, std::string_view what) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) {
    name = "unknown error";
  }
  if (driver.get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) {
    text = "no description";
  }
  ErrorCode code = ErrorCode::failed;
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      code = ErrorCode::out_of_memory;
      break;
    case CUDA_ERROR_INVALID_VALUE:
      code = ErrorCode::invalid_argument;
      break;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      code = ErrorCode::unavailable;
      break;
    default:
      break;
  }
  return make_error(code, "{}: {} ({}; error {})", what, name, text, static_cast<int>(result));
}

Expected<std::unique_ptr<Driver>> open_driver(const std::string& path) {
  auto opened = path.empty() ? open_library({"the CUDA driver", {"libcuda.so.1"}, false}) : open_library_file(path);
  if (!opened) {
    return opened.error();
  }
  const SharedLibrary& library = *opened;
  auto version = version_of(library);
  if (!version) {
    return version.error();
  }
  auto driver = std::make_unique<Driver>();
  if (auto resolved = resolve_all(library, *driver); !resolved) {
    return resolved.error();
  }
  driver->version = *version;
  driver->path = library.path;
  if (const CUresult result = driver->init(0); result != CUDA_SUCCESS) {
    Error error = driver_error(*driver, result, format("cuInit of {} (CUDA {})", library.path, version_text(*version)));
    error.code = ErrorCode::unavailable;
    return error;
  }
  return driver;
}

Expected<const Driver*> driver() {
  // Kept for the life of the process, past the destructors of static objects that free device memory.
  static const auto* const opened = new Expected<std::unique_ptr<Driver>>(open_driver(""));
  if (!*opened) {
    return opened->error();
  }
  return opened->value().get();
}

Expected<std::vector<DeviceInfo>> list_devices(const Driver& driver) {
  int count = 0;
  if (const CUresult result = driver.device_get_count(&count); result == CUDA_ERROR_NO_DEVICE) {
    return std::vector<DeviceInfo>{};
  } else if (result != CUDA_SUCCESS) {
    return driver_error(driver, result, "cuDeviceGetCount");
  }
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    auto info = describe(driver, index);
    if (!info) {
      return info.error();
    }
    devices.push_back(std::move(*info));
  }
  return devices;
}

Expected<std::unique_ptr<DeviceContext>> open_device(const Driver& driver, int index) {
  int count = 0;
  if (const CUresult result = driver.device_get_count(&count); result != CUDA_SUCCESS) {
    return driver_error(driver, result, "cuDeviceGetCount");
  }
  if (index < 0 || index >= count) {
    return make_error(ErrorCode::unavailable, "no device cuda:{}: the driver shows {}", index, count);
  }
  auto info = describe(driver, index);
  if (!info) {
    return info.error();
  }
  auto context = std::make_unique<DeviceContext>();
  context->driver = &driver;
  context->info = std::move(*info);
  if (const CUresult result = driver.device_get(&context->device, index); result != CUDA_SUCCESS) {
    return driver_error(driver, result, format("cuDeviceGet({})", index));
  }
  if (const CUresult result = driver.primary_ctx_retain(&context->context, context->device); result != CUDA_SUCCESS) {
    return driver_error(driver, result, format("cuDevicePrimaryCtxRetain of cuda:{}", index));
  }
  return context;
}

Expected<const DeviceContext*> device_context(int index) {
  if (const CompileRecorder* recorder = CompileRecorder::active()) {
    return &recorder->context();
  }
  auto opened = driver();
  if (!opened) {
    return opened.error();
  }
  struct Contexts {
    std::mutex mutex;
    std::map<int, std::unique_ptr<DeviceContext>> by_index;
  };
  static auto* const contexts = new Contexts;
  const std::lock_guard lock(contexts->mutex);
  if (const auto found = contexts->by_index.find(index); found != contexts->by_index.end()) {
    return found->second.get();
  }
  auto context = open_device(**opened, index);
  if (!context) {
    return context.error();
  }
  return contexts->by_index.emplace(index, std::move(*context)).first->second.get();
}

Error device_error(const DeviceContext& context, CUresult result, std::string_view what) {
  return driver_error(*context.driver, result, format("{} on {}", what, context.info.id));
}

std::string driver_release(const std::string& file) {
  constexpr int kLongest = 32;
  std::ifstream stream(file);
  std::string release;
  stream >> std::setw(kLongest + 1) >> release;
  const bool is_version = !release.empty() && release.size() <= std::size_t{kLongest} &&
                          release.find_first_not_of("0123456789.") == std::string::npos;
  return is_version ? release : std::string();
}

CurrentContext::CurrentContext(const DeviceContext& context) noexcept : context_(&context) {
  // An engine's thread has it current already: one call in place of a push and a pop.
  CUcontext now = nullptr;
  if (context.driver->ctx_get_current(&now) == CUDA_SUCCESS && now == context.context) {
    return;
  }
  result_ = context.driver->ctx_push_current(context.context);
  pushed_ = result_ == CUDA_SUCCESS;
}

CurrentContext::~CurrentContext() {
  if (pushed_) {
    CUcontext popped = nullptr;
    context_->driver->ctx_pop_current(&popped);
  }
}

Expected<void> CurrentContext::made() const {
  if (result_ == CUDA_SUCCESS) {
    return {};
  }
  return driver_error(*context_->driver, result_, format("cuCtxPushCurrent of {}'s context", context_->info.id));
}

OutsideCapture::OutsideCapture(const Driver& driver) noexcept : driver_(&driver) { driver_->exchange_capture_mode(&mode_); }

OutsideCapture::~OutsideCapture() { driver_->exchange_capture_mode(&mode_); }

}  // namespace octile::cuda
