// SPDX-License-Identifier: Apache-2.0
// Finding, caching, logging and writing table files.
#include "octile/table/table_store.h"

#include "octile/core/env.h"
#include "octile/table/own_format.h"
#include "octile/table/table_ops.h"
#include "support/files.h"
#include "support/log_capture.h"
#include "table/random_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

namespace octile {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kDevice = "NVIDIA_Test_X1";
constexpr const char* kFieldText = R"({"1": null, "64": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 256,
                                       "num_warps": 4, "num_stages": 3}})";

TableKey key_of(const std::string& device, std::int64_t n = 6144, std::int64_t k = 4096) {
  TableKey key;
  key.device_name = device;
  key.arch = "sm_90";
  key.sm_count = 132;
  key.n = n;
  key.k = k;
  key.weight_layout = "row_major";
  return key;
}

TableEntry entry_of(std::int64_t lo, std::int64_t hi, const std::string& kernel = "reference") {
  TableEntry entry;
  entry.m_lo = lo;
  entry.m_hi = hi;
  entry.kernel = kernel;
  return entry;
}

std::string own_text(const std::string& device, const std::string& kernel = "reference") {
  TileTable table;
  table.key = key_of(device);
  table.entries.push_back(entry_of(1, 64, kernel));
  const auto text = own_table_text(table);
  EXPECT_TRUE(text);
  return text ? *text : "";
}

std::string field_name(const std::string& device) { return table_file_name(key_of(device), true); }
std::string own_name(const std::string& device) { return table_file_name(key_of(device), false); }

// Every test looks only where it says: the user's directory and the environment are empty.
class TableStore : public ::testing::Test {
 protected:
  void SetUp() override { clear_table_cache(); }
  void TearDown() override { clear_table_cache(); }

  TableLookup find(const std::string& tables, const std::string& device = kDevice) const {
    return find_table(tables, device, 6144, 4096);
  }

  test::TemporaryDirectory directory_;
  test::LogCapture log_;
  test::ScopedSystemVariable data_home_{"XDG_DATA_HOME", directory_.file("data").c_str()};
  env::ScopedOverride no_path_{"OCTILE_TABLE_PATH", std::nullopt};
  env::ScopedOverride no_alias_{"OCTILE_DEVICE_NAME_ALIAS", std::nullopt};
};

TEST_F(TableStore, FindsEachFormatFlatAndInTheDevicesFolder) {
  for (const std::string& folder : {std::string(), std::string(kDevice) + "/"}) {
    for (const bool own : {false, true}) {
      const test::TemporaryDirectory tables;
      const std::string path =
          tables.write(folder + (own ? own_name(kDevice) : field_name(kDevice)), own ? own_text(kDevice) : kFieldText);
      const TableLookup lookup = find(tables.path());
      ASSERT_NE(lookup.table, nullptr) << path;
      EXPECT_EQ(lookup.table->file, path);
      EXPECT_EQ(lookup.table->field_format, !own);
      EXPECT_EQ(lookup.searched.front(), tables.path());
      EXPECT_TRUE(lookup.findings.empty());
    }
  }
}

TEST_F(TableStore, OurFormatServesBeforeTheFieldsWithinADirectory) {
  directory_.write("t/" + field_name(kDevice), kFieldText);
  const std::string own = directory_.write(std::string("t/") + kDevice + "/" + own_name(kDevice), own_text(kDevice));
  EXPECT_EQ(find(directory_.file("t")).table->file, own);
}

TEST_F(TableStore, TheFirstDirectoryWinsWhateverTheFormat) {
  const std::string first = directory_.write("a/" + field_name(kDevice), kFieldText);
  directory_.write("b/" + own_name(kDevice), own_text(kDevice));
  EXPECT_EQ(find(directory_.file("a") + ":" + directory_.file("b")).table->file, first);
}

TEST_F(TableStore, TheEnvironmentAndTheUsersDirectoryAreSearched) {
  const std::string user = directory_.write("data/octile/tables/" + field_name(kDevice), kFieldText);
  EXPECT_EQ(find("").table->file, user);
  const std::string in_path = directory_.write("env/" + field_name(kDevice), kFieldText);
  const env::ScopedOverride path("OCTILE_TABLE_PATH", directory_.file("env"));
  EXPECT_EQ(find("").table->file, in_path);
  EXPECT_EQ(find(directory_.file("none")).table->file, in_path);
}

