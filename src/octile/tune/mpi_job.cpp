// SPDX-License-Identifier: Apache-2.0
// Finding, opening and joining MPI; see mpi_job.h.
#include "octile/tune/mpi_job.h"

#include "octile/core/format.h"
#include "octile/core/log.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace octile {

namespace {

struct LibraryFacts {
  MpiLibrary library;
  const char* word;
  const char* file;
  const char* debian;
};
constexpr std::array kLibraries = {
    LibraryFacts{MpiLibrary::openmpi, "openmpi", "liboctile_openmpi.so", "libopenmpi-dev openmpi-bin"},
    LibraryFacts{MpiLibrary::mpich, "mpich", "liboctile_mpich.so", "libmpich-dev mpich"},
};

const LibraryFacts& facts_of(MpiLibrary library) noexcept {
  return library == MpiLibrary::mpich ? kLibraries[1] : kLibraries[0];
}

std::optional<MpiLauncher> launcher_by(const char* variable, MpiLibrary library) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return std::nullopt;
  }
  MpiLauncher launcher{library, 1, format("{}={}", variable, text)};
  std::from_chars(text, text + std::strlen(text), launcher.ranks);
  return launcher;
}

std::string how_to_get(const LibraryFacts& facts) {
  return format(
      "build Octile where pkg-config finds that library (Debian: apt-get install {}), or name the file by "
      "OCTILE_MPI_PATH",
      facts.debian);
}

// Of another MPI library than the one that started it, every process would think that it is alone.
Error wrong_library(MpiLibrary used, const MpiLauncher& launcher) {
  return make_error(
      ErrorCode::invalid_argument,
      "--mpi: {} started this process as one of {} ({}), and with {} each of them would run alone: use --mpi {}",
      to_string(launcher.library), launcher.ranks, launcher.variable, to_string(used), to_string(launcher.library));
}

// Kernels are compiled, and CPUs measured, on the cores that are left to a process; launchers leave it one by default.
void warn_where_bound(int rank) {
  cpu_set_t allowed;
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr && ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
      CPU_COUNT(&allowed) < online) {
    log_warning("rank {} may use {} of {} cores; where Open MPI bound it to them, mpirun --bind-to none leaves it all", rank,
                CPU_COUNT(&allowed), online);
  }
}

}  // namespace

const char* to_string(MpiLibrary library) noexcept {
  return library == MpiLibrary::automatic ? "auto" : facts_of(library).word;
}

Expected<MpiLibrary> parse_mpi_library(std::string_view text) {
  for (const MpiLibrary library : {MpiLibrary::automatic, MpiLibrary::openmpi, MpiLibrary::mpich}) {
    if (text == to_string(library)) {
      return library;
    }
  }
  return make_error(ErrorCode::invalid_argument, "wanted openmpi, mpich or auto, got \"{}\"", text);
}

std::optional<MpiLauncher> mpi_launcher() {
  // Open MPI's mpirun; MPICH's mpiexec, or Slurm's srun by PMI-2.
  if (std::optional<MpiLauncher> launcher = launcher_by("OMPI_COMM_WORLD_SIZE", MpiLibrary::openmpi)) {
    return launcher;
  }
  if (std::optional<MpiLauncher> launcher = launcher_by("PMI_SIZE", MpiLibrary::mpich)) {
    return launcher;
  }
  // Slurm's srun by PMIx, which says the rank only; Open MPI speaks it, Debian's MPICH does not.
  if (std::getenv("PMIX_RANK") != nullptr) {
    if (std::optional<MpiLauncher> launcher = launcher_by("SLURM_NTASKS", MpiLibrary::openmpi)) {
      return launcher;
    }
  }
  return std::nullopt;
}

