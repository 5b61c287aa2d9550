// SPDX-License-Identifier: Apache-2.0
// Which rows of a bench become entries of a table, and with what proof.
#include "octile/report/vendor_finds.h"

#include "octile/table/own_format.h"
#include "report/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// The vendor's algorithm at M takes 10 us, the choice 11, the baseline 14.
BenchRow lost_row(std::int64_t m) {
  BenchRow row = usual_row("qkv", m);
  row.scope = "linear";
  row.max_sms = 0;
  row.best_vendor_kernel = R"(cublaslt {"algo_id": 66, "tile_id": 31, "split_k": 1})";
  row.best_vendor_config = TileConfig{{{"algo_id", 66}, {"tile_id", 31}, {"split_k", 1}}};
  row.best_vendor_source_hash = "abcd";
  row.best_vendor_version = "13.1.0";
  row.best_vendor_rel_error = 0.002;
  row.best_vendor_us = 10;
  row.chosen_us = 11;
  row.chosen_kernel = "hopper_wgmma";
  row.chosen_config = TileConfig{{{"BLOCK_SIZE_M", 128}}};
  row.baseline_us = 14;
  row.ratio = 14.0 / 11;
  row.ratio_lo = 1.26;
  row.ratio_hi = 1.29;
  row.vs_vendor = 10.0 / 11;
  row.vs_vendor_lo = 0.90;
  row.vs_vendor_hi = 0.92;
  return row;
}

TableEntry measured(std::int64_t lo, std::int64_t hi) {
  TableEntry entry;
  entry.m_lo = lo;
  entry.m_hi = hi;
  entry.kernel = "hopper_wgmma";
  entry.config = TileConfig{{{"BLOCK_SIZE_M", 128}}};
  entry.us = 11;
  entry.baseline_us = 14;
  entry.ratio = Ratio{1.27, 1.26, 1.29};
  entry.date = "2026-11-01T00:00:00Z";
  return entry;
}

class VendorFinds : public testing::Test {
 protected:
  VendorFinds() {
    table_.key.device_name = "NVIDIA_H200";
    table_.key.arch = "sm_90";
    table_.key.sm_count = 132;
    table_.key.n = 6144;
    table_.key.k = 4096;
    table_.key.weight_layout = "row_major";
    table_.key.numerics = "baseline";
    table_.key.pdl = "full";
    table_.entries = {measured(200, 256)};
    record_.result.device_name = "NVIDIA_H200";
    record_.result.date = "2026-11-02T00:00:00Z";
    record_.result.rows = {lost_row(256)};
  }
  BenchRow& row() { return record_.result.rows.front(); }
  std::size_t finds() const {
    const auto found = vendor_finds(record_, table_);
    EXPECT_TRUE(found.has_value()) << found.error().message;
    return found ? found->size() : 0;
  }

  TileTable table_;
  BenchRecord record_;
};

TEST_F(VendorFinds, AnAlgorithmThatBeatsTheChoiceBeyondDoubtIsAnEntryOfItsM) {
  const auto found = vendor_finds(record_, table_);
  ASSERT_TRUE(found.has_value()) << found.error().message;
  ASSERT_THAT(*found, SizeIs(1));
  const VendorFind& find = found->front();
  EXPECT_EQ(find.beaten, "hopper_wgmma");
  EXPECT_NEAR(find.gain, 1.1, 1e-9);
  EXPECT_NEAR(find.gain_lo, 1 / 0.92, 1e-9);
  EXPECT_EQ(find.entry.m_lo, 256);
  EXPECT_EQ(find.entry.m_hi, 256);
  EXPECT_EQ(find.entry.kernel, "cublaslt");
  EXPECT_EQ(find.entry.config.get("tile_id", 0), 31);
  EXPECT_EQ(find.entry.vendor_version, "13.1.0");
  EXPECT_EQ(find.entry.kernel_source_hash, "abcd");
  EXPECT_EQ(find.entry.rel_error, 0.002);
  EXPECT_EQ(find.entry.us, 10);
  EXPECT_EQ(find.entry.baseline_us, 14);
  ASSERT_TRUE(find.entry.ratio.has_value());
  EXPECT_NEAR(find.entry.ratio->mid, 1.4, 1e-9);
  EXPECT_NEAR(find.entry.ratio->lo, 1.26 / 0.92, 1e-9) << "no tighter than the two intervals together";
  EXPECT_NEAR(find.entry.ratio->hi, 1.29 / 0.90, 1e-9);
  EXPECT_FALSE(find.entry.inferred);

  const auto adopted = adopt_vendor_finds(table_, *found, "record.json");
  ASSERT_TRUE(adopted.has_value()) << adopted.error().message;
  ASSERT_THAT(adopted->entries, SizeIs(2));
  EXPECT_EQ(adopted->entries[0].m_hi, 255);
  EXPECT_TRUE(adopted->entries[0].inferred) << "its new end was not measured";
  EXPECT_EQ(adopted->entries[1].kernel, "cublaslt");
  EXPECT_EQ(adopted->provenance.at("adopted"), "1 entries of record.json");
  const auto text = own_table_text(*adopted);
  EXPECT_TRUE(text.has_value()) << text.error().message;
  // Taken once, it is the table's own: it was measured no earlier than the record.
  table_ = *adopted;
  EXPECT_EQ(finds(), 0U);
}

