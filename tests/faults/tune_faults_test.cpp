// SPDX-License-Identifier: Apache-2.0
// Faults in a tuner and its workers: what was measured stays, what is on disk is whole, and the next run goes on.
#include "faults/fault_test.h"

#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>

namespace octile::test {
namespace {

namespace fs = std::filesystem;

class TuneFaults : public FaultTest {
 protected:
  // Tables that lint finds nothing in, and no other file but journals and locks.
  void expect_whole(const std::string& directory) const {
    if (!fs::exists(directory)) {
      return;
    }
    bool has_table = false;
    for (const auto& file : fs::recursive_directory_iterator(directory)) {
      const std::string name = file.path().filename().string();
      has_table = has_table || name.ends_with(".octile.json");
      EXPECT_TRUE(file.is_directory() || name.ends_with(".octile.json") || name.find(".journal") != std::string::npos ||
                  name.ends_with(".lock"))
          << name << " was left behind";
    }
    if (has_table) {
      const cli::RunResult lint = run({"table", "lint", directory});
      EXPECT_EQ(lint.status, 0) << lint.out << lint.err;
    }
  }

  // The whole tuner on a simulated device, with a worker process.
  Work simulated(std::vector<std::string> more = {}) {
    Work work;
    work.program = OCTILE_TUNER;
    work.arguments = {"tune", "ratio:0:1.5", path("tables"), "1", "4"};
    work.arguments.insert(work.arguments.end(), more.begin(), more.end());
    work.arguments_again = work.arguments;
    work.arguments_again.emplace_back("--resume");
    work.reset = [this] { fs::remove_all(path("tables")); };
    work.check = [this](const std::string&) { expect_whole(path("tables")); };
    work.message = "";
    return work;
  }
};

TEST_F(TuneFaults, JournalAndTablesAreWholeWhateverCallFails) {
  for (const Fault& fault : {Fault{"open", EMFILE},
                             {"read", EIO},
                             {"write", ENOSPC},
                             {"write", ENOSPC, true},
                             {"fsync", EIO},
                             {"rename", EACCES},
                             {"mkdir", EROFS},
                             {"flock", ENOLCK},

                             {"unlink", EACCES},
                             {"stat", EIO},
                             {"spawn", EAGAIN},
                             {"socket", ECONNRESET}}) {
    inject(fault, simulated());
  }
}

TEST_F(TuneFaults, WithoutMemoryATunerEndsAndTheNextGoesOn) { inject({"malloc", ENOMEM}, simulated()); }

TEST_F(TuneFaults, SeveralDevicesAreTunedAlsoWithoutThreads) {
  inject({"thread", EAGAIN}, simulated({"--devices"}));
  inject({"thread", EAGAIN, true}, simulated({"--devices"}));
}

}  // namespace
}  // namespace octile::test
