// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda.so.1: device memory is host memory, kernels do nothing. -DOCTILE_FAKE_WITHOUT_MEM_ALLOC leaves a
// function out, as an older or a foreign library would.
#include "fake_driver.h"

#include "faults/fault_point.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

namespace octile::cuda::fake {
namespace {

State& state() {
  static State instance;
  return instance;
}

// Contexts are 1 + the ordinal, as pointers that nothing follows.
CUcontext context_of(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);  // NOLINT(performance-no-int-to-ptr)
}

struct Allocation {
  std::size_t bytes = 0;
  CUcontext context = nullptr;
};
std::map<CUdeviceptr, Allocation>& allocations() {
  static std::map<CUdeviceptr, Allocation> instance;
  return instance;
}

CUcontext current() { return state().current.empty() ? nullptr : state().current.back(); }

void* host(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer));  // NOLINT(performance-no-int-to-ptr)
}

// Counts a touch of memory while another device's context is current, or of memory that is not allocated.
bool touches_own(CUdeviceptr pointer, std::size_t bytes) {
  const auto after = allocations().upper_bound(pointer);
  if (after == allocations().begin()) {
    ++state().wrong_context_calls;
    return false;
  }
  const auto& [begin, allocation] = *std::prev(after);
  if (pointer + bytes > begin + allocation.bytes || allocation.context != current()) {
    ++state().wrong_context_calls;
    return false;
  }
  return true;
}

CUresult outcome(const char* call) {
  return state().failing_call == call || test::fault_here("cuda") ? state().failure : CUDA_SUCCESS;
}

// A handle that is distinct from every other.
template <class Handle>
Handle next_handle() {
  static std::uintptr_t count = 0x1000;
  return reinterpret_cast<Handle>(++count);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace
}  // namespace octile::cuda::fake

using namespace octile::cuda;        // NOLINT(google-build-using-namespace)
using namespace octile::cuda::fake;  // NOLINT(google-build-using-namespace)

#define OCTILE_FAKE extern "C" __attribute__((visibility("default")))

OCTILE_FAKE State* octile_fake_state() { return &state(); }

