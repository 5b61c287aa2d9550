// SPDX-License-Identifier: Apache-2.0
// Every rule of the field's format, broken on purpose.
#include "octile/table/field_format.h"

#include "octile/table/table_store.h"
#include "support/files.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace octile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kName = "N=6144,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json";
constexpr const char* kTile =
    R"({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 256, "num_warps": 4, "num_stages": 3})";

struct Loaded {
  std::optional<TileTable> table;
  std::vector<Finding> findings;
};

Loaded load(const std::string& text) {
  const test::TemporaryDirectory directory;
  Loaded result;
  result.table = load_table(directory.write(kName, text), result.findings);
  return result;
}

std::string tile_with(const std::string& key, const std::string& value) {
  std::string text = kTile;
  const std::size_t at = text.find("\"" + key + "\": ");
  if (at == std::string::npos) {
    return text.substr(0, text.size() - 1) + ", \"" + key + "\": " + value + "}";
  }
  const std::size_t begin = at + key.size() + 4;
  return text.replace(begin, std::min(text.find(',', begin), text.find('}', begin)) - begin, value);
}

// A table of a good tile at 1, `faulty` at 64 and a good tile at 128: the faulty entry must be named with kind and reason,
// and serve its M with the baseline; the rest must serve as if nothing were wrong.
void expect_entry_left_out(const std::string& faulty, const std::string& kind, const std::string& reason) {
  SCOPED_TRACE(faulty);
  const Loaded loaded = load(std::string("{\"1\": ") + kTile + ", \"64\": " + faulty + ", \"128\": " + kTile + "}");
  ASSERT_TRUE(loaded.table);
  ASSERT_EQ(loaded.findings.size(), 1U);
  const Finding& finding = loaded.findings.front();
  EXPECT_EQ(finding.key, "64");
  EXPECT_EQ(finding.kind, kind);
  EXPECT_THAT(finding.message, HasSubstr(reason));
  EXPECT_THAT(finding.file, HasSubstr(kName));
  EXPECT_EQ(loaded.table->find(1)->kernel, kFieldKernel);
  EXPECT_EQ(loaded.table->find(200)->kernel, kFieldKernel);
  const TableEntry* const entry = loaded.table->find(64);
  EXPECT_EQ(entry->kernel, kBaselineKernel);
  EXPECT_TRUE(entry->config.values.empty());
  EXPECT_THAT(entry->left_out, HasSubstr(reason));
}

TEST(FieldFormat, ReadsTilesAndNullInTheOrderOfTheFile) {
  const Loaded loaded = load(std::string("{\"64\": ") + kTile + ", \"8\": null}");
  ASSERT_TRUE(loaded.table);
  EXPECT_TRUE(loaded.findings.empty());
  ASSERT_EQ(loaded.table->entries.size(), 2U);
  EXPECT_TRUE(loaded.table->field_format);
  EXPECT_EQ(loaded.table->key.n, 6144);
  EXPECT_EQ(loaded.table->key.k, 4096);
  EXPECT_EQ(loaded.table->key.device_name, "NVIDIA_L40S");
  const TableEntry& tile = loaded.table->entries[0];
  EXPECT_EQ(tile.m_lo, 64);
  EXPECT_EQ(tile.kernel, "ada_mma");
  EXPECT_EQ(tile.config.to_json(), kTile);
  const TableEntry& null = loaded.table->entries[1];
  EXPECT_EQ(null.m_lo, 8);
  EXPECT_EQ(null.kernel, "baseline");
  EXPECT_EQ(null.left_out, "");
}

