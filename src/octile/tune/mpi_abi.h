// SPDX-License-Identifier: Apache-2.0
// The C interface between Octile and its MPI components, liboctile_openmpi.so and liboctile_mpich.so: one source, built
// against each of the two libraries, whose own interfaces are not compatible. Messages only, none of which ever blocks: MPI
// waits at full speed on a core, and that core may be the one that is measured.
#pragma once

#include <stdint.h>

// Raised whenever anything below changes; a component of another number is refused.
#define OCTILE_MPI_ABI 1

// The one exported symbol: const OctileMpiApi* octile_mpi_api().
#define OCTILE_MPI_ENTRY "octile_mpi_api"

#ifdef __cplusplus
extern "C" {
#endif

// Where a function that failed leaves its reason, always terminated.
typedef struct OctileMpiError {
  char text[512];
} OctileMpiError;

// Receives one message; `data` is valid during the call.
typedef void (*OctileMpiSink)(void* context, int from, const char* data, int64_t bytes);

// Functions that return int return 0, or another value with `error` filled in. A process joins once; then one thread at a
// time may call.
typedef struct OctileMpiApi {
  int abi;              // OCTILE_MPI_ABI.
  const char* library;  // What it was built against: "openmpi" or "mpich".

  // MPI_Init_thread. Errors are returned from here on; before, the library ends the process by itself.
  int (*join)(int* rank, int* size, OctileMpiError* error);
  // Queues a copy of the message. Messages between two ranks arrive in the order in which they were sent.
  int (*send)(int to, const char* data, int64_t bytes, OctileMpiError* error);
  // Hands over every message that has come, and lets queued ones go on.
  int (*receive)(OctileMpiSink sink, void* context, OctileMpiError* error);
  // 1 while messages are queued that have not left.
  int (*is_sending)();
  // MPI_Finalize, which waits for the other ranks.
  int (*leave)(OctileMpiError* error);
  // MPI_Abort: ends the whole job with this exit status. Does not return.
  void (*end_job)(int status);
} OctileMpiApi;

typedef const OctileMpiApi* (*OctileMpiEntry)();

#ifdef __cplusplus
}
#endif