OCTILE_FAKE CUresult cuInit(unsigned) { return state().init_result; }
OCTILE_FAKE CUresult cuDriverGetVersion(int* version) {
  // For a test of the command, which is another process.
  const char* text = std::getenv("OCTILE_FAKE_CUDA_VERSION");
  *version = text == nullptr ? state().version : std::atoi(text);
  return outcome("cuDriverGetVersion");
}
OCTILE_FAKE CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
OCTILE_FAKE CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : "a fake driver's failure";
  return CUDA_SUCCESS;
}
OCTILE_FAKE CUresult cuDeviceGetCount(int* count) {
  *count = state().device_count;
  return outcome("cuDeviceGetCount");
}
OCTILE_FAKE CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return outcome("cuDeviceGet");
}
OCTILE_FAKE CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  const char* first = std::getenv("OCTILE_FAKE_CUDA_NAME");
  const std::string text =
      first != nullptr && device == 0 ? first : state().device_names.at(static_cast<std::size_t>(device));
  std::strncpy(name, text.c_str(), static_cast<std::size_t>(size));
  return outcome("cuDeviceGetName");
}
OCTILE_FAKE CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  for (int i = 0; i < 16; ++i) {
    uuid->bytes[i] = static_cast<char>(0xa0 + i);
  }
  uuid->bytes[15] = static_cast<char>(device);
  return outcome("cuDeviceGetUuid");
}
OCTILE_FAKE CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const bool hopper = device == 0;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = hopper ? 132 : 142;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = hopper ? 62914560 : 100663296;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = hopper ? 9 : 8;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = hopper ? 0 : 9;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = hopper ? 232448 : 101376;
      break;
  }
  return outcome("cuDeviceGetAttribute");
}
OCTILE_FAKE CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  *bytes = state().memory_limit;
  return outcome("cuDeviceTotalMem");
}
OCTILE_FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return outcome("cuDevicePrimaryCtxRetain");
}
OCTILE_FAKE CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const CUresult result = outcome("cuCtxPushCurrent");
  if (result == CUDA_SUCCESS) {
    state().current.push_back(context);
  }
  return result;
}
OCTILE_FAKE CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (state().current.empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = state().current.back();
  state().current.pop_back();
  return CUDA_SUCCESS;
}
OCTILE_FAKE CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current();
  return CUDA_SUCCESS;
}
#ifndef OCTILE_FAKE_WITHOUT_MEM_ALLOC
OCTILE_FAKE CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  if (const CUresult result = outcome("cuMemAlloc"); result != CUDA_SUCCESS) {
    return result;
  }
  if (current() == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (state().allocated + bytes > state().memory_limit) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *pointer = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
  allocations()[*pointer] = {bytes, current()};
  state().allocated += bytes;
  return CUDA_SUCCESS;
}
#endif
OCTILE_FAKE CUresult cuMemFree_v2(CUdeviceptr pointer) {
  const auto found = allocations().find(pointer);
  if (found == allocations().end() || found->second.context != current()) {
    ++state().wrong_context_calls;
    return CUDA_ERROR_INVALID_VALUE;
  }
  state().allocated -= found->second.bytes;
  allocations().erase(found);
  std::free(host(pointer));
  return outcome("cuMemFree");
}
OCTILE_FAKE CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = state().memory_limit - state().allocated;
  *total_bytes = state().memory_limit;
  return CUDA_SUCCESS;
}
OCTILE_FAKE CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, std::size_t bytes) {
  if (!touches_own(destination, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(host(destination), source, bytes);
  return outcome("cuMemcpyHtoD");
}
OCTILE_FAKE CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, std::size_t bytes) {
  if (!touches_own(source, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(destination, host(source), bytes);
  return outcome("cuMemcpyDtoH");
}
OCTILE_FAKE CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream) {
  if (!touches_own(destination, bytes) || !touches_own(source, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(host(destination), host(source), bytes);
  return outcome("cuMemcpyDtoDAsync");
}
OCTILE_FAKE CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  for (std::size_t row = 0; row < copy->Height; ++row) {
    const CUdeviceptr to = copy->dstDevice + row * copy->dstPitch;
    const CUdeviceptr from = copy->srcDevice + row * copy->srcPitch;
    const bool to_device = copy->dstMemoryType == CU_MEMORYTYPE_DEVICE;
    const bool from_device = copy->srcMemoryType == CU_MEMORYTYPE_DEVICE;
    if ((to_device && !touches_own(to, copy->WidthInBytes)) || (from_device && !touches_own(from, copy->WidthInBytes))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const void* source = from_device ? host(from) : static_cast<const char*>(copy->srcHost) + row * copy->srcPitch;
    std::memcpy(to_device ? host(to) : static_cast<char*>(copy->dstHost) + row * copy->dstPitch, source, copy->WidthInBytes);
  }
  return outcome("cuMemcpy2D");
}
OCTILE_FAKE CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream) {
  const CUresult result = outcome("cuMemcpy2DAsync");
  return result == CUDA_SUCCESS ? cuMemcpy2DUnaligned_v2(copy) : result;
}
OCTILE_FAKE CUresult cuMemsetD8_v2(CUdeviceptr destination, unsigned char value, std::size_t bytes) {
  if (!touches_own(destination, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memset(host(destination), value, bytes);
  return outcome("cuMemsetD8");
}
OCTILE_FAKE CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, std::size_t bytes, CUstream) {
  return cuMemsetD8_v2(destination, value, bytes);
}
OCTILE_FAKE CUresult cuModuleLoadData(CUmodule* module, const void*) {
  const bool refuses = std::getenv("OCTILE_FAKE_CUDA_REFUSES_CODE") != nullptr;
  const CUresult result = refuses ? CUDA_ERROR_UNKNOWN : outcome("cuModuleLoadData");
  if (result == CUDA_SUCCESS) {
    *module = next_handle<CUmodule>();
    ++state().modules;
  }
  return result;
}
OCTILE_FAKE CUresult cuModuleUnload(CUmodule) {
  --state().modules;
  return outcome("cuModuleUnload");
}
OCTILE_FAKE CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  *function = next_handle<CUfunction>();
  return outcome("cuModuleGetFunction");
}
OCTILE_FAKE CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return outcome("cuFuncSetAttribute"); }
OCTILE_FAKE CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 32;
  return outcome("cuFuncGetAttribute");
}
OCTILE_FAKE CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  Launch launch;
  launch.context = current();
  launch.function = function;
  launch.config = *config;
  launch.attributes.assign(config->attrs, config->attrs + config->numAttrs);
  state().launches.push_back(launch);
  return outcome("cuLaunchKernelEx");
}
// A map that can be read: address, sizes, stride and rows of the box in its first words.
OCTILE_FAKE CUresult cuTensorMapEncodeTiled(std::uint64_t* map, int, unsigned, void* base, const std::uint64_t* sizes,
                                            const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t*,
                                            int, int, int, int) {
  const CUresult result = outcome("cuTensorMapEncodeTiled");
  if (result == CUDA_SUCCESS) {
    const std::uint64_t words[] = {reinterpret_cast<std::uintptr_t>(base), sizes[0], sizes[1], strides[0], box[1]};
    std::copy(std::begin(words), std::end(words), map);
  }
  return result;
}
OCTILE_FAKE CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  *blocks = 1;
  return CUDA_SUCCESS;
}
OCTILE_FAKE CUresult cuStreamCreate(CUstream* stream, unsigned) {
  const CUresult result = outcome("cuStreamCreate");
  if (result == CUDA_SUCCESS) {
    *stream = next_handle<CUstream>();
    ++state().streams;
  }
  return result;
}
OCTILE_FAKE CUresult cuStreamDestroy_v2(CUstream) {
  --state().streams;
  return outcome("cuStreamDestroy");
}
OCTILE_FAKE CUresult cuStreamSynchronize(CUstream) { return outcome("cuStreamSynchronize"); }
OCTILE_FAKE CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
  const CUresult result = outcome("cuStreamBeginCapture");
  state().capturing = result == CUDA_SUCCESS;
  return result;
}
OCTILE_FAKE CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  state().capturing = false;
  *graph = next_handle<CUgraph>();
  ++state().graphs;
  return outcome("cuStreamEndCapture");
}
OCTILE_FAKE CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = state().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
OCTILE_FAKE CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, state().thread_mode);
  return CUDA_SUCCESS;
}
OCTILE_FAKE CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph, unsigned long long) {
  const CUresult result = outcome("cuGraphInstantiate");
  if (result == CUDA_SUCCESS) {
    *exec = next_handle<CUgraphExec>();
    ++state().execs;
  }
  return result;
}
OCTILE_FAKE CUresult cuGraphUpload(CUgraphExec, CUstream) { return outcome("cuGraphUpload"); }
OCTILE_FAKE CUresult cuGraphLaunch(CUgraphExec, CUstream) {
  ++state().graph_launches;
  return outcome("cuGraphLaunch");
}
OCTILE_FAKE CUresult cuGraphDestroy(CUgraph) {
  --state().graphs;
  return outcome("cuGraphDestroy");
}
OCTILE_FAKE CUresult cuGraphExecDestroy(CUgraphExec) {
  --state().execs;
  return outcome("cuGraphExecDestroy");
}
OCTILE_FAKE CUresult cuEventCreate(CUevent* event, unsigned) {
  const CUresult result = outcome("cuEventCreate");
  if (result == CUDA_SUCCESS) {
    *event = next_handle<CUevent>();
    ++state().events;
  }
  return result;
}
OCTILE_FAKE CUresult cuEventDestroy_v2(CUevent) {
  --state().events;
  return outcome("cuEventDestroy");
}
OCTILE_FAKE CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned) { return outcome("cuEventRecord"); }
OCTILE_FAKE CUresult cuEventSynchronize(CUevent) { return outcome("cuEventSynchronize"); }
OCTILE_FAKE CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 1.5F;
  return outcome("cuEventElapsedTime");
}
