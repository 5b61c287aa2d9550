// SPDX-License-Identifier: Apache-2.0
#include "support/cpu_linear.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/host_memory.h"
#include "octile/quant/quantize.h"
#include "octile/quant/reference.h"
#include "support/software_tiles.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace octile::test {
namespace {

struct Quantized {
  std::vector<std::uint8_t> codes;  // [m, k]
  std::vector<float> scales;        // [m]
};

Quantized quantize(const LinearOperands& operands, const RunOptions& options) {
  Quantized result;
  result.codes.resize(static_cast<std::size_t>(operands.m * operands.k));
  result.scales.resize(static_cast<std::size_t>(operands.m));
  for (std::int64_t row = 0; row < operands.m; ++row) {
    const unsigned char* x = operands.x.data() + row * operands.x_stride * size_of(operands.x_dtype);
    std::uint8_t* codes = result.codes.data() + row * operands.k;
    result.scales[static_cast<std::size_t>(row)] =
        options.static_scale > 0 ? quantize_row_static(x, operands.x_dtype, operands.k, codes, options.static_scale)
                                 : quantize_row(x, operands.x_dtype, operands.k, codes, options.quantize);
  }
  return result;
}

// 1e38 and NaN in turn (fp16 makes an infinity of the former).
void fill_garbage(std::vector<unsigned char>& bytes, DType dtype) {
  const std::int64_t count = static_cast<std::int64_t>(bytes.size()) / size_of(dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    store_from_float(bytes.data(), dtype, i, i % 2 == 0 ? 1e38F : std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace

bool CpuEngine::runs_here() const {
  const auto usable = cpu::usable_isa();
  return usable && *usable >= needs_here;
}

DeviceInfo CpuEngine::device(int threads) const {
  DeviceInfo info;
  info.id = "cpu";
  info.name = "test";
  info.arch = cpu::isa_name(isa);
  info.sm_count = threads;
  return info;
}

std::vector<CpuEngine> cpu_engines() {
  using cpu::Isa;
  static const std::unique_ptr<KernelFamily> software = cpu::make_amx_family(software_amx_engine, Isa::avx512bf16);
  return {{"reference", &cpu::reference_family(), Isa::generic, Isa::generic},
          {"avx2", &cpu::avx2_family(), Isa::avx2, Isa::avx2},
          {"avx512_fma", &cpu::avx512_family(), Isa::avx512, Isa::avx512},
          {"avx512_dot", &cpu::avx512_family(), Isa::avx512bf16, Isa::avx512bf16},
          {"amx", &cpu::amx_family(), Isa::amx, Isa::amx},
          {"amx_in_software", software.get(), Isa::amx, Isa::avx512bf16}};
}

LinearOperands LinearOperands::of_rows(const std::vector<float>& rows, std::int64_t m, std::int64_t n, std::int64_t k,
                                       DType x_dtype) {
  LinearOperands o;
  o.m = m;
  o.n = n;
  o.k = k;
  o.x_dtype = x_dtype;
  o.x_stride = k + 5;
  o.x.resize(static_cast<std::size_t>((m + 3) * o.x_stride * size_of(x_dtype)));
  fill_garbage(o.x, x_dtype);
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      store_from_float(o.x.data(), x_dtype, row * o.x_stride + i, rows[static_cast<std::size_t>(row * k + i)]);
    }
  }
  o.codes_w = random_codes(n * k);
  o.scales_w = random_scales(n);
  return o;
}

LinearOperands LinearOperands::random(std::int64_t m, std::int64_t n, std::int64_t k, DType x_dtype) {
  return of_rows(normals(m * k), m, n, k, x_dtype);
}

ConstMatrixView LinearOperands::x_view() const { return {x.data(), x_dtype, m, k, x_stride, 1}; }

WeightSource LinearOperands::weight_source() const {
  WeightSource source;
  source.n = n;
  source.k = k;
  source.codes = codes_w.data();
  source.scales = scales_w.data();
  source.scale_count = n;
  return source;
}

LinearOperands LinearOperands::rows(std::int64_t first, std::int64_t count) const {
  LinearOperands o = *this;
  o.m = count;
  o.x.erase(o.x.begin(), o.x.begin() + first * x_stride * size_of(x_dtype));
  return o;
}

RunResult run_linear(const CpuEngine& engine, const LinearOperands& operands, const RunOptions& options) {
  RunResult result;
  Problem problem;
  problem.n = operands.n;
  problem.k = operands.k;
  problem.out_dtype = options.out_dtype;
  problem.bias = !operands.bias.empty();
  problem.batch_invariant = options.batch_invariant;
  const DeviceInfo device = engine.device(options.threads);
  const TileConfig config = options.config ? *options.config : engine.family->heuristic(device, problem, operands.m);
  const auto kernel = engine.family->prepare(device, problem, config, operands.m);
  const auto weight = cpu::pack_cpu(operands.weight_source());
  if (!kernel || !weight) {
    result.failure = !kernel ? kernel.error().message : weight.error().message;
    return result;
  }

  GuardedOutput y(options.out_dtype, operands.m, operands.n, operands.n + options.y_padding);
  // The workspace is poisoned, so that a value read before it is written shows; a guard behind it must survive.
  constexpr std::int64_t kGuardBytes = 256;
  const std::int64_t workspace_bytes = (*kernel)->workspace_bytes(operands.m);
  const auto workspace = cpu::HostMemory::allocate(workspace_bytes + kGuardBytes);
  if (!workspace) {
    result.failure = workspace.error().message;
    return result;
  }
  std::memset(workspace->data(), 0xFF, static_cast<std::size_t>(workspace->bytes()));

  const Quantized quantized = options.pre_quantized ? quantize(operands, options) : Quantized{};
  LaunchArgs args;
  args.activation.x = operands.x_view();
  if (options.pre_quantized) {
    args.activation.x = {quantized.codes.data(), DType::e4m3, operands.m, operands.k, operands.k, 1};
    args.activation.scales = quantized.scales.data();
  }
  args.activation.static_scale = options.static_scale;
  args.activation.quantize = options.quantize;
  args.y = y.view();
  args.bias = operands.bias.empty() ? nullptr : operands.bias.data();
  args.workspace = workspace->data();
  args.workspace_bytes = workspace_bytes;
  if (const auto ok = (*kernel)->run(**weight, args); !ok) {
    result.failure = ok.error().message;
    return result;
  }
  const auto* guard = static_cast<const unsigned char*>(workspace->data()) + workspace_bytes;
  if (!std::all_of(guard, guard + kGuardBytes, [](unsigned char byte) { return byte == 0xFF; })) {
    result.failure = "wrote beyond workspace_bytes()";
  } else if (!y.guards_intact()) {
    result.failure = "wrote outside of y";
  } else if (!y.all_written()) {
    result.failure = "left elements of y unwritten";
  }
  const std::int64_t row_bytes = operands.n * size_of(options.out_dtype);
  for (std::int64_t row = 0; row < operands.m; ++row) {
    const auto* begin = static_cast<const unsigned char*>(y.data()) + row * args.y.row_stride * size_of(options.out_dtype);
    result.y.insert(result.y.end(), begin, begin + row_bytes);
  }
  return result;
}

std::string compare(const LinearOperands& operands, const RunOptions& options, const RunResult& result) {
  if (!result.failure.empty()) {
    return result.failure;
  }
  const Quantized quantized = quantize(operands, options);
  ReferenceInputs in;
  in.m = operands.m;
  in.n = operands.n;
  in.k = operands.k;
  in.codes_x = quantized.codes.data();
  in.scales_x = quantized.scales.data();
  in.codes_w = operands.codes_w.data();
  in.scales_w = operands.scales_w.data();
  in.bias = operands.bias.empty() ? nullptr : operands.bias.data();
  const ErrorReport report =
      compare_with_reference(result.y.data(), options.out_dtype, operands.n, reference_linear(in), operands.m, operands.n);
  const double tolerance = error_tolerance(options.out_dtype, operands.k, Accumulate::precise);
  if (report.nan_mismatch || !(report.relative_frobenius <= tolerance) || !(report.largest_row <= tolerance)) {
    return octile::format("[{}, {}, {}] to {}: want an error of at most {:.3e}, got {}", operands.m, operands.n, operands.k,
                          to_string(options.out_dtype), tolerance, report.to_string());
  }
  return {};
}

}  // namespace octile::test
