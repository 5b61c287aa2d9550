// SPDX-License-Identifier: Apache-2.0
// Which directories are searched, in which order.
#include "octile/table/search_path.h"

#include "octile/core/env.h"
#include "octile/table/table_store.h"
#include "support/files.h"
#include "support/log_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace octile {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SearchPath, ListsAreSplitAtColonsAndEmptyPartsLeftOut) {
  EXPECT_THAT(split_path_list(""), IsEmpty());
  EXPECT_THAT(split_path_list("a"), ElementsAre("a"));
  EXPECT_THAT(split_path_list(":a::b c:"), ElementsAre("a", "b c"));
}

TEST(SearchPath, OptionThenEnvironmentThenUserThenShipped) {
  const test::ScopedSystemVariable data("XDG_DATA_HOME", "/data");
  const env::ScopedOverride path("OCTILE_TABLE_PATH", "/env1:/env2");
  EXPECT_THAT(table_search_path("/opt1:/opt2"), ElementsAre("/opt1", "/opt2", "/env1", "/env2", "/data/octile/tables",
                                                            std::string(OCTILE_TEST_SOURCE_DIR) + "/tables"));
}

TEST(SearchPath, ADirectoryThatIsNamedAndIsNotThereIsSaidOnceAndStaysInThePath) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.write("file", "");
  const std::string missing = directory.file("missing");
  const env::ScopedOverride path("OCTILE_TABLE_PATH", missing + ":" + directory.path());
  const test::LogCapture log;
  for (int time = 0; time < 2; ++time) {
    EXPECT_THAT(table_search_path(file), ::testing::IsSupersetOf({file, missing, directory.path()}));
  }
  EXPECT_EQ(log.warnings_with("OCTILE_TABLE_PATH names " + missing + " for tables: No such file or directory"), 1);
  EXPECT_EQ(log.warnings_with("the option names " + file + " for tables: it is no directory"), 1);
  EXPECT_EQ(log.all().size(), 2U) << "of what is there, or where no one looked, nothing is said";
}

TEST(SearchPath, ADirectoryIsSearchedOnce) {
  const test::ScopedSystemVariable data("XDG_DATA_HOME", "/data");
  const env::ScopedOverride path("OCTILE_TABLE_PATH", "/data/octile/tables:/a");
  EXPECT_THAT(table_search_path("/a:/a"),
              ElementsAre("/a", "/data/octile/tables", std::string(OCTILE_TEST_SOURCE_DIR) + "/tables"));
}

TEST(SearchPath, TheUsersDirectoryFollowsXdgAndHome) {
  const test::ScopedSystemVariable home("HOME", "/home/someone");
  {
    const test::ScopedSystemVariable data("XDG_DATA_HOME", "/data");
    EXPECT_EQ(user_table_directory(), "/data/octile/tables");
  }
  for (const char* ignored : {static_cast<const char*>(nullptr), "", "relative/path"}) {
    const test::ScopedSystemVariable data("XDG_DATA_HOME", ignored);
    EXPECT_EQ(user_table_directory(), "/home/someone/.local/share/octile/tables");
  }
}

TEST(SearchPath, WithoutHomeTheUserDatabaseSaysWhere) {
  const test::ScopedSystemVariable data("XDG_DATA_HOME", nullptr);
  const test::ScopedSystemVariable home("HOME", nullptr);
  EXPECT_THAT(user_table_directory(), ::testing::MatchesRegex("(/.*)?/\\.local/share/octile/tables"));
}

TEST(SearchPath, AnInstalledCopyFindsItsOwnTablesWhereverItWasMoved) {
  const test::TemporaryDirectory directory;
  const std::string tables = directory.file("prefix/share/octile/tables");
  fs::create_directories(tables);
  const std::string source = directory.file("source/tables");
  fs::create_directories(source);
  for (const char* module :
       {"prefix/bin/octile", "prefix/lib/liboctile.so.0", "prefix/lib/x86_64-linux-gnu/liboctile.so.0"}) {
    EXPECT_EQ(shipped_table_directory({directory.file(module), source, "/nowhere/installed"}), tables) << module;
  }
}

TEST(SearchPath, AnUninstalledBuildFindsItsTreesEvenBesideAnInstalledOne) {
  const test::TemporaryDirectory directory;
  const std::string source = directory.file("source/tables");
  const std::string installed = directory.file("prefix/share/octile/tables");
  fs::create_directories(source);
  fs::create_directories(installed);
  EXPECT_EQ(shipped_table_directory({directory.file("source/build/release/octile"), source, installed}), source);
}

TEST(SearchPath, WithNeitherTheConfiguredPrefixIsNamed) {
  EXPECT_EQ(shipped_table_directory({"/no/such/bin/octile", "/no/such/source", "/no/such/installed"}), "/no/such/installed");
  EXPECT_EQ(shipped_table_directory({"", "/no/such/source", "/no/such/installed"}), "/no/such/installed");
}

TEST(SearchPath, ThisProgramWasNotInstalled) {
  EXPECT_EQ(shipped_table_directory(), std::string(OCTILE_TEST_SOURCE_DIR) + "/tables");
}

}  // namespace
}  // namespace octile
