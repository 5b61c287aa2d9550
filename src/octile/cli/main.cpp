// SPDX-License-Identifier: Apache-2.0
// The `octile` command.
#include "octile/cli/app.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/tune/tune.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

namespace {

// Where memory runs out while nlohmann's JSON is destroyed or libstdc++ opens a directory, both end the process: an error
// for the user, not a crash. What is on disk is whole at any moment.
[[noreturn]] void end_with_an_error() {
  constexpr std::string_view kWords = "octile: error: ended in the middle, most likely for lack of memory\n";
  static_cast<void>(::write(STDERR_FILENO, kWords.data(), kWords.size()) == 0);
  ::_exit(octile::cli::kFailed);
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_with_an_error);
  octile::cli::prepare_standard_streams();
  try {
    // The process that measures for tune, bench and verify. Not a command for people, so no help lists it.
    if (argc >= 2 && std::string_view(argv[1]) == "worker") {
      return octile::run_worker(argc - 2, argv + 2);
    }
    return octile::cli::run_app(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("octile: error: out of memory\n", stderr);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "octile: error: %s\n", exception.what());
  }
  return octile::cli::kFailed;
}
