// SPDX-License-Identifier: Apache-2.0
// How a program is handed to NVRTC, by a table of functions of this file in NVRTC's place.
#include "octile/kernels/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What a test sets and what happened; functions in a table cannot have any other.
struct FakeCompiler {
  std::vector<std::string> unknown_options;
  nvrtcResult outcome = NVRTC_SUCCESS;             // Of a compilation whose options are known.
  std::vector<std::vector<std::string>> attempts;  // The options of each.
  int programs = 0;                                // Made and not destroyed.
  std::string log;
};
FakeCompiler fake;

const char* fake_error_string(nvrtcResult result) {
  return result == NVRTC_ERROR_INVALID_OPTION ? "NVRTC_ERROR_INVALID_OPTION" : "NVRTC_ERROR_FAKE";
}
nvrtcResult fake_create(nvrtcProgram* program, const char*, const char*, int, const char* const*, const char* const*) {
  ++fake.programs;
  *program = reinterpret_cast<nvrtcProgram>(&fake);
  return NVRTC_SUCCESS;
}
nvrtcResult fake_destroy(nvrtcProgram* program) {
  --fake.programs;
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult fake_compile(nvrtcProgram, int count, const char* const* options) {
  fake.attempts.emplace_back(options, options + count);
  for (const std::string& option : fake.attempts.back()) {
    if (std::ranges::find(fake.unknown_options, option) != fake.unknown_options.end()) {
      fake.log = "unrecognized option " + option;
      return NVRTC_ERROR_INVALID_OPTION;
    }
  }
  fake.log = "ptxas' report";
  return fake.outcome;
}
nvrtcResult size_of(const std::string& text, std::size_t* bytes) {
  *bytes = text.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult copy_of(const std::string& text, char* to) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  return NVRTC_SUCCESS;
}
std::string machine_code() { return "code of attempt " + std::to_string(fake.attempts.size()); }
nvrtcResult fake_log_size(nvrtcProgram, std::size_t* bytes) { return size_of(fake.log, bytes); }
nvrtcResult fake_log(nvrtcProgram, char* log) { return copy_of(fake.log, log); }
nvrtcResult fake_code_size(nvrtcProgram, std::size_t* bytes) { return size_of(machine_code(), bytes); }
nvrtcResult fake_code(nvrtcProgram, char* code) { return copy_of(machine_code(), code); }

class NvrtcRuns : public testing::Test {
 protected:
  NvrtcRuns() {
    fake = {};
    api_.version = 12000;
    api_.error_string = fake_error_string;
    api_.create_program = fake_create;
    api_.destroy_program = fake_destroy;
    api_.compile_program = fake_compile;
    api_.log_size = fake_log_size;
    api_.get_log = fake_log;
    api_.cubin_size = api_.ptx_size = fake_code_size;
    api_.get_cubin = api_.get_ptx = fake_code;
  }
  void TearDown() override { EXPECT_EQ(fake.programs, 0) << "every program is destroyed"; }
  Expected<NvrtcOutput> run() const { return run_nvrtc(api_, {"a.cu", "source", {}, {"-arch=sm_90a", "-DX=1"}}); }
  Nvrtc api_;
};

TEST_F(NvrtcRuns, ItsOwnCacheIsPassedBySinceWhatComesFromThereHasNoReport) {
  const auto output = run();
  ASSERT_TRUE(output) << output.error().message;
  ASSERT_EQ(fake.attempts.size(), 1U);
  EXPECT_THAT(fake.attempts[0], ElementsAre("-arch=sm_90a", "-DX=1", "--no-cache"));
  EXPECT_EQ(output->ptx, "code of attempt 1");
  EXPECT_EQ(output->log, "ptxas' report");
}

TEST_F(NvrtcRuns, OneThatDoesNotKnowTheOptionCompilesWithoutIt) {
  fake.unknown_options = {"--no-cache"};
  const auto output = run();
  ASSERT_TRUE(output) << output.error().message;
  ASSERT_EQ(fake.attempts.size(), 2U);
  EXPECT_THAT(fake.attempts[1], ElementsAre("-arch=sm_90a", "-DX=1"));
  EXPECT_EQ(output->ptx, "code of attempt 2");
  EXPECT_EQ(output->log, "ptxas' report") << "not what the first attempt said";
}

TEST_F(NvrtcRuns, AnotherUnknownOptionIsAnErrorThatNamesIt) {
  fake.unknown_options = {"-arch=sm_90a"};
  const auto output = run();
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(output.error().message,
              testing::AllOf(HasSubstr("NVRTC 12.0 on a.cu"), HasSubstr("unrecognized option -arch=sm_90a")));
  EXPECT_EQ(fake.attempts.size(), 2U) << "tried once without our own option, and no more";
}

TEST_F(NvrtcRuns, AFailureOfAnotherKindIsNotTriedAgain) {
  for (const auto& [outcome, code] : {std::pair(NVRTC_ERROR_COMPILATION, ErrorCode::failed),
                                      std::pair(NVRTC_ERROR_OUT_OF_MEMORY, ErrorCode::out_of_memory)}) {
    fake = {};
    fake.outcome = outcome;
    const auto output = run();
    ASSERT_FALSE(output);
    EXPECT_EQ(output.error().code, code);
    EXPECT_EQ(fake.attempts.size(), 1U);
  }
}

}  // namespace
}  // namespace octile::cuda