TEST_F(TableStore, TheShippedTablesAreFoundLast) {
  const TableLookup lookup = find_table("", "NVIDIA_L40S", 24576, 4096);
  ASSERT_NE(lookup.table, nullptr);
  EXPECT_EQ(lookup.table->file, std::string(OCTILE_TEST_SOURCE_DIR) + "/tables/NVIDIA_L40S/" +
                                    "N=24576,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json");
  // The driver's own spelling is understood.
  EXPECT_EQ(find_table("", "NVIDIA L40S", 24576, 4096).table, lookup.table);
}

TEST_F(TableStore, WhereNothingIsFoundTheLookUpSaysWhereItSearched) {
  const TableLookup lookup = find(directory_.file("none"));
  EXPECT_EQ(lookup.table, nullptr);
  EXPECT_EQ(lookup.near_device, "");
  EXPECT_EQ(lookup.searched.size(), 3U);
  EXPECT_TRUE(lookup.findings.empty());
}

TEST_F(TableStore, AFileIsReadOncePerProcess) {
  const std::string path = directory_.write("t/" + field_name(kDevice), kFieldText);
  const TableLookup first = find(directory_.file("t"));
  fs::remove(path);
  const TableLookup second = find(directory_.file("t"));
  EXPECT_EQ(first.table, second.table);
  clear_table_cache();
  EXPECT_EQ(find(directory_.file("t")).table, nullptr);
  EXPECT_NE(first.table, nullptr);
}

TEST_F(TableStore, AFileIsNamedOnceWhenItIsFirstUsed) {
  const std::string path = directory_.write("t/" + field_name(kDevice), kFieldText);
  EXPECT_EQ(log_.count(LogLevel::info, path), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(find(directory_.file("t")).table, nullptr);
    clear_table_cache();
  }
  EXPECT_EQ(log_.count(LogLevel::info, path), 1);
}

TEST_F(TableStore, OnlyRankZeroLogs) {
  const test::ScopedSystemVariable rank("RANK", "3");
  directory_.write("t/" + field_name(kDevice), std::string("{\"_comment\": 1, \"1\": null}"));
  EXPECT_EQ(find(directory_.file("t")).findings.size(), 1U);
  EXPECT_TRUE(log_.all().empty());
}

TEST_F(TableStore, TheFindingsOfAFileAreOneWarning) {
  std::string text = "{\"1\": null";
  for (int i = 0; i < 20; ++i) {
    text += ", \"note" + std::to_string(i) + "\": 1";
  }
  const std::string path = directory_.write("t/" + field_name(kDevice), text + "}");
  const TableLookup lookup = find(directory_.file("t"));
  ASSERT_NE(lookup.table, nullptr);
  EXPECT_EQ(lookup.findings.size(), 20U);
  EXPECT_EQ(find(directory_.file("t") + ":/elsewhere").findings.size(), 20U);
  EXPECT_EQ(log_.count(LogLevel::warning, path), 1);
  EXPECT_EQ(log_.count(LogLevel::warning, "note0"), 1);
  EXPECT_EQ(log_.count(LogLevel::warning, "and 15 more"), 1);
}

TEST_F(TableStore, ABadFileIsLeftOutWithAWarningAndTheNextServes) {
  const std::string bad = directory_.write("a/" + own_name(kDevice), "{ broken");
  const std::string good = directory_.write("b/" + field_name(kDevice), kFieldText);
  const TableLookup lookup = find(directory_.file("a") + ":" + directory_.file("b"));
  ASSERT_NE(lookup.table, nullptr);
  EXPECT_EQ(lookup.table->file, good);
  ASSERT_EQ(lookup.findings.size(), 1U);
  EXPECT_EQ(lookup.findings.front().file, bad);
  EXPECT_EQ(log_.count(LogLevel::warning, "left out"), 1);
  EXPECT_EQ(log_.count(LogLevel::warning, bad), 1);
}