TEST(FieldFormat, TakesTheOptionalKeysAtTheEndsOfTheirRanges) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"GROUP_SIZE_M", "1"},
                                                                                   {"GROUP_SIZE_M", "1024"},
                                                                                   {"SPLIT_K", "1"},
                                                                                   {"SPLIT_K", "256"},
                                                                                   {"SWAP_AB", "true"},
                                                                                   {"SWAP_AB", "0"},
                                                                                   {"num_stages", "1"},
                                                                                   {"num_stages", "16"},
                                                                                   {"num_warps", "1"},
                                                                                   {"num_warps", "32"},
                                                                                   {"BLOCK_SIZE_M", "1024"},
                                                                                   {"BLOCK_SIZE_N", "16"},
                                                                                   {"BLOCK_SIZE_K", "32"},
                                                                                   {"BLOCK_SIZE_K", "4096"}}) {
    const Loaded loaded = load("{\"1\": " + tile_with(key, value) + "}");
    EXPECT_TRUE(loaded.findings.empty()) << key << " " << value << ": " << loaded.findings.front().message;
    ASSERT_TRUE(loaded.table);
    const std::int64_t wanted = value == "true" ? 1 : std::stoll(value);
    EXPECT_EQ(loaded.table->entries.front().config.find(key), wanted) << key;
  }
}

TEST(FieldFormat, AKeyThatIsNoPositiveDecimalIntegerIsNamedAndTheRestServes) {
  for (const char* key : {"064", "+64", "-64", "0", " 64", "64 ", "6 4", "", "64.0", "6e1", "0x40", "64abc",
                          "\\u0666\\u0664", "9223372036854775808", "99999999999999999999999", "_comment"}) {
    SCOPED_TRACE(key);
    const Loaded loaded = load(std::string("{\"") + key + "\": " + kTile + ", \"128\": " + kTile + "}");
    ASSERT_TRUE(loaded.table);
    EXPECT_EQ(loaded.table->entries.size(), 1U);
    ASSERT_EQ(loaded.findings.size(), 1U);
    EXPECT_EQ(loaded.findings.front().kind, "bad_key");
    EXPECT_THAT(loaded.findings.front().message, HasSubstr("no positive decimal integer"));
  }
  EXPECT_EQ(parse_positive_decimal("9223372036854775807"), 9223372036854775807);
}

TEST(FieldFormat, MetadataBesideTheKeysIsNamedAndTheRestServes) {
  const Loaded loaded = load(std::string(R"({"triton_version": "3.6.0", "_comment": {"by": ["me"]}, "16": )") + kTile + "}");
  ASSERT_TRUE(loaded.table);
  EXPECT_EQ(loaded.table->find(3)->kernel, kFieldKernel);
  ASSERT_EQ(loaded.findings.size(), 2U);
  EXPECT_EQ(loaded.findings[0].key, "triton_version");
  EXPECT_EQ(loaded.findings[1].key, "_comment");
}

TEST(FieldFormat, IllegalTilesAreLeftOut) {
  expect_entry_left_out(tile_with("BLOCK_SIZE_K", "48"), "out_of_range",
                        "BLOCK_SIZE_K must be a power of two from 32 to 4096");
  expect_entry_left_out(tile_with("BLOCK_SIZE_K", "16"), "out_of_range", "it is 16");
  expect_entry_left_out(tile_with("BLOCK_SIZE_K", "8192"), "out_of_range", "it is 8192");
  expect_entry_left_out(tile_with("BLOCK_SIZE_M", "8"), "out_of_range",
                        "BLOCK_SIZE_M must be a power of two from 16 to 1024");
  expect_entry_left_out(tile_with("BLOCK_SIZE_M", "2048"), "out_of_range", "it is 2048");
  expect_entry_left_out(tile_with("BLOCK_SIZE_N", "0"), "out_of_range", "it is 0");
  expect_entry_left_out(tile_with("BLOCK_SIZE_N", "-32"), "out_of_range", "it is -32");
  expect_entry_left_out(tile_with("num_warps", "3"), "out_of_range",
                        "num_warps must be a power of two from 1 to 32, it is 3");
  expect_entry_left_out(tile_with("num_warps", "64"), "out_of_range", "it is 64");
  expect_entry_left_out(tile_with("num_stages", "0"), "out_of_range", "num_stages must be an integer from 1 to 16, it is 0");
  expect_entry_left_out(tile_with("num_stages", "17"), "out_of_range", "it is 17");
  expect_entry_left_out(tile_with("GROUP_SIZE_M", "0"), "out_of_range", "GROUP_SIZE_M");
  expect_entry_left_out(tile_with("SPLIT_K", "0"), "out_of_range", "SPLIT_K");
  expect_entry_left_out(tile_with("SWAP_AB", "2"), "out_of_range", "SWAP_AB");
  expect_entry_left_out(tile_with("BLOCK_SIZE_M", "4294967312"), "out_of_range", "it is 4294967312");
}

