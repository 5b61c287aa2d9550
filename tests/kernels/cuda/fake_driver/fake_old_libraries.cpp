// SPDX-License-Identifier: Apache-2.0
// Stand-ins for an NVRTC and a cuBLASLt that are too old: only what tells their version, plus, for NVRTC, every function
// that is resolved before.
#include <cstddef>

#define OCTILE_FAKE extern "C" __attribute__((visibility("default")))

OCTILE_FAKE std::size_t cublasLtGetVersion() { return 120300; }

OCTILE_FAKE int nvrtcVersion(int* major, int* minor) {
  *major = 11;
  *minor = 2;
  return 0;
}
OCTILE_FAKE const char* nvrtcGetErrorString(int) { return "fake"; }
// Never called once the version is known to be too old.
OCTILE_FAKE int nvrtcGetNumSupportedArchs(int*) { return 11; }
OCTILE_FAKE int nvrtcGetSupportedArchs(int*) { return 11; }
OCTILE_FAKE int nvrtcCreateProgram() { return 11; }
OCTILE_FAKE int nvrtcDestroyProgram() { return 11; }
OCTILE_FAKE int nvrtcCompileProgram() { return 11; }
OCTILE_FAKE int nvrtcGetCUBINSize() { return 11; }
OCTILE_FAKE int nvrtcGetCUBIN() { return 11; }
OCTILE_FAKE int nvrtcGetPTXSize() { return 11; }
OCTILE_FAKE int nvrtcGetPTX() { return 11; }
OCTILE_FAKE int nvrtcGetProgramLogSize() { return 11; }
OCTILE_FAKE int nvrtcGetProgramLog() { return 11; }
