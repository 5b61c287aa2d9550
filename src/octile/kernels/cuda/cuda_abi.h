// SPDX-License-Identifier: Apache-2.0
// The types, values and functions of the CUDA driver, NVRTC and cuBLASLt that are used, written out: no CUDA header is
// needed to build. Names are NVIDIA's, in our namespace. tests/kernels/cuda/cuda_abi_test.cpp compares every value and size
// with a toolkit's headers where one is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace octile::cuda {

// ---- Driver (libcuda.so.1)
// ------------------------------------------------------------------------------------------------

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};

enum CUlaunchAttributeID : int {
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

enum CUstreamCaptureMode : int {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum CUstreamCaptureStatus : int { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
enum CUmemorytype : int { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DEFAULT = 0;
inline constexpr unsigned CU_EVENT_RECORD_EXTERNAL = 1;

using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

struct CUuuid {
  char bytes[16];
};
union CUlaunchAttributeValue {
  char pad[64];
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
};
struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[8 - sizeof(CUlaunchAttributeID)];
  CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};
struct CUDA_MEMCPY2D {
  std::size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  std::size_t srcPitch;
  std::size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  std::size_t dstPitch;
  std::size_t WidthInBytes;
  std::size_t Height;
};

// X(exported symbol, field of struct Driver, signature). The symbols are those of CUDA 12.0.
#define OCTILE_CUDA_DRIVER_FUNCTIONS(X)                                                                                   \
  X(cuInit, init, CUresult(unsigned flags))                                                                               \
  X(cuDriverGetVersion, driver_get_version, CUresult(int* version))                                                       \
  X(cuGetErrorName, get_error_name, CUresult(CUresult error, const char** name))                                          \
  X(cuGetErrorString, get_error_string, CUresult(CUresult error, const char** text))                                      \
  X(cuDeviceGetCount, device_get_count, CUresult(int* count))                                                             \
  X(cuDeviceGet, device_get, CUresult(CUdevice* device, int ordinal))                                                     \
  X(cuDeviceGetName, device_get_name, CUresult(char* name, int size, CUdevice device))                                    \
  X(cuDeviceGetAttribute, device_get_attribute, CUresult(int* value, CUdevice_attribute attribute, CUdevice device))      \
  X(cuDeviceGetUuid_v2, device_get_uuid, CUresult(CUuuid* uuid, CUdevice device))                                         \
  X(cuDeviceTotalMem_v2, device_total_mem, CUresult(std::size_t* bytes, CUdevice device))                                 \
  X(cuDevicePrimaryCtxRetain, primary_ctx_retain, CUresult(CUcontext* context, CUdevice device))                          \
  X(cuCtxPushCurrent_v2, ctx_push_current, CUresult(CUcontext context))                                                   \
  X(cuCtxPopCurrent_v2, ctx_pop_current, CUresult(CUcontext* context))                                                    \
  X(cuCtxGetCurrent, ctx_get_current, CUresult(CUcontext* context))                                                       \
  X(cuMemAlloc_v2, mem_alloc, CUresult(CUdeviceptr* pointer, std::size_t bytes))                                          \
  X(cuMemFree_v2, mem_free, CUresult(CUdeviceptr pointer))                                                                \
  X(cuMemGetInfo_v2, mem_get_info, CUresult(std::size_t* free_bytes, std::size_t* total_bytes))                           \
  X(cuMemcpyHtoD_v2, memcpy_htod, CUresult(CUdeviceptr destination, const void* source, std::size_t bytes))               \
  X(cuMemcpyDtoH_v2, memcpy_dtoh, CUresult(void* destination, CUdeviceptr source, std::size_t bytes))                     \
  X(cuMemcpyDtoDAsync_v2, memcpy_dtod_async,                                                                              \
    CUresult(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream))                            \
  X(cuMemcpy2DUnaligned_v2, memcpy_2d, CUresult(const CUDA_MEMCPY2D* copy))                                               \
  X(cuMemcpy2DAsync_v2, memcpy_2d_async, CUresult(const CUDA_MEMCPY2D* copy, CUstream stream))                            \
  X(cuMemsetD8_v2, memset_d8, CUresult(CUdeviceptr destination, unsigned char value, std::size_t bytes))                  \
  X(cuMemsetD8Async, memset_d8_async,                                                                                     \
    CUresult(CUdeviceptr destination, unsigned char value, std::size_t bytes, CUstream stream))                           \
  X(cuModuleLoadData, module_load_data, CUresult(CUmodule* module, const void* image))                                    \
  X(cuModuleUnload, module_unload, CUresult(CUmodule module))                                                             \
  X(cuModuleGetFunction, module_get_function, CUresult(CUfunction* function, CUmodule module, const char* name))          \
  X(cuFuncSetAttribute, func_set_attribute, CUresult(CUfunction function, CUfunction_attribute attribute, int value))     \
  X(cuFuncGetAttribute, func_get_attribute, CUresult(int* value, CUfunction_attribute attribute, CUfunction function))    \
  X(cuLaunchKernelEx, launch_kernel,                                                                                      \
    CUresult(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))                         \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, occupancy_max_active_blocks,                                             \
    CUresult(int* blocks, CUfunction function, int block_size, std::size_t dynamic_shared_bytes))                         \
  X(cuStreamCreate, stream_create, CUresult(CUstream* stream, unsigned flags))                                            \
  X(cuStreamDestroy_v2, stream_destroy, CUresult(CUstream stream))                                                        \
  X(cuStreamSynchronize, stream_synchronize, CUresult(CUstream stream))                                                   \
  X(cuStreamBeginCapture_v2, stream_begin_capture, CUresult(CUstream stream, CUstreamCaptureMode mode))                   \
  X(cuStreamEndCapture, stream_end_capture, CUresult(CUstream stream, CUgraph* graph))                                    \
  X(cuStreamIsCapturing, stream_is_capturing, CUresult(CUstream stream, CUstreamCaptureStatus* status))                   \
  X(cuThreadExchangeStreamCaptureMode, exchange_capture_mode, CUresult(CUstreamCaptureMode* mode))                        \
  X(cuGraphInstantiateWithFlags, graph_instantiate, CUresult(CUgraphExec* exec, CUgraph graph, unsigned long long flags)) \
  X(cuGraphUpload, graph_upload, CUresult(CUgraphExec exec, CUstream stream))                                             \
  X(cuGraphLaunch, graph_launch, CUresult(CUgraphExec exec, CUstream stream))                                             \
  X(cuGraphDestroy, graph_destroy, CUresult(CUgraph graph))                                                               \
  X(cuGraphExecDestroy, graph_exec_destroy, CUresult(CUgraphExec exec))                                                   \
  X(cuEventCreate, event_create, CUresult(CUevent* event, unsigned flags))                                                \
  X(cuEventDestroy_v2, event_destroy, CUresult(CUevent event))                                                            \
  X(cuEventRecordWithFlags, event_record, CUresult(CUevent event, CUstream stream, unsigned flags))                       \
  X(cuEventSynchronize, event_synchronize, CUresult(CUevent event))                                                       \
  X(cuEventElapsedTime, event_elapsed_time, CUresult(float* milliseconds, CUevent start, CUevent end))

// ---- NVRTC (libnvrtc.so.12, .13)
// ------------------------------------------------------------------------------------------

enum nvrtcResult : int {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
};
using nvrtcProgram = struct NvrtcProgram_st*;

#define OCTILE_NVRTC_FUNCTIONS(X)                                                                                          \
  X(nvrtcVersion, version_of, nvrtcResult(int* major, int* minor))                                                         \
  X(nvrtcGetErrorString, error_string, const char*(nvrtcResult result))                                                    \
  X(nvrtcGetNumSupportedArchs, num_supported_archs, nvrtcResult(int* count))                                               \
  X(nvrtcGetSupportedArchs, supported_archs, nvrtcResult(int* archs))                                                      \
  X(nvrtcCreateProgram, create_program,                                                                                    \
    nvrtcResult(nvrtcProgram* program, const char* source, const char* name, int header_count, const char* const* headers, \
                const char* const* header_names))                                                                          \
  X(nvrtcDestroyProgram, destroy_program, nvrtcResult(nvrtcProgram* program))                                              \
  X(nvrtcCompileProgram, compile_program, nvrtcResult(nvrtcProgram program, int option_count, const char* const* options)) \
  X(nvrtcGetCUBINSize, cubin_size, nvrtcResult(nvrtcProgram program, std::size_t* bytes))                                  \
  X(nvrtcGetCUBIN, get_cubin, nvrtcResult(nvrtcProgram program, char* cubin))                                              \
  X(nvrtcGetPTXSize, ptx_size, nvrtcResult(nvrtcProgram program, std::size_t* bytes))                                      \
  X(nvrtcGetPTX, get_ptx, nvrtcResult(nvrtcProgram program, char* ptx))                                                    \
  X(nvrtcGetProgramLogSize, log_size, nvrtcResult(nvrtcProgram program, std::size_t* bytes))                               \
  X(nvrtcGetProgramLog, get_log, nvrtcResult(nvrtcProgram program, char* log))

// ---- cuBLASLt (libcublasLt.so.12, .13)
// ------------------------------------------------------------------------------------

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasComputeType_t : int { CUBLAS_COMPUTE_32F = 68 };
enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cudaDataType : int { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14, CUDA_R_8F_E4M3 = 28 };
enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET = 15,
  CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
  CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
  CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
  CUBLASLT_MATMUL_DESC_A_SCALE_MODE = 31,
  CUBLASLT_MATMUL_DESC_B_SCALE_MODE = 32,
};
enum cublasLtMatmulMatrixScale_t : int {
  CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F = 0,
  CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F = 3,
};
enum cublasLtMatmulPreferenceAttributes_t : int { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1 };
enum cublasLtMatmulAlgoCapAttributes_t : int {
  CUBLASLT_ALGO_CAP_SPLITK_SUPPORT = 0,
  CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT = 2,
  CUBLASLT_ALGO_CAP_TILE_IDS = 6,
  CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX = 7,
  CUBLASLT_ALGO_CAP_STAGES_IDS = 13,
};
enum cublasLtMatmulAlgoConfigAttributes_t : int {
  CUBLASLT_ALGO_CONFIG_ID = 0,
  CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
  CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
  CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
  CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,
  CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5,
  CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
  CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID = 7,
  CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8,
};

using cublasLtHandle_t = struct cublasLtContext*;
struct cublasLtMatmulDescOpaque_t {
  std::uint64_t data[32];
};
struct cublasLtMatrixLayoutOpaque_t {
  std::uint64_t data[8];
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t data[8];
};
struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8];
};
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

