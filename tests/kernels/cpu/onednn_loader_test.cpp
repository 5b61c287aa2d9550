// SPDX-License-Identifier: Apache-2.0
// Finding and opening the oneDNN component: what is broken is a reason, not a failure.
#include "octile/kernels/cpu/onednn_loader.h"

#include "octile/core/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace octile::cpu {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// A folder of its own that is removed with the test.
class OnednnLoader : public testing::Test {
 protected:
  OnednnLoader()
      : folder_(std::filesystem::temp_directory_path() / ("octile-onednn-" + std::to_string(getpid()) + "-" +
                                                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~OnednnLoader() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(OnednnLoader, SaysEveryPlaceThatWasTried) {
  const OnednnComponent component = open_onednn({"/nonexistent/a.so", "/nonexistent/b.so"});
  EXPECT_EQ(component.api, nullptr);
  EXPECT_EQ(component.reason, "not found: /nonexistent/a.so; not found: /nonexistent/b.so");
}

TEST_F(OnednnLoader, AFileThatIsNoLibraryIsAReason) {
  const std::string path = write("liboctile_onednn.so", "not an ELF file");
  const OnednnComponent component = open_onednn({path});
  EXPECT_EQ(component.api, nullptr);
  EXPECT_THAT(component.reason, HasSubstr(path));
}

TEST_F(OnednnLoader, ALibraryThatIsNoComponentIsAReason) {
  Dl_info libc{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&getpid), &libc), 0);
  const OnednnComponent component = open_onednn({libc.dli_fname});
  EXPECT_EQ(component.api, nullptr);
  EXPECT_THAT(component.reason, HasSubstr(std::string(libc.dli_fname) + " has no symbol octile_onednn_api"));
}

TEST_F(OnednnLoader, ACandidateAfterABrokenOneStillServes) {
  const OnednnComponent& real = onednn_component();
  if (real.api == nullptr) {
    GTEST_SKIP() << real.reason;
  }
  const OnednnComponent component = open_onednn({write("broken.so", ""), real.path});
  EXPECT_EQ(component.api, real.api);
  EXPECT_EQ(component.path, real.path);
  EXPECT_EQ(component.reason, "");
}

TEST_F(OnednnLoader, TheVariableNamesTheOnlyPlace) {
  const env::ScopedOverride file("OCTILE_ONEDNN_PATH", "/some/where/component.so");
  EXPECT_THAT(onednn_candidates(), ElementsAre("/some/where/component.so"));
  const env::ScopedOverride directory("OCTILE_ONEDNN_PATH", folder_.string());
  EXPECT_THAT(onednn_candidates(), ElementsAre((folder_ / "liboctile_onednn.so").string()));
  const env::ScopedOverride bare("OCTILE_ONEDNN_PATH", "component.so");
  EXPECT_THAT(onednn_candidates(), ElementsAre((std::filesystem::current_path() / "component.so").string()));
}

TEST_F(OnednnLoader, LooksBesideTheProgramAndInTheBuildTree) {
  const env::ScopedOverride unset("OCTILE_ONEDNN_PATH", std::nullopt);
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  EXPECT_THAT(onednn_candidates(), Contains((program / "liboctile_onednn.so").string()));
  EXPECT_THAT(onednn_candidates(), Contains(std::string(OCTILE_TEST_BINARY_DIR) + "/liboctile_onednn.so"));
}

TEST_F(OnednnLoader, TheBuiltComponentStatesItsVersion) {
  const OnednnComponent& component = onednn_component();
  if (component.api == nullptr) {
    GTEST_SKIP() << component.reason;
  }
  EXPECT_THAT(component.api->version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST_F(OnednnLoader, TheComponentReportsOnednnsErrors) {
  const OnednnComponent& component = onednn_component();
  if (component.api == nullptr) {
    GTEST_SKIP() << component.reason;
  }
  const OctileOnednnShape shape = {.m = -5, .n = 4, .k = 4, .dtype = OCTILE_ONEDNN_F32, .threads = 1};
  OctileOnednnMatmul* matmul = nullptr;
  OctileOnednnError error{};
  EXPECT_NE(component.api->create(&shape, &matmul, &error), 0);
  EXPECT_EQ(matmul, nullptr);
  EXPECT_THAT(error.text, HasSubstr("oneDNN"));
}

}  // namespace
}  // namespace octile::cpu
