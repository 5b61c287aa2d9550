// SPDX-License-Identifier: Apache-2.0
// Faults in a program that links the library: a checkpoint that is loaded, and a linear on the CPU and on a stand-in for a
// GPU. No exception leaves the library, whatever fails.
#include "faults/fault_test.h"
#include "support/tiny_checkpoint.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace octile::test {
namespace {

class LibraryFaults : public FaultTest {
 protected:
  Work checkpoint(const TemporaryDirectory& directory, const char* memory) const {
    tiny_fp8_checkpoint(kCompressedTensors, ScaleShape::column).write(directory, 2);
    Work work;
    work.program = OCTILE_FAULT_TARGET;
    work.arguments = {"checkpoint", directory.path(), memory};
    work.terminates_of_hundred = 10;
    work.repeats = false;  // Nothing is written.
    return work;
  }
  Work linear(const char* device) const {
    Work work;
    work.program = OCTILE_FAULT_TARGET;
    work.arguments = {"linear", device};
    // Nothing of the machine: a vendor's library may crash without memory, which is not ours to mend.
    work.environment = {{"OCTILE_CUDA_PATH", OCTILE_FAULT_GPU},
                        {"OCTILE_CACHE_DIR", path("cache")},
                        {"OCTILE_ONEDNN_PATH", path("none")},
                        {"OCTILE_CUTLASS_PATH", path("none")}};
    work.terminates_of_hundred = 10;
    work.repeats = false;  // Nothing is written.
    return work;
  }
};

TEST_F(LibraryFaults, ACheckpointIsLoadedRightOrRefused) {
  for (const char* memory : {"map", "read"}) {
    const TemporaryDirectory directory;
    const Work work = checkpoint(directory, memory);
    for (const Fault& fault : {Fault{"open", EMFILE}, {"read", EIO}, {"stat", EIO}, {"malloc", ENOMEM}}) {
      inject(fault, work);
    }
    if (std::string(memory) == "map") {
      inject({"mmap", ENOMEM}, work);
    }
  }
}

TEST_F(LibraryFaults, ALinearOnTheCpuIsRightOrRefused) {
  for (const Fault& fault :
       {Fault{"malloc", ENOMEM}, {"malloc", ENOMEM, true}, {"thread", EAGAIN}, {"thread", EAGAIN, true}, {"open", EMFILE}}) {
    inject(fault, linear("cpu"));
  }
}

TEST_F(LibraryFaults, ALinearOnAGpuWhoseDriverOrCompilerFailsIsRefused) {
  for (const Fault& fault : {Fault{"cuda", 0}, {"nvrtc", 0}, {"dlopen", 0}, {"malloc", ENOMEM}}) {
    inject(fault, linear("cuda:0"));
  }
}

TEST_F(LibraryFaults, AGpuThatDisappearsIsAnErrorAtEveryCall) { inject({"cuda", 0, true}, linear("cuda:0")); }

TEST_F(LibraryFaults, BesideAGpuThatFailsOrDisappearsTheCpuGoesOn) {
  Work work = linear("cuda:0");
  work.message = "error 999";  // The driver's own number, with its words where it could be asked for them.
  work.arguments = {"beside", "cuda:0"};
  inject({"cuda", 0}, work);
  work.arguments = {"beside", "cuda:0", "gone"};
  EXPECT_GT(inject({"cuda", 0, true}, work), 10) << "making, preparing, running, updating, unpacking";
  // The sample is thin where the linear is used: the last third of the calls, and the end. Each refusal names the device.
  const Places use = {calls_of("cuda", work) * 2 / 3, 3};
  EXPECT_GT(inject({"cuda", 0, true}, work, use), 10);
}

}  // namespace
}  // namespace octile::test