#define OCTILE_CUBLASLT_FUNCTIONS(X)                                                                                       \
  X(cublasLtGetVersion, get_version, std::size_t())                                                                        \
  X(cublasLtGetStatusString, status_string, const char*(cublasStatus_t status))                                            \
  X(cublasLtCreate, create, cublasStatus_t(cublasLtHandle_t* handle))                                                      \
  X(cublasLtMatmulDescInit_internal, desc_init,                                                                            \
    cublasStatus_t(cublasLtMatmulDesc_t desc, std::size_t bytes, cublasComputeType_t compute, cudaDataType scale))         \
  X(cublasLtMatmulDescSetAttribute, desc_set,                                                                              \
    cublasStatus_t(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,                 \
                   std::size_t bytes))                                                                                     \
  X(cublasLtMatrixLayoutInit_internal, layout_init,                                                                        \
    cublasStatus_t(cublasLtMatrixLayout_t layout, std::size_t bytes, cudaDataType type, std::uint64_t rows,                \
                   std::uint64_t cols, std::int64_t ld))                                                                   \
  X(cublasLtMatmulPreferenceInit_internal, preference_init,                                                                \
    cublasStatus_t(cublasLtMatmulPreference_t preference, std::size_t bytes))                                              \
  X(cublasLtMatmulPreferenceSetAttribute, preference_set,                                                                  \
    cublasStatus_t(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,                  \
                   const void* value, std::size_t bytes))                                                                  \
  X(cublasLtMatmulAlgoGetHeuristic, algo_get_heuristic,                                                                    \
    cublasStatus_t(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, \
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,              \
                   int requested, cublasLtMatmulHeuristicResult_t* results, int* returned))                                \
  X(cublasLtMatmulAlgoGetIds, algo_get_ids,                                                                                \
    cublasStatus_t(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType scale, cudaDataType a,               \
                   cudaDataType b, cudaDataType c, cudaDataType d, int requested, int* ids, int* returned))                \
  X(cublasLtMatmulAlgoInit, algo_init,                                                                                     \
    cublasStatus_t(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType scale, cudaDataType a,               \
                   cudaDataType b, cudaDataType c, cudaDataType d, int id, cublasLtMatmulAlgo_t* algo))                    \
  X(cublasLtMatmulAlgoCheck, algo_check,                                                                                   \
    cublasStatus_t(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, \
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,                   \
                   cublasLtMatmulHeuristicResult_t* result))                                                               \
  X(cublasLtMatmulAlgoCapGetAttribute, algo_cap_get,                                                                       \
    cublasStatus_t(const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoCapAttributes_t attribute, void* value,             \
                   std::size_t bytes, std::size_t* written))                                                               \
  X(cublasLtMatmulAlgoConfigSetAttribute, algo_config_set,                                                                 \
    cublasStatus_t(cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute, const void* value,          \
                   std::size_t bytes))                                                                                     \
  X(cublasLtMatmulAlgoConfigGetAttribute, algo_config_get,                                                                 \
    cublasStatus_t(const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,          \
                   std::size_t bytes, std::size_t* written))                                                               \
  X(cublasLtMatmul, matmul,                                                                                                \
    cublasStatus_t(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,                   \
                   cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,      \
                   const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,               \
                   const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes, CUstream stream))