TEST(FieldFormat, ValuesThatAreNoIntegersAreLeftOut) {
  expect_entry_left_out(tile_with("num_warps", "\"4\""), "bad_value",
                        "num_warps must be an integer, it is the string \"4\"");
  expect_entry_left_out(tile_with("num_warps", "4.0"), "bad_value", "it is the number 4.0");
  expect_entry_left_out(tile_with("num_stages", "2.5"), "bad_value", "it is the number 2.5");
  expect_entry_left_out(tile_with("num_stages", "true"), "bad_value", "it is true");
  expect_entry_left_out(tile_with("BLOCK_SIZE_M", "null"), "bad_value", "it is null");
  expect_entry_left_out(tile_with("BLOCK_SIZE_M", "[16]"), "bad_value", "it is an array");
  expect_entry_left_out(tile_with("BLOCK_SIZE_M", "18446744073709551615"), "bad_value", "18446744073709551615");
  expect_entry_left_out(tile_with("BLOCK_SIZE_M", "99999999999999999999999"), "bad_value", "BLOCK_SIZE_M");
}

TEST(FieldFormat, UnknownAndMissingTileKeysAreLeftOut) {
  expect_entry_left_out(tile_with("num_ctas", "1"), "unknown_tile_key", "\"num_ctas\"");
  expect_entry_left_out(tile_with("block_size_m", "16"), "unknown_tile_key", "known are BLOCK_SIZE_M");
  for (const FieldTileKey& key : field_tile_keys()) {
    if (key.required) {
      std::string text = kTile;
      const std::size_t at = text.find(std::string("\"") + key.name);
      const std::size_t comma = text.find(", ", at);
      text = comma == std::string::npos ? text.substr(0, at - 2) + "}" : text.erase(at, comma + 2 - at);
      expect_entry_left_out(text, "missing_tile_key", key.name);
    }
  }
  expect_entry_left_out("{}", "missing_tile_key", "BLOCK_SIZE_M");
}

TEST(FieldFormat, AValueThatIsNeitherTileNorNullIsLeftOut) {
  expect_entry_left_out("3", "bad_tile", "wanted a tile or null, it is the number 3");
  expect_entry_left_out("[]", "bad_tile", "an array");
  expect_entry_left_out("\"null\"", "bad_tile", "the string \"null\"");
  expect_entry_left_out("false", "bad_tile", "false");
}

TEST(FieldFormat, ADuplicateMIsLeftOutWhicheverTheTiles) {
  expect_entry_left_out(std::string(kTile) + ", \"64\": null", "duplicate_key", "more than once in the file");
  expect_entry_left_out(std::string("null, \"64\": ") + kTile, "duplicate_key", "more than once in the file");
}

TEST(FieldFormat, ADuplicateTileKeyLeavesItsEntryOut) {
  expect_entry_left_out(R"({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 256, "num_warps": 4,
                            "num_stages": 3})",
                        "duplicate_key", "BLOCK_SIZE_M");
}

