// SPDX-License-Identifier: Apache-2.0
// Every rule of Octile's own format, broken on purpose, and random tables read back bit for bit.
#include "octile/table/own_format.h"

#include "octile/table/table_store.h"
#include "support/files.h"
#include "table/random_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace octile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr const char* kName = "N=6144,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8_channelwise.octile.json";

Json good() {
  return Json::parse(R"({
    "octile_table": 1,
    "key": {"device_name": "NVIDIA_H200", "arch": "sm_90", "sm_count": 132, "n": 6144, "k": 4096,
            "scheme": "fp8_w8a8_channelwise", "out_dtype": "bf16", "bias": false, "accumulate": "fast",
            "numerics": "deterministic", "weight_layout": "row_major", "pdl": "off"},
    "provenance": {"octile": "0.1.0", "date": "2026-11-02T10:00:00Z", "driver": "570.1"},
    "entries": [
      {"m": [1, 16], "kernel": "hopper_decode", "config": {"stages": 4, "split_k": 2}, "kernel_source_hash": "abc",
       "us": 10.5, "baseline_us": 12.25, "best_vendor_us": 11.5, "ratio": {"mid": 1.17, "lo": 1.15, "hi": 1.19},
       "rel_error": 0.0021},
      {"m": [17, 64], "kernel": "cublaslt", "config": {"tile": 18, "stages": 7}, "vendor_version": "12.8.4"},
      {"m": [96, 512], "kernel": "baseline"}]})");
}

struct Loaded {
  std::optional<TileTable> table;
  std::vector<Finding> findings;
};

Loaded load_text(const std::string& text, const char* name = kName) {
  const test::TemporaryDirectory directory;
  Loaded result;
  result.table = load_table(directory.write(name, text), result.findings);
  return result;
}

void expect_file_left_out(const Json& document, const std::string& kind, const std::string& reason) {
  const Loaded loaded = load_text(document.dump());
  SCOPED_TRACE(document.dump());
  EXPECT_FALSE(loaded.table);
  ASSERT_FALSE(loaded.findings.empty());
  EXPECT_EQ(loaded.findings.back().kind, kind);
  EXPECT_EQ(loaded.findings.back().key, "");
  EXPECT_THAT(loaded.findings.back().message, HasSubstr(reason));
}

// Entry 1 of the good table changed: it must be named and left out, and its M be a gap; the other two serve.
void expect_entry_left_out(const std::function<void(Json&)>& change, const std::string& kind, const std::string& reason) {
  Json document = good();
  change(document["entries"][1]);
  SCOPED_TRACE(document["entries"][1].dump());
  const Loaded loaded = load_text(document.dump());
  ASSERT_TRUE(loaded.table);
  ASSERT_EQ(loaded.findings.size(), 1U);
  EXPECT_EQ(loaded.findings.front().kind, kind);
  EXPECT_THAT(loaded.findings.front().message, HasSubstr(reason));
  EXPECT_FALSE(loaded.findings.front().key.empty());
  EXPECT_EQ(loaded.table->entries.size(), 2U);
  EXPECT_EQ(loaded.table->find(17), nullptr);
  EXPECT_EQ(loaded.table->find(16)->kernel, "hopper_decode");
  EXPECT_EQ(loaded.table->find(512)->kernel, "baseline");
}

