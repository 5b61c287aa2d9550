// SPDX-License-Identifier: Apache-2.0
// From embedded device source to machine code: NVRTC behind the cubin cache. Works on a machine without a GPU.
#pragma once

#include <octile/error.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {

// A device source that the build embeds: the text of one kernels/cuda/*.cuh. Sources may #include "other.cuh" of the same
// folder and nothing else.
struct DeviceSource {
  std::string_view name;  // "ada_mma.cuh".
  std::string_view text;
};
// Every embedded source, in order of their names.
std::span<const DeviceSource> device_sources() noexcept;

// What one kernel is compiled from.
struct CompileRequest {
  std::string arch;                  // NVRTC's real architecture: "sm_89", "sm_90a"; see compile_arch().
  std::string source;                // Name of an embedded source: "ada_mma.cuh".
  std::vector<std::string> defines;  // "BLOCK_M=64": one -D each, in this order.
  std::string kernel;                // The extern "C" name of the __global__ function.
};

// Machine code for one architecture and what ptxas said of the kernel.
struct CompiledKernel {
  std::string arch;
  std::string kernel;
  std::vector<std::byte> cubin;
  std::string log;            // NVRTC's log with ptxas' resource report, as it was when compiled.
  int registers = 0;          // Per thread.
  int stack_bytes = 0;        // Stack frame per thread.
  int spill_store_bytes = 0;  // Per thread; a kernel that spills has both above zero.
  int spill_load_bytes = 0;
  int static_shared_bytes = 0;  // Per block, without the dynamic part.
  bool from_cache = false;
};

// The architecture to compile for on a device of `device_arch`: "sm_90" -> "sm_90a" and "sm_100" -> "sm_100a", whose own
// instructions need the suffix; others as they are.
std::string compile_arch(std::string_view device_arch);

// Compiles, or takes the cubin from an export directory (OCTILE_CUBIN_PATH) or the cache. Errors: invalid_argument for an
// unknown source, unavailable where the cubin is in neither and NVRTC is not there or does not know the architecture, failed
// with the compiler's log.
Expected<CompiledKernel> compile(const CompileRequest& request);
// An export directory or the cache has an entry for it, whatever is in that.
bool is_compiled(const CompileRequest& request);
// How many threads compile where the process may use `cores` and is to leave `spare` of them free: no more than 64, at least
// half of the cores, at least one.
int compile_threads_within(int cores, int spare) noexcept;
// Of the cores that the process may use.
int compile_threads(int spare_cores = 0);
// All of them by at most `threads` threads (0: compile_threads()), begun in the order of the requests and so returned.
// `done(i)` is called once requests[i] is through, whatever came of it: one call at a time, on any thread.
std::vector<Expected<CompiledKernel>> compile_all(std::span<const CompileRequest> requests, int threads = 0,
                                                  const std::function<void(std::size_t)>& done = {});
// Compiles `text`, which may #include embedded sources, in place of an embedded source; `request.source` is its name in
// messages. Never cached: for programs that bring a kernel of their own, such as tests and measurements.
Expected<CompiledKernel> compile_text(const CompileRequest& request, std::string_view text);
// The PTX of the same request, never cached: for tests that look for an instruction.
Expected<std::string> compile_to_ptx(const CompileRequest& request);

// Compiles what is not cached yet and writes every cubin as a cache entry into `directory`, which a machine without NVRTC
// names in OCTILE_CUBIN_PATH. Returns how many were written.
Expected<int> export_cubins(std::span<const CompileRequest> requests, const std::string& directory);

// A hash of a source and all it includes, 32 hexadecimal digits: a family's source_hash(). "" for an unknown source.
std::string source_hash(std::string_view source);

}  // namespace octile::cuda