TEST_F(TableStore, AHugeFileIsLeftOutQuickly) {
  const std::string path = directory_.write("t/" + field_name(kDevice), "{");
  fs::resize_file(path, 200'000'000);
  const TableLookup lookup = find(directory_.file("t"));
  EXPECT_EQ(lookup.table, nullptr);
  ASSERT_EQ(lookup.findings.size(), 1U);
  EXPECT_EQ(lookup.findings.front().kind, "io");
  EXPECT_THAT(lookup.findings.front().message, HasSubstr("200000000 bytes"));
}

TEST_F(TableStore, ADirectoryOrPipeInTheFilesPlaceIsLeftOut) {
  fs::create_directories(directory_.file("t/" + own_name(kDevice)));
  ASSERT_EQ(::mkfifo(directory_.file("t/" + field_name(kDevice)).c_str(), 0600), 0);
  const TableLookup lookup = find(directory_.file("t"));
  EXPECT_EQ(lookup.table, nullptr);
  EXPECT_EQ(lookup.findings.size(), 2U);
}

TEST_F(TableStore, ANearNameIsNamedAndNeverUsed) {
  directory_.write("t/" + field_name("NVIDIA_H20"), kFieldText);
  directory_.write("t/NVIDIA_H100_80GB_HBM3/" + own_name("NVIDIA_H100_80GB_HBM3"), own_text("NVIDIA_H100_80GB_HBM3"));
  const TableLookup h20 = find(directory_.file("t"), "NVIDIA H20-3e");
  EXPECT_EQ(h20.table, nullptr);
  EXPECT_EQ(h20.near_device, "NVIDIA_H20");
  const TableLookup h100 = find(directory_.file("t"), "NVIDIA H100 PCIe");
  EXPECT_EQ(h100.table, nullptr);
  EXPECT_EQ(h100.near_device, "NVIDIA_H100_80GB_HBM3");
  EXPECT_EQ(find(directory_.file("t"), "NVIDIA_H201").near_device, "");
  // A near name with tables for other shapes only is of no use.
  EXPECT_EQ(find_table(directory_.file("t"), "NVIDIA_H20-3e", 6144, 4097).near_device, "");
}

TEST_F(TableStore, AnAliasIsUsedOnPurpose) {
  const std::string path = directory_.write("t/" + field_name("NVIDIA_H20"), kFieldText);
  const env::ScopedOverride alias("OCTILE_DEVICE_NAME_ALIAS", "NVIDIA H20-3e=NVIDIA H20");
  const TableLookup lookup = find(directory_.file("t"), "NVIDIA H20-3e");
  ASSERT_NE(lookup.table, nullptr);
  EXPECT_EQ(lookup.table->file, path);
  EXPECT_EQ(lookup.alias, "NVIDIA_H20");
  EXPECT_EQ(find(directory_.file("t"), "NVIDIA_H20").alias, "");
  EXPECT_EQ(find(directory_.file("t"), "NVIDIA_H201").table, nullptr);
}

TEST_F(TableStore, AMalformedAliasIsAFindingAndNotUsed) {
  directory_.write("t/" + field_name(kDevice), kFieldText);
  const env::ScopedOverride alias("OCTILE_DEVICE_NAME_ALIAS", "=x");
  const TableLookup lookup = find(directory_.file("t"));
  EXPECT_NE(lookup.table, nullptr);
  ASSERT_EQ(lookup.findings.size(), 1U);
  EXPECT_EQ(lookup.findings.front().kind, "bad_alias");
}

TEST_F(TableStore, ADeviceNameCannotLeadOutOfTheDirectories) {
  directory_.write("secret/x", "");
  for (const char* name : {"../secret/x", "..", "", "."}) {
    const TableLookup lookup = find(directory_.file("t"), name);
    EXPECT_EQ(lookup.table, nullptr);
    ASSERT_EQ(lookup.findings.size(), 1U) << name;
    EXPECT_EQ(lookup.findings.front().kind, "bad_device_name");
  }
}