MpiComponent open_mpi_component(MpiLibrary library) {
  const LibraryFacts& facts = facts_of(library);
  const auto problem_of = [](const OctileMpiApi* api, const std::string& path) -> std::string {
    if (api == nullptr || api->abi != OCTILE_MPI_ABI) {
      return format("{}: want component interface {}, got {}", path, OCTILE_MPI_ABI, api == nullptr ? 0 : api->abi);
    }
    if (api->library == nullptr || api->join == nullptr || api->send == nullptr || api->receive == nullptr ||
        api->is_sending == nullptr || api->leave == nullptr || api->end_job == nullptr) {
      return format("{}: a function of its interface is missing", path);
    }
    return {};
  };
  MpiComponent opened =
      open_component_api<OctileMpiApi>(component_candidates("OCTILE_MPI_PATH", facts.file), OCTILE_MPI_ENTRY, problem_of);
  if (opened.api != nullptr && std::string_view(opened.api->library) != facts.word) {
    opened.reason = format("{} is the component of {}", opened.path, opened.api->library);
    opened.api = nullptr;
  }
  return opened;
}

Expected<std::unique_ptr<MpiJob>> MpiJob::join(MpiLibrary wanted) {
  const std::optional<MpiLauncher> launcher = mpi_launcher();
  if (wanted == MpiLibrary::automatic && !launcher) {
    return Error{
        ErrorCode::invalid_argument,
        "--mpi: wanted a process that an MPI launcher started, and the environment names none (OMPI_COMM_WORLD_SIZE, "
        "PMI_SIZE, PMIX_RANK): start it as `mpirun -n 8 octile tune --mpi ...`, or say --mpi openmpi or mpich"};
  }
  const MpiLibrary library = wanted == MpiLibrary::automatic ? launcher->library : wanted;
  if (launcher && launcher->library != library && launcher->ranks > 1) {
    return wrong_library(library, *launcher);
  }
  const MpiComponent component = open_mpi_component(library);
  if (component.api == nullptr) {
    return make_error(ErrorCode::unavailable, "--mpi: the {} component is not available: {}; {}", to_string(library),
                      component.reason, how_to_get(facts_of(library)));
  }
  std::unique_ptr<MpiJob> job(new MpiJob(*component.api));
  OctileMpiError error{};
  if (component.api->join(&job->rank_, &job->size_, &error) != 0) {
    job->has_left_ = true;
    return make_error(ErrorCode::unavailable, "--mpi: {} cannot be joined: {}", to_string(library), error.text);
  }
  if (launcher && launcher->ranks > 1 && job->size_ == 1) {
    static_cast<void>(job->leave());
    return wrong_library(library, *launcher);
  }
  warn_where_bound(job->rank_);
  return job;
}

MpiJob::~MpiJob() {
  if (!has_left_) {
    end_job(1);
  }
}

Postbox MpiJob::postbox(double poll_interval_s) const {
  Postbox postbox;
  postbox.rank = rank_;
  postbox.size = size_;
  postbox.poll_interval_s = poll_interval_s;
  postbox.send = [&api = api_](int to, const std::string& text) -> Expected<void> {
    OctileMpiError error{};
    if (api.send(to, text.data(), static_cast<std::int64_t>(text.size()), &error) != 0) {
      return make_error(ErrorCode::failed, "a message to rank {}: {}", to, error.text);
    }
    return {};
  };
  postbox.receive = [&api = api_]() -> Expected<std::vector<Letter>> {
    std::vector<Letter> letters;
    const OctileMpiSink sink = [](void* context, int from, const char* data, std::int64_t bytes) {
      static_cast<std::vector<Letter>*>(context)->push_back({from, std::string(data, static_cast<std::size_t>(bytes))});
    };
    OctileMpiError error{};
    if (api.receive(sink, &letters, &error) != 0) {
      return make_error(ErrorCode::failed, "receiving messages: {}", error.text);
    }
    return letters;
  };
  return postbox;
}

Expected<void> MpiJob::leave() {
  OctileMpiError error{};
  const OctileMpiSink sink = [](void*, int, const char*, std::int64_t) {};
  while (api_.is_sending() != 0) {
    if (api_.receive(sink, nullptr, &error) != 0) {
      return make_error(ErrorCode::failed, "sending the last messages: {}", error.text);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  has_left_ = true;
  if (api_.leave(&error) != 0) {
    return make_error(ErrorCode::failed, "leaving the MPI job: {}", error.text);
  }
  return {};
}

void MpiJob::end_job(int status) {
  has_left_ = true;
  api_.end_job(status);
}

}  // namespace octile
