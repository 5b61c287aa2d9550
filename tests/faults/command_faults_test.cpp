// SPDX-License-Identifier: Apache-2.0
// Faults in what the command reads and writes: tables, and the cache of compiled kernels.
#include "faults/fault_test.h"

#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>

namespace octile::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CommandFaults : public FaultTest {
 protected:
  Work explain() const {
    Work work;
    work.arguments = {"explain",     "--n", "4096",     "--k",    "4096",     "--device-name",
                      "NVIDIA_L40S", "--m", "1,16,300", "--json", "--tables", cli::l40s_directory()};
    return work;
  }
  Work merge() {
    Work work;
    work.arguments = {"table", "import", cli::l40s_table(4096, 4096), "--out", path("out")};
    work.reset = [this] { fs::remove_all(path("out")); };
    work.check = [this](const std::string&) {
      if (!fs::exists(path("out"))) {
        return;
      }
      for (const auto& file : fs::recursive_directory_iterator(path("out"))) {
        if (file.path().extension() == ".json") {
          const cli::RunResult lint = run({"table", "lint", file.path()});
          EXPECT_EQ(lint.status, 0) << lint.out << lint.err;
        }
      }
    };
    return work;
  }
  // Compiles for a GPU that is not here, by the stand-in for NVRTC.
  Work warmup(bool with_full_cache) {
    Work work;
    work.arguments = {"warmup", "--n", "4096", "--k", "4096", "--device-name", "NVIDIA_L40S"};
    work.environment = {{"OCTILE_CUDA_PATH", OCTILE_FAULT_GPU}, {"OCTILE_CACHE_DIR", path("cache")}};
    // How many come from the cache differs.
    work.same_output = false;
    work.reset = [this, with_full_cache] {
      if (!with_full_cache) {
        fs::remove_all(path("cache"));
      }
    };
    return work;
  }
};

TEST_F(CommandFaults, ATableThatCannotBeReadIsSaidAndTheNextRunReadsIt) {
  for (const Fault& fault : {Fault{"open", EMFILE}, {"read", EIO}, {"stat", EIO}}) {
    inject(fault, explain());
  }
}

TEST_F(CommandFaults, WithoutMemoryExplainIsAnErrorOrRight) { inject({"malloc", ENOMEM}, explain()); }

TEST_F(CommandFaults, ATableIsWrittenWholeOrNotAtAll) {
  for (const Fault& fault : {Fault{"open", ENFILE},
                             {"read", EIO},
                             {"write", ENOSPC},
                             {"write", EDQUOT, true},
                             {"fsync", EIO},
                             {"rename", EACCES},
                             {"mkdir", EROFS},
                             {"flock", ENOLCK},
                             {"stat", EIO},
                             {"malloc", ENOMEM}}) {
    inject(fault, merge());
  }
}

TEST_F(CommandFaults, ACacheThatCannotBeFilledCostsTheCacheAlone) {
  for (const Fault& fault : {Fault{"open", EMFILE},
                             {"write", ENOSPC},
                             {"write", ENOSPC, true},
                             {"fsync", EIO},
                             {"rename", EXDEV},
                             {"mkdir", EROFS},
                             {"stat", EIO},
                             {"dlopen", 0},
                             {"nvrtc", 0},
                             {"thread", EAGAIN},
                             {"thread", EAGAIN, true},
                             {"malloc", ENOMEM}}) {
    inject(fault, warmup(false));
  }
}

TEST_F(CommandFaults, ACacheThatCannotBeReadIsFilledAnew) {
  for (const Fault& fault : {Fault{"open", EMFILE}, {"read", EIO}, {"stat", EIO}, {"malloc", ENOMEM}}) {
    inject(fault, warmup(true));
  }
}

}  // namespace
}  // namespace octile::test
