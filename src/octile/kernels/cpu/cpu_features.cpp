// SPDX-License-Identifier: Apache-2.0
// CPUID and XGETBV, read directly: the compiler's own check knows neither AMX nor what the operating system saves on every
// version that must build this.
#include "octile/kernels/cpu/cpu_features.h"

#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/kernels/cpu/amx_permission.h"

#include <array>
#include <cstring>

#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octile::cpu {
namespace {

// sysconf() answers 0 or -1 where the hypervisor hides the caches; then a small common size, so that blocks still fit.
std::int64_t cache_bytes(int name, std::int64_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) {
    return {};
  }
  return r;
}

bool bit(unsigned word, unsigned index) { return ((word >> index) & 1U) != 0; }

// XCR0: which register states the operating system saves. Only legal where CPUID reports OSXSAVE.
std::uint64_t xgetbv0() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32U) | low;
}

void detect_x86(CpuFeatures& f) {
  const Registers leaf0 = cpuid(0, 0);
  std::array<char, 12> vendor{};
  std::memcpy(vendor.data(), &leaf0.ebx, 4);
  std::memcpy(vendor.data() + 4, &leaf0.edx, 4);
  std::memcpy(vendor.data() + 8, &leaf0.ecx, 4);
  f.vendor.assign(vendor.data(), vendor.size());

  const Registers leaf1 = cpuid(1, 0);
  if (!bit(leaf1.ecx, 27)) {  // OSXSAVE
    return;
  }
  const std::uint64_t xcr0 = xgetbv0();
  const bool os_ymm = (xcr0 & 0x6U) == 0x6U;              // SSE and AVX state.
  const bool os_zmm = os_ymm && (xcr0 & 0xE0U) == 0xE0U;  // Opmasks and both halves of the ZMM state.
  const bool os_tiles = (xcr0 & 0x60000U) == 0x60000U;    // TILECFG and TILEDATA.
  const Registers leaf7 = cpuid(7, 0);
  const Registers leaf7_1 = leaf7.eax >= 1 ? cpuid(7, 1) : Registers{};

  f.avx = os_ymm && bit(leaf1.ecx, 28);
  f.fma = f.avx && bit(leaf1.ecx, 12);
  f.f16c = f.avx && bit(leaf1.ecx, 29);
  f.avx2 = f.avx && bit(leaf7.ebx, 5);
  f.avx512f = os_zmm && f.avx2 && bit(leaf7.ebx, 16);
  f.avx512dq = f.avx512f && bit(leaf7.ebx, 17);
  f.avx512bw = f.avx512f && bit(leaf7.ebx, 30);
  f.avx512vl = f.avx512f && bit(leaf7.ebx, 31);
  f.avx512vbmi = f.avx512f && bit(leaf7.ecx, 1);
  f.gfni = bit(leaf7.ecx, 8);
  f.avx512_bf16 = f.avx512f && bit(leaf7_1.eax, 5);
  f.amx_bf16 = os_tiles && bit(leaf7.edx, 22);
  f.amx_tile = os_tiles && bit(leaf7.edx, 24);
}

#endif

CpuFeatures detect() {
  CpuFeatures f;
  f.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, std::int64_t{32} * 1024);
  f.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, std::int64_t{256} * 1024);
#if defined(__x86_64__)
  detect_x86(f);
#endif
  return f;
}

constexpr std::array kIsaNames = {"generic", "avx2", "avx512", "avx512bf16", "amx"};

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

const char* isa_name(Isa isa) noexcept { return kIsaNames[static_cast<std::size_t>(isa)]; }

Expected<Isa> parse_isa(std::string_view name) {
  for (std::size_t i = 0; i < kIsaNames.size(); ++i) {
    if (name == kIsaNames[i]) {
      return static_cast<Isa>(i);
    }
  }
  return make_error(ErrorCode::invalid_argument,
                    "'{}' is no CPU instruction set: known are generic, avx2, avx512, avx512bf16, amx", name);
}

Isa isa_of(const CpuFeatures& f) noexcept {
  if (!(f.avx2 && f.fma && f.f16c)) {
    return Isa::generic;
  }
  if (!(f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq)) {
    return Isa::avx2;
  }
  if (!(f.avx512_bf16 && f.avx512vbmi)) {
    return Isa::avx512;
  }
  return f.amx_tile && f.amx_bf16 ? Isa::amx : Isa::avx512bf16;
}

Expected<Isa> usable_isa() {
  Isa detected = isa_of(cpu_features());
  if (detected == Isa::amx && !amx_permission().granted) {
    detected = Isa::avx512bf16;
  }
  const Expected<std::string> text = env::get_text("OCTILE_CPU_ISA");
  if (!text) {
    return text.error();
  }
  const Expected<Isa> limit = parse_isa(*text);
  if (!limit) {
    return make_error(ErrorCode::invalid_argument, "OCTILE_CPU_ISA: {}", limit.error().message);
  }
  return *limit < detected ? *limit : detected;
}

}  // namespace octile::cpu
