// SPDX-License-Identifier: Apache-2.0
// Where CUDA's libraries are looked for, with libraries of our own laid out as toolkits and wheels lay out theirs.
#include "octile/kernels/cuda/library_search.h"

#include "octile/core/env.h"
#include "octile/kernels/cuda/cublaslt.h"
#include "octile/kernels/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv, mkdtemp
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

namespace octile::cuda {
namespace fs = std::filesystem;
namespace {

using testing::HasSubstr;

// Sets an environment variable for one test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = getenv(name)) {
      before_ = before;
    }
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class LibrarySearch : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "octile_search_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    // A name that no test and no system uses again: once loaded, a library is found under its name for good.
    soname_ = "liboctile_search_" + root_.filename().string() + ".so.1";
  }
  void TearDown() override { fs::remove_all(root_); }

  // A loadable library under `directory`.
  fs::path put_library(const fs::path& directory) {
    fs::create_directories(directory);
    fs::copy_file(OCTILE_FAKE_OLD_LIBRARIES, directory / soname_);
    return directory / soname_;
  }
  void put_garbage(const fs::path& directory) {
    fs::create_directories(directory);
    std::ofstream(directory / soname_) << "this is no shared library";
  }
  Expected<SharedLibrary> search() { return open_library({"the test's library", {soname_}, true}); }

  fs::path root_;
  std::string soname_;
};

TEST_F(LibrarySearch, WhatIsNowhereIsAnErrorWithItsName) {
  const auto found = search();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::unavailable);
  EXPECT_THAT(found.error().message, HasSubstr(soname_));
  EXPECT_THAT(found.error().message, HasSubstr("the test's library"));
}

TEST_F(LibrarySearch, OctileCudaPathTakesToolkitRootsAndPlainDirectories) {
  const fs::path in_toolkit = put_library(root_ / "toolkit" / "lib64");
  const env::ScopedOverride path("OCTILE_CUDA_PATH", (root_ / "absent").string() + ":" + (root_ / "toolkit").string());
  const auto found = search();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(fs::path(found->path), in_toolkit);
  EXPECT_FALSE(found->already_loaded);
}

TEST_F(LibrarySearch, OctileCudaPathComesBeforeEveryOtherPlace) {
  put_library(root_ / "home" / "lib64");
  const fs::path own = put_library(root_ / "own");
  const ScopedVariable home("CUDA_HOME", (root_ / "home").string());
  const env::ScopedOverride path("OCTILE_CUDA_PATH", (root_ / "own").string());
  const auto found = search();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(fs::path(found->path), own);
}

TEST_F(LibrarySearch, WheelsInAVirtualEnvironmentAreFound) {
  const fs::path site = root_ / "venv" / "lib" / "python3.12" / "site-packages" / "nvidia";
  const fs::path component = put_library(site / "cuda_nvrtc" / "lib");
  const ScopedVariable environment("VIRTUAL_ENV", (root_ / "venv").string());
  const auto found = search();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(fs::path(found->path), component);
}

TEST_F(LibrarySearch, TheNewestBundleOfWheelsIsTakenFirst) {
  const fs::path site = root_ / "venv" / "lib" / "python3.12" / "site-packages" / "nvidia";
  put_library(site / "cu12" / "lib");
  put_library(site / "cublas" / "lib");
  const fs::path newest = put_library(site / "cu13" / "lib");
  const ScopedVariable environment("VIRTUAL_ENV", (root_ / "venv").string());
  const auto found = search();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(fs::path(found->path), newest);
}

TEST_F(LibrarySearch, WheelsOfTheFirstPythonInPathAreFound) {
  const fs::path wheel =
      put_library(root_ / "prefix" / "lib" / "python3.11" / "dist-packages" / "nvidia" / "cublas" / "lib");
  fs::create_directories(root_ / "prefix" / "bin");
  std::ofstream(root_ / "prefix" / "bin" / "python3") << "#!/bin/sh\n";
  const ScopedVariable path("PATH", "/nonexistent::" + (root_ / "prefix" / "bin").string() + ":" + getenv("PATH"));
  const auto found = search();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(fs::path(found->path), wheel);
}

TEST_F(LibrarySearch, AFileThatDoesNotLoadIsPassedOverAndNamedWhereNothingElseServes) {
  put_garbage(root_ / "broken");
  {
    const env::ScopedOverride path("OCTILE_CUDA_PATH", (root_ / "broken").string());
    const auto found = search();
    ASSERT_FALSE(found);
    EXPECT_THAT(found.error().message, HasSubstr((root_ / "broken" / soname_).string()));
  }
  const fs::path good = put_library(root_ / "good");
  const env::ScopedOverride path("OCTILE_CUDA_PATH", (root_ / "broken").string() + ":" + (root_ / "good").string());
  const auto found = search();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(fs::path(found->path), good);
}

TEST_F(LibrarySearch, ACopyAlreadyInTheProcessIsPreferred) {
  ASSERT_TRUE(open_library_file(OCTILE_FAKE_CUDA));
  fs::create_directories(root_ / "own");
  fs::copy_file(OCTILE_FAKE_CUDA, root_ / "own" / "liboctile_fake_cuda.so.1");
  const env::ScopedOverride path("OCTILE_CUDA_PATH", (root_ / "own").string());
  const auto found = open_library({"the fake driver", {"liboctile_fake_cuda.so.1"}, true});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(found->already_loaded);
  EXPECT_TRUE(fs::equivalent(found->path, OCTILE_FAKE_CUDA)) << found->path;
}

TEST_F(LibrarySearch, TheDriverIsNotLookedForInToolkitsThatHoldItsStub) {
  put_library(root_ / "toolkit" / "lib64");
  const ScopedVariable home("CUDA_HOME", (root_ / "toolkit").string());
  EXPECT_FALSE(open_library({"the driver", {soname_}, false}));
  const env::ScopedOverride path("OCTILE_CUDA_PATH", (root_ / "toolkit").string());
  EXPECT_TRUE(open_library({"the driver", {soname_}, false})) << "unless it is asked for";
}

TEST(OldLibraries, AnOldNvrtcIsRefusedWithBothVersions) {
  const auto opened = open_nvrtc(OCTILE_FAKE_OLD_LIBRARIES);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
  EXPECT_THAT(opened.error().message, testing::AllOf(HasSubstr("11.2"), HasSubstr("12.0")));
}

TEST(OldLibraries, AnOldCublasLtIsRefusedWithBothVersions) {
  const auto opened = open_cublaslt(OCTILE_FAKE_OLD_LIBRARIES);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
  EXPECT_THAT(opened.error().message, testing::AllOf(HasSubstr("12.3.0"), HasSubstr("12.9")));
}

TEST(OldLibraries, ALibraryThatIsSomethingElseNamesTheMissingFunction) {
  const auto compiler = open_nvrtc(OCTILE_FAKE_CUDA);
  ASSERT_FALSE(compiler);
  EXPECT_THAT(compiler.error().message, HasSubstr("nvrtcVersion"));
  const auto vendor = open_cublaslt(OCTILE_FAKE_CUDA);
  ASSERT_FALSE(vendor);
  EXPECT_THAT(vendor.error().message, HasSubstr("cublasLtGetVersion"));
}

}  // namespace
}  // namespace octile::cuda
