// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened at run time, and the one kind of product that is asked of it: e4m3 x e4m3 with a scale a row on both
// sides.
#include "octile/kernels/cuda/cublaslt.h"

#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/function_table.h"

#include <map>
#include <memory>
#include <mutex>

namespace octile::cuda {
namespace {

Expected<void> resolve_all(const SharedLibrary& library, CublasLt& table) {
  OCTILE_CUBLASLT_FUNCTIONS(OCTILE_RESOLVE)
  return {};
}

// cuBLASLt finds no row-wise algorithm for a descriptor without scale pointers, though it reads nothing through them then.
// The address stands for a buffer that is 256-byte aligned, as ours are.
constexpr std::uintptr_t kSomeAlignedAddress = 256;

template <class Value>
cublasStatus_t set(const CublasLt& api, ProductDescriptors& descriptors, cublasLtMatmulDescAttributes_t attribute,
                   const Value& value) noexcept {
  return api.desc_set(&descriptors.operation, attribute, static_cast<const void*>(std::addressof(value)), sizeof(value));
}

}  // namespace

Expected<std::unique_ptr<CublasLt>> open_cublaslt(const std::string& path) {
  auto opened = path.empty() ? open_library({"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}, true})
                             : open_library_file(path);
  if (!opened) {
    return opened.error();
  }
  const SharedLibrary& library = *opened;
  auto api = std::make_unique<CublasLt>();
  // The version first: an old library is called old, not incomplete.
  if (auto resolved = resolve(library, "cublasLtGetVersion", api->get_version); !resolved) {
    return resolved.error();
  }
  api->version = static_cast<std::int64_t>(api->get_version());
  api->version_text = format("{}.{}.{}", api->version / 10000, api->version / 100 % 100, api->version % 100);
  api->path = library.path;
  if (api->version < kMinCublasLtVersion) {
    return make_error(ErrorCode::unavailable, "{} is cuBLASLt {}; row-wise scales need {}.{} or newer", library.path,
                      api->version_text, kMinCublasLtVersion / 10000, kMinCublasLtVersion / 100 % 100);
  }
  if (auto resolved = resolve_all(library, *api); !resolved) {
    return resolved.error();
  }
  return api;
}

Expected<const CublasLt*> cublaslt() {
  static const auto* const opened = new Expected<std::unique_ptr<CublasLt>>(open_cublaslt(""));
  if (!*opened) {
    return opened->error();
  }
  return opened->value().get();
}

Error cublaslt_error(const CublasLt& api, cublasStatus_t status, std::string_view what) {
  const ErrorCode code = status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::failed;
  const char* text = api.status_string(status);
  return make_error(code, "cuBLASLt {}: {}: {} (status {})", api.version_text, what, text == nullptr ? "unknown" : text,
                    static_cast<int>(status));
}

Expected<LtDevice> lt_device(const DeviceContext& context) {
  auto api = cublaslt();
  if (!api) {
    return api.error();
  }
  struct Handles {
    std::mutex mutex;
    std::map<int, cublasLtHandle_t> by_device;
  };
  static auto* const handles = new Handles;
  const std::lock_guard lock(handles->mutex);
  const auto found = handles->by_device.find(context.info.index);
  if (found != handles->by_device.end()) {
    return LtDevice{*api, &context, found->second};
  }
  const CurrentContext current(context);
  if (auto made = current.made(); !made) {
    return made.error();
  }
  const OutsideCapture outside(*context.driver);
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = (*api)->create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return cublaslt_error(**api, status, "cublasLtCreate on " + context.info.id);
  }
  handles->by_device.emplace(context.info.index, handle);
  return LtDevice{*api, &context, handle};
}

cublasStatus_t describe_product(const CublasLt& api, const Product& product, ProductDescriptors& out) noexcept {
  void* const scales = to_pointer(kSomeAlignedAddress);
  const std::int32_t mode =
      product.outer_scales ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  const std::int8_t fast = product.fast ? 1 : 0;
  const std::int32_t transposed = CUBLAS_OP_T;
  const std::int32_t plain = CUBLAS_OP_N;
  const auto rows = static_cast<std::uint64_t>(product.n);
  const auto cols = static_cast<std::uint64_t>(product.m);
  const auto depth = static_cast<std::uint64_t>(product.k);
  cublasStatus_t status = api.desc_init(&out.operation, sizeof(out.operation), CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const auto then = [&status](auto&& step) {
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = step();
    }
  };
  then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_TRANSA, transposed); });
  then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_TRANSB, plain); });
  then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode); });
  then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode); });
  then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales); });
  then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales); });
  then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast); });
  if (product.max_sms > 0) {
    const std::int32_t sms = product.max_sms;
    then([&] { return set(api, out, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sms); });
  }
  then([&] { return api.layout_init(&out.a, sizeof(out.a), CUDA_R_8F_E4M3, depth, rows, product.k); });
  then([&] { return api.layout_init(&out.b, sizeof(out.b), CUDA_R_8F_E4M3, depth, cols, product.x_stride); });
  then([&] { return api.layout_init(&out.d, sizeof(out.d), product.out, rows, cols, product.y_stride); });
  return status;
}

