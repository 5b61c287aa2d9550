// SPDX-License-Identifier: Apache-2.0
// The `octile` command.
#include "octile/cli/app.h"
#include "octile/cli/output.h"
#include "octile/tune/tune.h"

#include <string_view>

int main(int argc, char** argv) {
  octile::cli::prepare_standard_streams();
  // The process that measures for tune, bench and verify. Not a command for people, so no help lists it.
  if (argc >= 2 && std::string_view(argv[1]) == "worker") {
    return octile::run_worker(argc - 2, argv + 2);
  }
  return octile::cli::run_app(argc, argv);
}