TEST_F(TableStore, ALinkOutOfItsDirectoryIsNotFollowedAndOneInsideIs) {
  const std::string outside = directory_.write("outside/" + own_name(kDevice), own_text(kDevice));
  fs::create_directories(directory_.file("inside/store"));
  fs::create_symlink(outside, directory_.file("inside/" + own_name(kDevice)));
  const TableLookup refused = find(directory_.file("inside"));
  EXPECT_EQ(refused.table, nullptr);
  ASSERT_EQ(refused.findings.size(), 1U);
  EXPECT_THAT(refused.findings[0].message, testing::HasSubstr("a link out of " + directory_.file("inside")));

  // As volumes of containers are laid out.
  directory_.write("volume/..data/" + own_name(kDevice), own_text(kDevice));
  fs::create_symlink("..data/" + own_name(kDevice), directory_.file("volume/" + own_name(kDevice)));
  EXPECT_NE(find(directory_.file("volume")).table, nullptr);
  // The directory itself may be one.
  fs::create_directory_symlink(directory_.file("volume"), directory_.file("linked"));
  EXPECT_NE(find(directory_.file("linked")).table, nullptr);
}

TEST_F(TableStore, OfTenDirectoriesTheFirstThatHasTheTableServes) {
  std::string path;
  for (int i = 0; i < 10; ++i) {
    const std::string name = "many" + std::to_string(i);
    fs::create_directories(directory_.file(name));
    path += (path.empty() ? "" : ":") + directory_.file(name);
  }
  directory_.write("many9/" + own_name(kDevice), own_text(kDevice));
  EXPECT_EQ(find(path).table->file, directory_.file("many9/" + own_name(kDevice)));
}

TEST_F(TableStore, APathThatIsNoUtf8IsReadAndWritten) {
  const std::string folder = "caf\xE9-\xFF";
  directory_.write(folder + "/" + own_name(kDevice), own_text(kDevice));
  const TableLookup found = find(directory_.file(folder));
  ASSERT_NE(found.table, nullptr);
  EXPECT_EQ(found.table->file, directory_.file(folder + "/" + own_name(kDevice)));
}

TEST_F(TableStore, ManyThreadsGetTheSameTable) {
  const std::string path = directory_.write("t/" + field_name(kDevice), kFieldText);
  std::vector<std::shared_ptr<const TileTable>> seen(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        seen[i] = find(directory_.file("t")).table;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& table : seen) {
    EXPECT_NE(table, nullptr);
    EXPECT_EQ(table, seen.front());
  }
  EXPECT_EQ(log_.count(LogLevel::info, path), 1);
}

TEST_F(TableStore, AFileOfAFutureFormatIsNeverOverwritten) {
  std::string text = own_text(kDevice);
  text.replace(text.find("\"octile_table\": 1"), 17, "\"octile_table\": 2");
  const std::string path = directory_.write(own_name(kDevice), text);
  TileTable table;
  table.key = key_of(kDevice);
  table.entries.push_back(entry_of(1, 8));
  const auto wrote = write_own_table(table, path);
  ASSERT_FALSE(wrote);
  EXPECT_THAT(wrote.error().message, AllOf(HasSubstr(path), HasSubstr("format number 2"), HasSubstr("not replaced")));
  const auto updated = update_own_table(path, [&](const TileTable*) -> Expected<TileTable> { return table; });
  ASSERT_FALSE(updated);
  EXPECT_THAT(updated.error().message, HasSubstr("format number 2"));
  EXPECT_EQ(test::read_text(path), text);
}

TEST_F(TableStore, WhatIsNoTableIsNeverOverwritten) {
  const std::string path = directory_.write(own_name(kDevice), "half a fi");
  TileTable table;
  table.key = key_of(kDevice);
  EXPECT_FALSE(write_own_table(table, path));
  EXPECT_EQ(test::read_text(path), "half a fi");
}

TEST_F(TableStore, EntriesLostByReplacingAFileAreNamed) {
  std::string text = own_text(kDevice);
  text.insert(text.find("\"kernel\""), "\"mystery\": 1, ");
  const std::string path = directory_.write(own_name(kDevice), text);
  TileTable table;
  table.key = key_of(kDevice);
  table.entries.push_back(entry_of(1, 8));
  const auto wrote = write_own_table(table, path);
  ASSERT_TRUE(wrote) << wrote.error().message;
  EXPECT_EQ(log_.count(LogLevel::warning, "mystery"), 1);
}