TEST(OwnFormat, ReadsEveryField) {
  const Loaded loaded = load_text(good().dump());
  ASSERT_TRUE(loaded.table);
  EXPECT_TRUE(loaded.findings.empty());
  const TileTable& table = *loaded.table;
  EXPECT_FALSE(table.field_format);
  EXPECT_EQ(table.key.device_name, "NVIDIA_H200");
  EXPECT_EQ(table.key.arch, "sm_90");
  EXPECT_EQ(table.key.sm_count, 132);
  EXPECT_EQ(table.key.weight_layout, "row_major");
  EXPECT_EQ(table.provenance.at("driver"), "570.1");
  ASSERT_EQ(table.entries.size(), 3U);
  const TableEntry& first = table.entries[0];
  EXPECT_EQ(first.m_lo, 1);
  EXPECT_EQ(first.m_hi, 16);
  EXPECT_EQ(first.config.to_json(), R"({"stages": 4, "split_k": 2})");
  EXPECT_EQ(first.kernel_source_hash, "abc");
  EXPECT_EQ(first.us, 10.5);
  EXPECT_EQ(first.baseline_us, 12.25);
  EXPECT_EQ(first.best_vendor_us, 11.5);
  ASSERT_TRUE(first.ratio);
  EXPECT_EQ(first.ratio->mid, 1.17);
  EXPECT_EQ(first.ratio->lo, 1.15);
  EXPECT_EQ(first.ratio->hi, 1.19);
  EXPECT_EQ(first.rel_error, 0.0021);
  EXPECT_FALSE(first.inferred);
  EXPECT_EQ(table.entries[1].vendor_version, "12.8.4");
  EXPECT_EQ(table.entries[1].us, std::nullopt);
  EXPECT_EQ(table.entries[2].kernel, kBaselineKernel);
}

TEST(OwnFormat, ACpuStatesModelInstructionSetAndThreads) {
  TileTable table = test::random_own_table();
  table.key.model = "Intel(R) Xeon(R) Processor";
  table.key.arch = "amx";
  table.key.sm_count = 2;
  const auto text = own_table_text(table);
  ASSERT_TRUE(text) << text.error().message;
  const Json key = Json::parse(*text)["key"];
  EXPECT_EQ(key["model"], "Intel(R) Xeon(R) Processor");
  EXPECT_EQ(key["instruction_set"], "amx");
  EXPECT_EQ(key["threads"], 2);
  EXPECT_FALSE(key.contains("arch"));
}

TEST(OwnFormat, RandomTablesReadBackBitForBit) {
  SCOPED_TRACE(test::seed_text());
  const test::TemporaryDirectory directory;
  for (int round = 0; round < 100; ++round) {
    const TileTable table = test::random_own_table();
    const std::string path = directory.file(table_file_name(table.key, false));
    const auto wrote = write_own_table(table, path);
    ASSERT_TRUE(wrote) << wrote.error().message;
    std::vector<Finding> findings;
    const auto read = read_table(path, findings);
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_TRUE(findings.empty()) << findings.front().message;
    EXPECT_EQ(hard_keys(read->key), hard_keys(table.key));
    EXPECT_EQ(read->provenance, table.provenance);
    ASSERT_EQ(read->entries.size(), table.entries.size());
    for (std::size_t i = 0; i < table.entries.size(); ++i) {
      const TableEntry& a = read->entries[i];
      const TableEntry& b = table.entries[i];
      ASSERT_EQ(a.m_lo, b.m_lo);
      ASSERT_EQ(a.m_hi, b.m_hi);
      ASSERT_EQ(a.kernel, b.kernel);
      ASSERT_EQ(a.config.values, b.config.values);
      ASSERT_EQ(a.kernel_source_hash, b.kernel_source_hash);
      ASSERT_EQ(a.vendor_version, b.vendor_version);
      ASSERT_EQ(a.us, b.us);
      ASSERT_EQ(a.baseline_us, b.baseline_us);
      ASSERT_EQ(a.best_vendor_us, b.best_vendor_us);
      ASSERT_EQ(a.rel_error, b.rel_error);
      ASSERT_EQ(a.ratio.has_value(), b.ratio.has_value());
      if (a.ratio) {
        ASSERT_EQ(a.ratio->mid, b.ratio->mid);
        ASSERT_EQ(a.ratio->lo, b.ratio->lo);
        ASSERT_EQ(a.ratio->hi, b.ratio->hi);
      }
      ASSERT_EQ(a.inferred, b.inferred);
      ASSERT_EQ(a.date, b.date);
    }
    const auto again = own_table_text(*read);
    ASSERT_TRUE(again);
    ASSERT_EQ(*again, test::read_text(path));
  }
}