TEST_F(VendorFinds, WhatIsNoProofOrOfAnotherProblemIsNoFind) {
  const BenchRow lost = row();
  const auto finds_of = [&](const auto& change) {
    row() = lost;
    change(row());
    return finds();
  };
  EXPECT_EQ(finds_of([](BenchRow&) {}), 1U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.vs_vendor_hi = 0.99; }), 0U) << "less than 2 %";
  EXPECT_EQ(finds_of([](BenchRow& r) { r.ratio_lo = 0.93; }), 0U) << "the baseline may be as fast";
  EXPECT_EQ(finds_of([](BenchRow& r) { r.rounds = 5; }), 0U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.best_vendor_config = {}; }), 0U) << "the baseline itself";
  EXPECT_EQ(finds_of([](BenchRow& r) { r.best_vendor_source_hash.clear(); }), 0U) << "a record of an older build";
  EXPECT_EQ(finds_of([](BenchRow& r) { r.best_vendor_version.clear(); }), 0U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.chosen_config.set("BLOCK_SIZE_M", 64); }), 0U) << "run with another table";
  EXPECT_EQ(finds_of([](BenchRow& r) { r.choice = "baseline"; }), 0U) << "run without a table";
  EXPECT_EQ(finds_of([](BenchRow& r) { r.max_sms = 116; }), 0U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.best_vendor_us = r.vs_vendor = r.vs_vendor_lo = r.vs_vendor_hi = 0; }), 0U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.layout = "slab64"; }), 0U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.accumulate = "precise"; }), 0U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.scope = "gemm"; }), 0U);
  EXPECT_EQ(finds_of([](BenchRow& r) { r.n = 4096; }), 0U);
}

TEST_F(VendorFinds, TablesThatABenchDoesNotMeasureTakeNothingOfIt) {
  const TableKey usual = table_.key;
  const auto finds_with = [&](const auto& change) {
    table_.key = usual;
    change(table_.key);
    return finds();
  };
  EXPECT_EQ(finds_with([](TableKey&) {}), 1U);
  EXPECT_EQ(finds_with([](TableKey& key) { key.bias = true; }), 0U);
  EXPECT_EQ(finds_with([](TableKey& key) { key.out_dtype = "fp16"; }), 0U);
  EXPECT_EQ(finds_with([](TableKey& key) { key.max_sms = 100; }), 0U);
  EXPECT_EQ(finds_with([](TableKey& key) { key.weight_layout = "slab64"; }), 0U);
}

TEST_F(VendorFinds, ARowOfAGapOrOfTheBaselinesEntryIsOneOfTheTable) {
  table_.entries[0].m_hi = 255;
  EXPECT_EQ(finds(), 1U);
  table_.entries = {measured(200, 256)};
  table_.entries[0].kernel = kBaselineKernel;
  table_.entries[0].config = {};
  EXPECT_EQ(finds(), 0U);
  row().choice = "baseline";
  EXPECT_EQ(finds(), 1U);
  record_.result.rows.push_back(row());
  EXPECT_EQ(finds(), 1U) << "the same row twice";
}

TEST_F(VendorFinds, WhatTheTableMeasuredLaterStays) {
  table_.entries[0].date = "2026-11-03T00:00:00Z";
  EXPECT_EQ(finds(), 0U);
  table_.entries[0].date.clear();
  table_.provenance["date"] = "2026-11-03T00:00:00Z";
  EXPECT_EQ(finds(), 0U);
  table_.provenance["date"] = record_.result.date;  // The second in which the bench began: it found this entry there.
  EXPECT_EQ(finds(), 1U);
}

TEST_F(VendorFinds, WhatContradictsItselfOrTheTableIsAnErrorThatNamesIt) {
  const BenchRow lost = row();
  const auto message_of = [&](const auto& change) {
    row() = lost;
    change(row());
    const auto found = vendor_finds(record_, table_);
    return found ? std::string("none") : found.error().message;
  };
  EXPECT_THAT(message_of([](BenchRow& r) { r.best_vendor_config.set("foo", 67); }),
              HasSubstr("qkv m=256: cublaslt knows no config key 'foo'"));
  EXPECT_THAT(message_of([](BenchRow& r) { r.best_vendor_config.set("algo_id", -1); }), HasSubstr("algo_id=-1"));
  EXPECT_THAT(message_of([](BenchRow& r) { r.best_vendor_config.set("split_k", 2); }), HasSubstr("split_k"))
      << "other bits than the baseline's";
  EXPECT_THAT(message_of([](BenchRow& r) { r.best_vendor_kernel = "ours {}"; }), HasSubstr("wanted a vendor of this build"));
  EXPECT_THAT(message_of([](BenchRow& r) { r.best_vendor_kernel = "onednn {}"; }),
              HasSubstr("reads weights in layout row_major"));
  EXPECT_THAT(message_of([](BenchRow& r) { r.best_vendor_us = 50; }),
              HasSubstr("its times give 0.28x the baseline, its ratios 1.4x"));
  EXPECT_THAT(message_of([](BenchRow& r) { r.best_vendor_us = 0; }), HasSubstr("its times give inf"));
  record_.result.date = "yesterday";
  EXPECT_THAT(message_of([](BenchRow&) {}), HasSubstr("\"date\": wanted one as 2026-11-30T18:44:34Z, got \"yesterday\""));
  record_.result.device_name = "NVIDIA_H100";
  EXPECT_THAT(message_of([](BenchRow&) {}), testing::AllOf(HasSubstr("NVIDIA_H200"), HasSubstr("NVIDIA_H100")));
}

}  // namespace
}  // namespace octile::test