TEST_F(TableStore, ATableIsNotWrittenUnderAnothersName) {
  TileTable table;
  table.key = key_of(kDevice);
  table.entries.push_back(entry_of(1, 8));
  EXPECT_FALSE(write_own_table(table, directory_.file(own_name("NVIDIA_H200"))));
  EXPECT_FALSE(write_own_table(table, directory_.file(field_name(kDevice))));
  table.field_format = true;
  table.entries.front().m_hi = 1;
  table.entries.front().kernel = kBaselineKernel;
  EXPECT_FALSE(write_field_table(table, directory_.file(own_name(kDevice))));
  EXPECT_FALSE(write_field_table(table, directory_.file("x.json")));
  EXPECT_TRUE(write_field_table(table, directory_.file(field_name(kDevice))));
}

TEST_F(TableStore, AnUpdateSeesWhatIsThereAndWritesTheResult) {
  const std::string path = directory_.file("new/folder/" + own_name(kDevice));
  const auto add = [&](std::int64_t m) {
    return update_own_table(path, [&, m](const TileTable* current) -> Expected<TileTable> {
      TileTable mine;
      mine.key = key_of(kDevice);
      mine.entries.push_back(entry_of(m, m));
      return current == nullptr ? Expected<TileTable>(mine) : merge_tables({*current, mine});
    });
  };
  ASSERT_TRUE(add(1));
  ASSERT_TRUE(add(5));
  std::vector<Finding> findings;
  const auto table = read_table(path, findings);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->entries.size(), 2U);
}

TEST_F(TableStore, AnUpdateThatFailsLeavesTheFileAsItWas) {
  const std::string path = directory_.write(own_name(kDevice), own_text(kDevice));
  const auto updated = update_own_table(
      path, [](const TileTable*) -> Expected<TileTable> { return Error{ErrorCode::failed, "measured nothing"}; });
  ASSERT_FALSE(updated);
  EXPECT_EQ(updated.error().message, "measured nothing");
  EXPECT_EQ(test::read_text(path), own_text(kDevice));
}

// Adds entry [m, m] by merging, as two tuners do.
Expected<void> add_point(const std::string& path, std::int64_t m) {
  return update_own_table(path, [m](const TileTable* current) -> Expected<TileTable> {
    TileTable mine;
    mine.key = key_of(kDevice);
    mine.entries.push_back(entry_of(m, m));
    return current == nullptr ? Expected<TileTable>(mine) : merge_tables({*current, mine});
  });
}

TEST_F(TableStore, TwoProcessesOnOneFileBothKeepTheirResults) {
  const std::string path = directory_.file(own_name(kDevice));
  std::vector<pid_t> children;
  for (int process = 0; process < 2; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool ok = true;
      for (int i = 0; i < 25; ++i) {
        ok = ok && add_point(path, 1 + 2 * i + process);
      }
      ::_exit(ok ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::vector<Finding> findings;
  const auto table = read_table(path, findings);
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_EQ(table->entries.size(), 1U) << "neighbours with the same choice are one interval";
  for (std::int64_t m = 1; m <= 50; ++m) {
    EXPECT_NE(table->find(m), nullptr) << m;
  }
}

TEST_F(TableStore, ThreadsOnOneFileAllKeepTheirResults) {
  const std::string path = directory_.file(own_name(kDevice));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 5; ++i) {
        const auto added = add_point(path, 1 + 4 * i + thread);
        EXPECT_TRUE(added) << added.error().message;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<Finding> findings;
  const auto table = read_table(path, findings);
  ASSERT_TRUE(table);
  ASSERT_EQ(table->entries.size(), 1U);
  EXPECT_EQ(table->entries[0].m_lo, 1);
  EXPECT_EQ(table->entries[0].m_hi, 20);
}

TEST_F(TableStore, AKillAtAnyMomentLeavesAWholeTable) {
  SCOPED_TRACE(test::seed_text());
  const std::string path = directory_.file(own_name(kDevice));
  ASSERT_TRUE(add_point(path, 1'000'000));
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::int64_t m = 1;; ++m) {
        if (!add_point(path, m)) {
          ::_exit(1);
        }
      }
    }
    const auto wait = std::uniform_int_distribution<int>(0, 20'000)(test::generator());
    std::this_thread::sleep_for(std::chrono::microseconds(wait));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    std::vector<Finding> findings;
    const auto table = read_table(path, findings);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_TRUE(findings.empty());
    EXPECT_NE(table->find(1'000'000), nullptr);
  }
}

}  // namespace
}  // namespace octile
