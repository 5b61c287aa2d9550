// SPDX-License-Identifier: Apache-2.0
// `octile tune --mpi`: finds the component of the MPI library that started this process, and joins its job.
#pragma once

#include <octile/error.hpp>

#include "octile/core/component.h"
#include "octile/tune/mpi_abi.h"
#include "octile/tune/postbox.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace octile {

// What --mpi may be: an MPI library, or whichever started this process.
enum class MpiLibrary { automatic, openmpi, mpich };
// "auto", "openmpi", "mpich". Error (invalid_argument): another word.
Expected<MpiLibrary> parse_mpi_library(std::string_view text);
const char* to_string(MpiLibrary library) noexcept;

// What the environment that a launcher gives its processes says.
struct MpiLauncher {
  MpiLibrary library = MpiLibrary::openmpi;
  int ranks = 1;
  std::string variable;  // That says so: "OMPI_COMM_WORLD_SIZE=4".
};
std::optional<MpiLauncher> mpi_launcher();

using MpiComponent = OpenedComponent<OctileMpiApi>;
// The component of openmpi or mpich, from OCTILE_MPI_PATH or where components lie.
MpiComponent open_mpi_component(MpiLibrary library);

class MpiJob {
 public:
  // Errors: invalid_argument where no launcher started this process and `wanted` is automatic, or where the one that did is
  // another library's; unavailable where the component is, with how to get it.
  static Expected<std::unique_ptr<MpiJob>> join(MpiLibrary wanted);
  ~MpiJob();  // Ends the whole job unless leave() was called.
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  Postbox postbox(double poll_interval_s) const;
  // In good order, with the other ranks, which leave as well.
  Expected<void> leave();
  // Where they do not answer: ends them all with this status. Does not return.
  void end_job(int status);

 private:
  explicit MpiJob(const OctileMpiApi& api) noexcept : api_(api) {}

  const OctileMpiApi& api_;
  int rank_ = 0;
  int size_ = 1;
  bool has_left_ = false;
};

}  // namespace octile
