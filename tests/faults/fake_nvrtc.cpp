// SPDX-License-Identifier: Apache-2.0
// A stand-in for NVRTC: at once "compiles" what it is given into a text that names every kernel of it. Any call fails where
// the fault library says so.
#include "faults/fault_point.h"
#include "octile/kernels/cuda/cuda_abi.h"

#include <cctype>
#include <cstring>
#include <string>

using octile::test::fault_here;

#define OCTILE_FAKE extern "C" __attribute__((visibility("default")))

namespace {

// CUDA 13's first of its own failures.
constexpr auto kFailure = static_cast<octile::cuda::nvrtcResult>(11);

octile::cuda::nvrtcResult outcome() { return fault_here("nvrtc") ? kFailure : octile::cuda::NVRTC_SUCCESS; }

// ".entry name(" for every word before a bracket: kernels are among them.
std::string entries_of(const std::string& source) {
  std::string text;
  std::string word;
  for (const char c : source) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
      continue;
    }
    if (c == '(' && word.starts_with("octile_")) {
      text += ".entry " + word + "(\n";
    }
    word.clear();
  }
  return text;
}

struct FakeProgram {
  std::string ptx;
};

FakeProgram* program_of(octile::cuda::nvrtcProgram program) { return reinterpret_cast<FakeProgram*>(program); }

octile::cuda::nvrtcResult copy_out(const std::string& text, char* to) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  return outcome();
}

}  // namespace

using octile::cuda::nvrtcProgram;
using octile::cuda::nvrtcResult;

OCTILE_FAKE nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return outcome();
}
OCTILE_FAKE const char* nvrtcGetErrorString(nvrtcResult) { return "a fake compiler's failure"; }
OCTILE_FAKE nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return outcome();
}
OCTILE_FAKE nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 89;
  archs[1] = 90;
  return outcome();
}
OCTILE_FAKE nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int, const char* const*,
                                           const char* const*) {
  if (const nvrtcResult result = outcome(); result != octile::cuda::NVRTC_SUCCESS) {
    return result;
  }
  *program = reinterpret_cast<nvrtcProgram>(new FakeProgram{entries_of(source)});
  return octile::cuda::NVRTC_SUCCESS;
}
OCTILE_FAKE nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete program_of(*program);
  *program = nullptr;
  return octile::cuda::NVRTC_SUCCESS;
}
OCTILE_FAKE nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) { return outcome(); }
OCTILE_FAKE nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = program_of(program)->ptx.size() + 1;
  return outcome();
}
OCTILE_FAKE nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return copy_out(program_of(program)->ptx, cubin);
}
OCTILE_FAKE nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = program_of(program)->ptx.size() + 1;
  return outcome();
}
OCTILE_FAKE nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) { return copy_out(program_of(program)->ptx, ptx); }
OCTILE_FAKE nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t* bytes) {
  *bytes = 1;
  return outcome();
}
OCTILE_FAKE nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* log) { return copy_out("", log); }