TEST(OwnFormat, AFutureFormatNumberIsRefused) {
  for (const Json& number : {Json(2), Json(0), Json(-1), Json("1"), Json(1.0), Json(nullptr), Json(18446744073709551615U)}) {
    Json document = good();
    document["octile_table"] = number;
    expect_file_left_out(document, "unknown_format", "format number");
  }
}

TEST(OwnFormat, AFileWithoutAFormatNumberIsRefused) {
  Json document = good();
  document.erase("octile_table");
  const Loaded loaded = load_text(document.dump());
  EXPECT_FALSE(loaded.table);
  EXPECT_THAT(loaded.findings.back().message, HasSubstr("octile_table"));
}

TEST(OwnFormat, ALimitOfMultiprocessorsIsAKeyThatMayBeMissingAndIsAtLeastOne) {
  Json document = good();
  document["key"]["max_sms"] = 100;
  const Loaded loaded = load_text(document.dump());
  ASSERT_TRUE(loaded.table);
  EXPECT_EQ(loaded.table->key.max_sms, 100);
  EXPECT_THAT(own_table_text(*loaded.table).value(), HasSubstr("\"max_sms\":100"));
  for (const Json& wrong : {Json(0), Json(-1), Json(3'000'000'000)}) {
    document["key"]["max_sms"] = wrong;
    expect_file_left_out(document, "out_of_range", "key.max_sms");
  }
}

TEST(OwnFormat, AHardKeyThatIsMissingWrongOrUnknownLeavesTheFileOut) {
  const Json original = good();
  for (const auto& item : original["key"].items()) {
    Json document = good();
    document["key"].erase(item.key());
    expect_file_left_out(document, "missing_key", "key." + item.key());
    document["key"][item.key()] = Json::array();
    expect_file_left_out(document, "bad_value", "key." + item.key());
  }
  const std::vector<std::pair<std::string, Json>> wrong = {
      {"out_dtype", "int8"}, {"accumulate", "slow"}, {"pdl", "on"},          {"numerics", "exact"}, {"bias", 0},
      {"n", "6144"},         {"k", 4096.0},          {"device_name", "a/b"}, {"device_name", ""},   {"device_name", "../x"}};
  for (const auto& [name, value] : wrong) {
    Json document = good();
    document["key"][name] = value;
    expect_file_left_out(document, "bad_value", "key." + name);
  }
  Json document = good();
  document["key"]["n"] = 0;
  expect_file_left_out(document, "out_of_range", "key.n must be from 1");
  document = good();
  document["key"]["sm_count"] = 3'000'000'000;
  expect_file_left_out(document, "out_of_range", "key.sm_count");
  document = good();
  document["key"]["moon_phase"] = "full";
  expect_file_left_out(document, "unknown_key", "moon_phase");
  document = good();
  document["key"]["scheme"] = "fp8_w8a8,block_shape=[128, 128]";
  expect_file_left_out(document, "unsupported_scheme", "not supported");
}

TEST(OwnFormat, KeyOrEntriesOfAnotherTypeLeaveTheFileOut) {
  for (const char* name : {"key", "entries"}) {
    Json document = good();
    document[name] = "x";
    expect_file_left_out(document, "bad_value", name);
    document.erase(name);
    expect_file_left_out(document, "missing_key", name);
  }
  const Loaded loaded = load_text("[]");
  EXPECT_FALSE(loaded.table);
  EXPECT_EQ(loaded.findings.back().kind, "bad_json");
}

TEST(OwnFormat, TheFilesNameMustAgreeWithItsKey) {
  const std::vector<std::pair<const char*, const char*>> names = {
      {"N=6145,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8_channelwise.octile.json",
       "key n is 6144, the file's name says 6145"},
      {"N=6144,K=4097,device_name=NVIDIA_H200,dtype=fp8_w8a8_channelwise.octile.json", "key k is 4096"},
      {"N=6144,K=4096,device_name=NVIDIA_H20,dtype=fp8_w8a8_channelwise.octile.json", "key device_name is NVIDIA_H200"}};
  for (const auto& [name, reason] : names) {
    const Loaded loaded = load_text(good().dump(), name);
    EXPECT_FALSE(loaded.table);
    ASSERT_EQ(loaded.findings.size(), 1U);
    EXPECT_EQ(loaded.findings.front().kind, "name_mismatch");
    EXPECT_THAT(loaded.findings.front().message, HasSubstr(reason));
  }
  // A name of no table's form is taken by its content, for `octile table merge -o FILE`.
  EXPECT_TRUE(load_text(good().dump(), "merged.json").table);
}

TEST(OwnFormat, OurFormatUnderTheFieldsNameIsRefused) {
  const Loaded loaded = load_text(good().dump(), "N=6144,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8_channelwise.json");
  EXPECT_FALSE(loaded.table);
  EXPECT_EQ(loaded.findings.back().kind, "bad_name");
}

TEST(OwnFormat, AFaultyEntryIsLeftOutAndTheRestServes) {
  const auto put = [](const char* name, const Json& value) { return [=](Json& entry) { entry[name] = value; }; };
  expect_entry_left_out([](Json& entry) { entry = 5; }, "bad_value", "an entry must be an object, it is the number 5");
  expect_entry_left_out([](Json& entry) { entry.erase("m"); }, "missing_key", "m is missing");
  expect_entry_left_out(put("m", 17), "bad_value", "array of two integers");
  expect_entry_left_out(put("m", {17}), "bad_value", "array of two integers");
  expect_entry_left_out(put("m", {17, "64"}), "bad_value", "array of two integers");
  expect_entry_left_out(put("m", {17.0, 64}), "bad_value", "array of two integers");
  expect_entry_left_out(put("m", {64, 17}), "out_of_range", "1 <= lo <= hi, it is [64, 17]");
  expect_entry_left_out(put("m", {0, 17}), "out_of_range", "[0, 17]");
  expect_entry_left_out([](Json& entry) { entry.erase("kernel"); }, "missing_key", "kernel");
  expect_entry_left_out(put("kernel", nullptr), "bad_value", "kernel must be a string, it is null");
  expect_entry_left_out(put("kernel", "a b"), "bad_value", "\"a b\"");
  expect_entry_left_out(put("kernel", ""), "bad_value", "kernel");
  expect_entry_left_out(put("config", {1, 2}), "bad_value", "config must be an object");
  expect_entry_left_out(put("config", {{"stages", "4"}}), "bad_value",
                        "config.stages must be an integer, it is the string \"4\"");
  expect_entry_left_out(put("config", {{"stages", 4.5}}), "bad_value", "config.stages");
  expect_entry_left_out(put("config", {{"a b", 4}}), "unknown_tile_key", "\"a b\"");
  expect_entry_left_out(put("kernel_source_hash", 7), "bad_value", "kernel_source_hash");
  expect_entry_left_out(put("vendor_version", std::string(20'000, 'v')), "out_of_range", "20000 bytes");
  expect_entry_left_out(put("us", "10"), "bad_value", "us must be a number");
  expect_entry_left_out(put("us", 0), "out_of_range", "us must be finite and > 0");
  expect_entry_left_out(put("baseline_us", -1), "out_of_range", "baseline_us");
  expect_entry_left_out(put("best_vendor_us", true), "bad_value", "best_vendor_us");
  expect_entry_left_out(put("rel_error", -0.5), "out_of_range", "rel_error must be finite and >= 0");
  expect_entry_left_out(put("ratio", 1.2), "bad_value", "ratio must be an object");
  expect_entry_left_out(put("ratio", {{"mid", 1.2}, {"lo", 1.1}}), "missing_key", "ratio.hi");
  expect_entry_left_out(put("ratio", {{"mid", 1.2}, {"lo", 1.3}, {"hi", 1.4}}), "out_of_range", "lo <= mid <= hi");
  expect_entry_left_out(put("ratio", {{"mid", 1.2}, {"lo", 1.1}, {"hi", 1.4}, {"p", 1}}), "bad_value", "ratio.p");
  expect_entry_left_out(put("inferred", 1), "bad_value", "inferred must be true or false");
  expect_entry_left_out(put("date", 2026), "bad_value", "date");
  for (const char* date :
       {"yesterday", "2026", "2026-11-3", "2026-11-30T", "2026-11-30 22:13:30Z", "9999-99-99x", "30.11.2026"}) {
    expect_entry_left_out(put("date", date), "bad_value", "date must be as 2026-11-30T22:13:30Z");
  }
  expect_entry_left_out(put("BLOCK_SIZE_M", 16), "unknown_key", "BLOCK_SIZE_M");
}

TEST(OwnFormat, ADuplicateKeyInAnEntryLeavesTheEntryOut) {
  std::string text = good().dump();
  const std::size_t at = text.find("\"kernel\":\"cublaslt\"");
  text.insert(at, "\"kernel\":\"baseline\",");
  const Loaded loaded = load_text(text);
  ASSERT_TRUE(loaded.table);
  ASSERT_EQ(loaded.findings.size(), 1U);
  EXPECT_EQ(loaded.findings.front().kind, "duplicate_key");
  EXPECT_EQ(loaded.table->find(17), nullptr);
  EXPECT_NE(loaded.table->find(16), nullptr);
}

TEST(OwnFormat, ADuplicateHardKeyOrSectionLeavesTheFileOut) {
  for (const auto& [before, inserted] : {std::pair{"\"sm_count\"", "\"sm_count\":1,"},
                                         {"\"entries\"", "\"entries\":[],"},
                                         {"\"octile_table\"", "\"octile_table\":1,"},
                                         {"\"driver\"", "\"driver\":\"1\","}}) {
    std::string text = good().dump();
    text.insert(text.find(before), inserted);
    const Loaded loaded = load_text(text);
    EXPECT_FALSE(loaded.table) << text;
    ASSERT_FALSE(loaded.findings.empty());
    EXPECT_EQ(loaded.findings.back().kind, "duplicate_key");
  }
}

TEST(OwnFormat, OverlappingIntervalsAreBothLeftOut) {
  Json document = good();
  document["entries"][1]["m"] = {16, 64};
  const Loaded loaded = load_text(document.dump());
  ASSERT_TRUE(loaded.table);
  ASSERT_EQ(loaded.findings.size(), 1U);
  EXPECT_EQ(loaded.findings.front().kind, "overlap");
  EXPECT_THAT(loaded.findings.front().message, AllOf(HasSubstr("[16, 64]"), HasSubstr("[1, 16]")));
  ASSERT_EQ(loaded.table->entries.size(), 1U);
  EXPECT_EQ(loaded.table->entries.front().m_lo, 96);
}

TEST(OwnFormat, RandomOverlapsLeaveOutExactlyTheEntriesThatShareAnM) {
  SCOPED_TRACE(test::seed_text());
  std::uniform_int_distribution<std::int64_t> start(1, 200);
  std::uniform_int_distribution<std::int64_t> length(0, 30);
  for (int round = 0; round < 100; ++round) {
    Json document = good();
    Json entries = Json::array();
    std::vector<std::pair<std::int64_t, std::int64_t>> intervals;
    for (int i = 0; i < 8; ++i) {
      const std::int64_t lo = start(test::generator());
      const std::int64_t hi = lo + length(test::generator());
      intervals.emplace_back(lo, hi);
      entries.push_back({{"m", {lo, hi}}, {"kernel", "reference"}});
    }
    document["entries"] = entries;
    std::vector<std::pair<std::int64_t, std::int64_t>> alone;
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      bool shares = false;
      for (std::size_t j = 0; j < intervals.size(); ++j) {
        shares =
            shares || (i != j && intervals[i].first <= intervals[j].second && intervals[j].first <= intervals[i].second);
      }
      if (!shares) {
        alone.push_back(intervals[i]);
      }
    }
    std::sort(alone.begin(), alone.end());
    const Loaded loaded = load_text(document.dump());
    ASSERT_TRUE(loaded.table);
    std::vector<std::pair<std::int64_t, std::int64_t>> kept;
    for (const TableEntry& entry : loaded.table->entries) {
      kept.emplace_back(entry.m_lo, entry.m_hi);
    }
    ASSERT_EQ(kept, alone) << entries.dump();
  }
}

TEST(OwnFormat, EntriesOutOfOrderAreSortedAndNamed) {
  Json document = good();
  std::swap(document["entries"][0], document["entries"][2]);
  const Loaded loaded = load_text(document.dump());
  ASSERT_TRUE(loaded.table);
  ASSERT_EQ(loaded.findings.size(), 1U);
  EXPECT_EQ(loaded.findings.front().kind, "not_ascending");
  EXPECT_EQ(loaded.table->entries.size(), 3U);
  EXPECT_EQ(loaded.table->find(1)->kernel, "hopper_decode");
}

TEST(OwnFormat, UnknownTopLevelKeysAndBadProvenanceAreNamedAndTheRestServes) {
  Json document = good();
  document["_comment"] = "tuned at night";
  document["provenance"]["clocks"] = 1980;
  document["provenance"]["date"] = "yesterday";  // Later than any date, where texts are compared.
  const Loaded loaded = load_text(document.dump());
  ASSERT_TRUE(loaded.table);
  ASSERT_EQ(loaded.findings.size(), 3U);
  EXPECT_EQ(loaded.findings[0].key, "_comment");
  EXPECT_THAT(
      loaded.findings[1].message + loaded.findings[2].message,
      ::testing::AllOf(HasSubstr("provenance.clocks"), HasSubstr("provenance.date must be as 2026-11-30T22:13:30Z")));
  EXPECT_FALSE(loaded.table->provenance.contains("date"));
  EXPECT_EQ(loaded.table->entries.size(), 3U);
  EXPECT_FALSE(loaded.table->provenance.contains("clocks"));
}

TEST(OwnFormat, AFileOfTooManyEntriesOrFaultsIsLeftOutWhole) {
  Json document = good();
  document["entries"] = Json::array();
  for (int i = 0; i < 1'100; ++i) {
    document["entries"].push_back(i);
  }
  expect_file_left_out(document, "too_many_faults", "more than 1000");
  for (int i = 0; i < 20'000; ++i) {
    document["entries"].push_back(i);
  }
  expect_file_left_out(document, "too_large", "21100 entries");
}

TEST(OwnFormat, ATableThatBreaksARuleIsNotWritten) {
  const auto problem = [](const std::function<void(TileTable&)>& change) {
    TileTable table = *load_text(good().dump()).table;
    change(table);
    const auto text = own_table_text(table);
    return text ? "written: " + *text : text.error().message;
  };
  EXPECT_THAT(problem([](TileTable&) {}), HasSubstr("written"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries[1].m_lo = 16; }), HasSubstr("overlaps"));
  EXPECT_THAT(problem([](TileTable& t) { std::swap(t.entries[0], t.entries[1]); }), HasSubstr("ascending"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries[0].us = std::nan(""); }), HasSubstr("us must be a number, it is null"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries[0].ratio->lo = 9; }), HasSubstr("lo <= mid"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries[0].kernel = "two words"; }), HasSubstr("two words"));
  EXPECT_THAT(problem([](TileTable& t) { t.entries[0].m_hi = 0; }), HasSubstr("1 <= lo <= hi"));
  EXPECT_THAT(problem([](TileTable& t) { t.key.device_name = "a b"; }), HasSubstr("a b"));
  EXPECT_THAT(problem([](TileTable& t) { t.key.out_dtype = "int4"; }), HasSubstr("int4"));
  EXPECT_THAT(problem([](TileTable& t) { t.field_format = true; }), HasSubstr("imported"));
}

TEST(OwnFormat, BytesThatAreNoUtf8AreReplacedInText) {
  TileTable table = *load_text(good().dump()).table;
  table.provenance["command"] = "octile tune --tables /tmp/\xFF\xC3";
  const auto text = own_table_text(table);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(*text, HasSubstr("octile tune --tables /tmp/"));
}

}  // namespace
}  // namespace octile