// ---- NVML (libnvidia-ml.so.1, with the driver)
// ----------------------------------------------------------------------------

enum nvmlReturn_t : int { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_INSUFFICIENT_SIZE = 7 };
enum nvmlClockType_t : int { NVML_CLOCK_SM = 1 };
using nvmlDevice_t = struct nvmlDevice_st*;
struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId;
  unsigned computeInstanceId;
};

#define OCTILE_NVML_FUNCTIONS(X)                                                                                      \
  X(nvmlInit_v2, init, nvmlReturn_t())                                                                                \
  X(nvmlDeviceGetHandleByUUID, device_by_uuid, nvmlReturn_t(const char* uuid, nvmlDevice_t* device))                  \
  X(nvmlDeviceGetClockInfo, device_get_clock, nvmlReturn_t(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz)) \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, device_get_throttle_reasons,                                           \
    nvmlReturn_t(nvmlDevice_t device, unsigned long long* reasons))                                                   \
  X(nvmlDeviceGetComputeRunningProcesses_v3, device_get_compute_processes,                                            \
    nvmlReturn_t(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* processes))

// A field of a function table: `name` points to a function of `signature`.
#define OCTILE_FUNCTION_FIELD(symbol, name, signature) std::add_pointer_t<signature> name = nullptr;

}  // namespace octile::cuda
