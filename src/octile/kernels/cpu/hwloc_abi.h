// SPDX-License-Identifier: Apache-2.0
// The C interface between Octile and liboctile_hwloc.so, the component that is built against hwloc and opened at run time.
// Plain types only.
#pragma once

#include <stddef.h>

// Raised whenever anything below changes; a component of another number is refused.
#define OCTILE_HWLOC_ABI 1

// The one exported symbol: const OctileHwlocApi* octile_hwloc_api().
#define OCTILE_HWLOC_ENTRY "octile_hwloc_api"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct OctileHwlocApi {
  int abi;              // OCTILE_HWLOC_ABI.
  const char* version;  // Of the hwloc that was loaded: "2.9.0".
  // NUMA nodes that have memory and cores; 1 at least, and where nothing could be found out.
  int (*nodes)();
  // The node, in [0, nodes()), of a core as the kernel numbers it; 0 for one that is not known.
  int (*node_of_cpu)(int cpu);
  // Wants the pages of [data, data + bytes), none of them touched yet, on `node`. 0, or an errno.
  int (*place)(void* data, size_t bytes, int node);
} OctileHwlocApi;

typedef const OctileHwlocApi* (*OctileHwlocEntry)();

#ifdef __cplusplus
}
#endif