Expected<void> run_product(const LtDevice& device, const Product& product, const cublasLtMatmulAlgo_t& algorithm,
                           const ProductPointers& pointers, CUstream stream) {
  const CublasLt& api = *device.api;
  ProductDescriptors descriptors;
  cublasStatus_t status = describe_product(api, product, descriptors);
  const void* scales_w = to_pointer(pointers.scales_w);
  const void* scales_x = to_pointer(pointers.scales_x);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = set(api, descriptors, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales_w);
  }
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = set(api, descriptors, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales_x);
  }
  if (status == CUBLAS_STATUS_SUCCESS) {
    const float one = 1.0F;
    const float zero = 0.0F;
    void* y = to_pointer(pointers.y);
    status =
        api.matmul(device.handle, &descriptors.operation, &one, to_pointer(pointers.codes_w), &descriptors.a,
                   to_pointer(pointers.codes_x), &descriptors.b, &zero, y, &descriptors.d, y, &descriptors.d, &algorithm,
                   to_pointer(pointers.workspace), static_cast<std::size_t>(pointers.workspace_bytes), stream);
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    return cublaslt_error(api, status,
                          format("product M={} N={} K={} on {}", product.m, product.n, product.k, device.context->info.id));
  }
  return {};
}

std::vector<cublasLtMatmulHeuristicResult_t> heuristic_algorithms(const LtDevice& device, const Product& product,
                                                                  int count) {
  const CublasLt& api = *device.api;
  ProductDescriptors descriptors;
  cublasLtMatmulPreferenceOpaque_t preference;
  const auto bytes = static_cast<std::size_t>(kCublasLtWorkspaceBytes);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
  int returned = 0;
  if (describe_product(api, product, descriptors) != CUBLAS_STATUS_SUCCESS ||
      api.preference_init(&preference, sizeof(preference)) != CUBLAS_STATUS_SUCCESS ||
      api.preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)) !=
          CUBLAS_STATUS_SUCCESS ||
      api.algo_get_heuristic(device.handle, &descriptors.operation, &descriptors.a, &descriptors.b, &descriptors.d,
                             &descriptors.d, &preference, count, results.data(), &returned) != CUBLAS_STATUS_SUCCESS) {
    returned = 0;
  }
  results.resize(static_cast<std::size_t>(returned));
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return results;
}

Expected<std::int64_t> check_algorithm(const LtDevice& device, const Product& product,
                                       const cublasLtMatmulAlgo_t& algorithm) {
  ProductDescriptors descriptors;
  cublasLtMatmulHeuristicResult_t result = {};
  cublasStatus_t status = describe_product(*device.api, product, descriptors);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = device.api->algo_check(device.handle, &descriptors.operation, &descriptors.a, &descriptors.b, &descriptors.d,
                                    &descriptors.d, &algorithm, &result);
  }
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = result.state;
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    return cublaslt_error(*device.api, status,
                          format("the algorithm cannot compute M={} N={} K={} row-wise", product.m, product.n, product.k));
  }
  return static_cast<std::int64_t>(result.workspaceSize);
}

}  // namespace octile::cuda