TEST(FieldFormat, AFileThatIsNoTableIsLeftOutWhole) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[1, 2]", "bad_json"},
      {"null", "bad_json"},
      {"\"64\"", "bad_json"},
      {"{}", "empty"},
      {"{\"_comment\": 1}", "empty"},
      {"", "bad_json"},
      {"{\"1\": null", "bad_json"},
      {"{\"1\": null} x", "bad_json"},
      {"{\"1\": NaN}", "bad_json"},
      {"\xEF\xBB\xBF{\"1\": null}", "bad_json"},
      {std::string("\xFF\xFE{\0}\0", 6), "bad_json"},
      {std::string(500'000, '['), "bad_json"},
      {"{\"1\": " + std::string(100, '[') + std::string(100, ']') + "}", "bad_json"},
      {std::string("\x7F"
                   "ELF\0\1\2\3",
                   8),
       "bad_json"},
      {R"({"octile_table": 1, "entries": []})", "bad_name"}};
  for (const auto& [text, kind] : cases) {
    SCOPED_TRACE(text.substr(0, 40));
    const Loaded loaded = load(text);
    EXPECT_FALSE(loaded.table);
    ASSERT_FALSE(loaded.findings.empty());
    EXPECT_EQ(loaded.findings.back().kind, kind) << loaded.findings.back().message;
    EXPECT_LT(loaded.findings.back().message.size(), 600U);
  }
}

TEST(FieldFormat, AFileOfTooManyKeysOrFaultsIsLeftOutWhole) {
  const auto keys = [](const char* prefix, int count) {
    std::string text = "{\"1\": null";
    for (int i = 2; i <= count; ++i) {
      text += std::string(", \"") + prefix + std::to_string(i) + "\": null";
    }
    return text + "}";
  };
  EXPECT_EQ(load(keys("", 20'000)).table->entries.size(), 20'000U);
  const Loaded many = load(keys("", 20'001));
  EXPECT_FALSE(many.table);
  EXPECT_EQ(many.findings.back().kind, "too_large");
  EXPECT_EQ(load(keys("x", 1'001)).findings.size(), 1'000U);
  const Loaded faulty = load(keys("x", 1'100));
  EXPECT_FALSE(faulty.table);
  EXPECT_EQ(faulty.findings.back().kind, "too_many_faults");
}

TEST(FieldFormat, LaterSchemesAreRefusedByNameAndNeverReadAsChannelwise) {
  const test::TemporaryDirectory directory;
  for (const char* scheme : {"fp8_w8a8,block_shape=[128, 128]", "fp8_w8a8", "int8_w8a8"}) {
    const std::string path = directory.write("N=6144,K=4096,device_name=NVIDIA_L40S,dtype=" + std::string(scheme) + ".json",
                                             std::string("{\"1\": ") + kTile + "}");
    std::vector<Finding> findings;
    EXPECT_FALSE(load_table(path, findings));
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings.front().kind, "unsupported_scheme");
    EXPECT_THAT(findings.front().message, AllOf(HasSubstr(scheme), HasSubstr("not supported")));
    const auto read = read_table(path, findings);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::unavailable);
  }
}

TEST(FieldFormat, SharedMemoryFollowsTritonsStages) {
  TileConfig tile;
  tile.set("BLOCK_SIZE_M", 128);
  tile.set("BLOCK_SIZE_N", 64);
  tile.set("BLOCK_SIZE_K", 256);
  tile.set("num_warps", 8);
  tile.set("num_stages", 1);
  EXPECT_EQ(field_tile_shared_bytes(tile), 192 * 256);
  tile.set("num_stages", 2);
  EXPECT_EQ(field_tile_shared_bytes(tile), 192 * 256);
  tile.set("num_stages", 3);
  EXPECT_EQ(field_tile_shared_bytes(tile), 192 * 256 * 2);
  EXPECT_TRUE(check_field_tile_fits(tile, 192 * 256 * 2));
  EXPECT_FALSE(check_field_tile_fits(tile, 192 * 256 * 2 - 1));
}

TEST(FieldFormat, ATileOf200KiBIsNamedOnSm89AndNotOnSm90) {
  // (128 + 72) * ... has no power of two: 256 + 256 rows of 128 codes in 3 buffers are 196,608 bytes, 192 KiB; with 4
  // buffers 256 KiB. (64 + 256) * 128 * 5 buffers are 204,800 bytes, 200 KiB.
  const std::string big =
      R"({"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "num_warps": 8, "num_stages": 6})";
  const Loaded loaded = load(std::string("{\"1\": ") + kTile + ", \"64\": " + big + ", \"128\": null}");
  ASSERT_TRUE(loaded.table);
  EXPECT_TRUE(loaded.findings.empty());
  const std::vector<Finding> on_ada = tiles_beyond_shared_memory(*loaded.table, 101'376);
  ASSERT_EQ(on_ada.size(), 1U);
  EXPECT_EQ(on_ada.front().key, "64");
  EXPECT_EQ(on_ada.front().kind, "shared_memory");
  EXPECT_THAT(on_ada.front().message, AllOf(HasSubstr("204800"), HasSubstr("101376")));
  EXPECT_TRUE(tiles_beyond_shared_memory(*loaded.table, 232'448).empty());
}

TileTable random_field_table() {
  auto& random = test::generator();
  const auto pick = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
  };
  TileTable table;
  table.field_format = true;
  table.key.n = 6144;
  table.key.k = 4096;
  table.key.device_name = "NVIDIA_L40S";
  std::set<std::int64_t> seen;
  const std::int64_t count = pick(1, 40);
  for (std::int64_t i = 0; i < count; ++i) {
    TableEntry entry;
    entry.m_lo = entry.m_hi = std::int64_t{1} << pick(0, 62);
    entry.m_lo = entry.m_hi = entry.m_lo + pick(0, entry.m_lo - 1);
    if (!seen.insert(entry.m_lo).second) {
      continue;
    }
    entry.kernel = pick(0, 3) == 0 ? kBaselineKernel : kFieldKernel;
    for (const FieldTileKey& key : field_tile_keys()) {
      if (entry.kernel == kFieldKernel && (key.required || pick(0, 1) == 1)) {
        std::int64_t value = pick(key.min_value, key.max_value);
        while (key.power_of_two && (value & (value - 1)) != 0) {
          value &= value - 1;
        }
        entry.config.set(key.name, std::max(value, key.min_value));
      }
    }
    std::shuffle(entry.config.values.begin(), entry.config.values.end(), random);
    table.entries.push_back(entry);
  }
  return table;
}

TEST(FieldFormat, RandomTablesReadBackBitForBit) {
  SCOPED_TRACE(test::seed_text());
  const test::TemporaryDirectory directory;
  for (int round = 0; round < 100; ++round) {
    const TileTable table = random_field_table();
    const std::string path = directory.file("t/" + table_file_name(table.key, true));
    const auto wrote = write_field_table(table, path);
    ASSERT_TRUE(wrote) << wrote.error().message;
    std::vector<Finding> findings;
    const auto read = read_table(path, findings);
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_TRUE(findings.empty()) << findings.front().message;
    ASSERT_EQ(read->entries.size(), table.entries.size());
    for (std::size_t i = 0; i < table.entries.size(); ++i) {
      ASSERT_EQ(read->entries[i].m_lo, table.entries[i].m_lo);
      ASSERT_EQ(read->entries[i].kernel, table.entries[i].kernel);
      ASSERT_EQ(read->entries[i].config.values, table.entries[i].config.values);
    }
    const auto again = field_table_text(*read);
    ASSERT_TRUE(again);
    ASSERT_EQ(*again, test::read_text(path));
  }
}

TEST(FieldFormat, WhatTheFormatCannotHoldIsNotWritten) {
  const auto problem = [](auto&& change) {
    TileTable table;
    table.field_format = true;
    TableEntry entry;
    entry.m_lo = entry.m_hi = 8;
    entry.kernel = kBaselineKernel;
    table.entries.push_back(entry);
    change(table);
    const auto text = field_table_text(table);
    return text ? "written: " + *text : text.error().message;
  };
  EXPECT_THAT(problem([](TileTable& t) { t.entries[0].m_hi = 9; }), HasSubstr("[8, 9]"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries.push_back(t.entries[0]); }), HasSubstr("M = 8 stands twice"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries[0].kernel = "cublaslt"; }), HasSubstr("cublaslt"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries[0].kernel = kFieldKernel; }), HasSubstr("BLOCK_SIZE_M is missing"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries.clear(); }), HasSubstr("without entries"));
}

}  // namespace
}  // namespace octile
