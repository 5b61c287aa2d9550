// SPDX-License-Identifier: Apache-2.0
// liboctile_openmpi.so and liboctile_mpich.so: messages between the processes of a tuning job behind a C interface
// (mpi_abi.h). OCTILE_MPI_LIBRARY says which of the two this is.
#include "octile/tune/mpi_abi.h"

#include <dlfcn.h>
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <list>
#include <string>
#include <vector>

namespace {

constexpr int kTag = 7;

// A message on its way: MPI reads the text until the request is complete.
struct Outgoing {
  std::string text;
  MPI_Request request = MPI_REQUEST_NULL;
};

// A list: requests in flight hold the addresses of their texts.
std::list<Outgoing>& outgoing() {
  static std::list<Outgoing> messages;
  return messages;
}

// 0, or 1 with MPI's own words.
int checked(int code, const char* what, OctileMpiError* error) {
  if (code == MPI_SUCCESS) {
    return 0;
  }
  char words[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, words, &length);
  // Words that do not fit are cut off; MPI's may be as long as the text alone.
  const std::string text = std::string(what) + ": " + words;
  error->text[text.copy(error->text, sizeof error->text - 1)] = '\0';
  return 1;
}

int collect_sent(OctileMpiError* error) {
  for (auto message = outgoing().begin(); message != outgoing().end();) {
    int is_done = 0;
    if (checked(MPI_Test(&message->request, &is_done, MPI_STATUS_IGNORE), "MPI_Test", error) != 0) {
      return 1;
    }
    message = is_done != 0 ? outgoing().erase(message) : std::next(message);
  }
  return 0;
}

int join(int* rank, int* size, OctileMpiError* error) {
  // Open MPI opens plug-ins that look its own symbols up among the process's global ones; this component was opened locally.
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &library) != 0 && library.dli_fname != nullptr) {
    dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
  int provided = MPI_THREAD_SINGLE;
  if (checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread", error) != 0) {
    return 1;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    std::snprintf(error->text, sizeof error->text,
                  "wanted an MPI library for several threads (MPI_THREAD_SERIALIZED, %d), got level %d",
                  MPI_THREAD_SERIALIZED, provided);
    return 1;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return checked(MPI_Comm_rank(MPI_COMM_WORLD, rank), "MPI_Comm_rank", error) != 0 ||
                 checked(MPI_Comm_size(MPI_COMM_WORLD, size), "MPI_Comm_size", error) != 0
             ? 1
             : 0;
}

int send(int to, const char* data, int64_t bytes, OctileMpiError* error) {
  if (bytes < 0 || bytes > INT_MAX) {
    std::snprintf(error->text, sizeof error->text, "a message of %lld bytes: wanted at most %d",
                  static_cast<long long>(bytes), INT_MAX);
    return 1;
  }
  Outgoing& message = outgoing().emplace_back();  // collect_sent() tests its request until it is done.
  message.text.assign(data, static_cast<std::size_t>(bytes));
  // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): it sees no wait, since there is none.
  if (checked(MPI_Isend(message.text.data(), static_cast<int>(bytes), MPI_CHAR, to, kTag, MPI_COMM_WORLD, &message.request),
              "MPI_Isend", error) != 0) {
    outgoing().pop_back();
    return 1;
  }
  return collect_sent(error);
}

int receive(OctileMpiSink sink, void* context, OctileMpiError* error) {
  std::vector<char> text;
  while (true) {
    int is_there = 0;
    MPI_Status status{};
    if (checked(MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &is_there, &status), "MPI_Iprobe", error) != 0) {
      return 1;
    }
    if (is_there == 0) {
      return collect_sent(error);
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_CHAR, &bytes);
    text.resize(static_cast<std::size_t>(bytes));
    if (checked(MPI_Recv(text.data(), bytes, MPI_CHAR, status.MPI_SOURCE, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                "MPI_Recv", error) != 0) {
      return 1;
    }
    sink(context, status.MPI_SOURCE, text.data(), bytes);
  }
}

int is_sending() { return outgoing().empty() ? 0 : 1; }

int leave(OctileMpiError* error) { return checked(MPI_Finalize(), "MPI_Finalize", error); }

void end_job(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const OctileMpiApi* octile_mpi_api() {
  static const OctileMpiApi api{OCTILE_MPI_ABI, OCTILE_MPI_LIBRARY, join, send, receive, is_sending, leave, end_job};
  return &api;
}
