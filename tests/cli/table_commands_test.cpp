// SPDX-License-Identifier: Apache-2.0
// `octile table ...` on the published tables and on broken ones.
#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include <gmock/gmock.h>

#include <sys/stat.h>

namespace octile::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

constexpr const char* kName = "N=64,K=64,device_name=X,dtype=fp8_w8a8_channelwise.json";
constexpr const char* kTile =
    R"({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "num_warps": 4, "num_stages": 3})";

using TableCommandsTest = CommandTest;

TEST_F(TableCommandsTest, LintOfThePublishedTablesFindsNothing) {
  const Json report = run_json({"table", "lint", l40s_directory(), "--device-name", "NVIDIA_L40S", "--json"});
  EXPECT_EQ(keys_of(report), (std::vector<std::string>{"ok", "findings"}));
  EXPECT_EQ(report["ok"], true);
  EXPECT_TRUE(report["findings"].empty()) << report.dump();
}

TEST_F(TableCommandsTest, LintNamesFileKeyKindAndReason) {
  const std::string file = write(kName, std::string(R"({"16": )") + kTile + R"(, "x": null, "32": {"BLOCK_SIZE_M": 48}})");
  const RunResult result = run({"table", "lint", file, "--json"});
  EXPECT_EQ(result.status, 1);
  const Json report = Json::parse(result.out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << result.out;
  EXPECT_EQ(report["ok"], false);
  ASSERT_GE(report["findings"].size(), 2U) << report.dump();
  std::vector<std::string> keys;
  for (const Json& finding : report["findings"]) {
    EXPECT_EQ(keys_of(finding), (std::vector<std::string>{"file", "key", "kind", "message"}));
    EXPECT_EQ(finding["file"], file);
    EXPECT_NE(finding["kind"], "");
    EXPECT_NE(finding["message"], "");
    keys.push_back(finding["key"]);
  }
  EXPECT_THAT(keys, testing::AllOf(testing::Contains("x"), testing::Contains("32")));
}

TEST_F(TableCommandsTest, LintOfBrokenFilesIsStatusOneQuickly) {
  write("truncated/" + std::string(kName), R"({"16": {"BLOCK_SIZE_M": 16,)");
  write("utf16/" + std::string(kName), std::string("\xFF\xFE{\0}\0", 6));
  write("deep/" + std::string(kName), std::string(1000000, '['));
  write("binary/" + std::string(kName), std::string(1000, '\0'));
  write("empty/" + std::string(kName), "");
  const std::string huge = write("huge/" + std::string(kName), "{");
  std::filesystem::resize_file(huge, std::uintmax_t{200} << 20);
  std::filesystem::create_directories(path("fifo"));
  ASSERT_EQ(::mkfifo(path("fifo/" + std::string(kName)).c_str(), 0600), 0);
  for (const char* kind : {"truncated", "utf16", "deep", "binary", "empty", "huge", "fifo"}) {
    const std::string file = path(std::string(kind) + "/" + kName);
    const RunResult result = run({"table", "lint", file, "--json"}, {.timeout_s = 30});
    EXPECT_EQ(result.status, 1) << kind;
    EXPECT_THAT(result.out, HasSubstr(kName)) << kind;
    EXPECT_EQ(run({"table", "show", file}, {.timeout_s = 30}).status, 1) << kind;
  }
}

TEST_F(TableCommandsTest, LintOfNothingIsAFinding) {
  EXPECT_EQ(run({"table", "lint", path("missing")}).status, 1);
  std::filesystem::create_directories(path("nothing"));
  EXPECT_EQ(run({"table", "lint", path("nothing")}).status, 1);
}

TEST_F(TableCommandsTest, ShowPrintsEveryKey) {
  const RunResult result = run({"table", "show", l40s_table(24576, 4096), l40s_table(4096, 4096)});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* word : {"8192", "1024", "BLOCK_SIZE_M", "baseline", "NVIDIA_L40S", "24576"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
}

TEST_F(TableCommandsTest, DiffIsZeroForTheSameAndOneForDifferentTables) {
  const RunResult same = run({"table", "diff", l40s_table(4096, 4096), l40s_table(4096, 4096)});
  EXPECT_EQ(same.status, 0);
  EXPECT_EQ(same.out, "no difference\n");
  const std::string one = write("a/" + std::string(kName), std::string(R"({"16": )") + kTile + "}");
  const std::string other = write("b/" + std::string(kName), R"({"16": null})");
  const RunResult different = run({"table", "diff", one, other});
  EXPECT_EQ(different.status, 1);
  EXPECT_THAT(different.out, testing::AllOf(HasSubstr("choice"), HasSubstr("BLOCK_SIZE_M"), HasSubstr("baseline")));
  EXPECT_EQ(run({"table", "diff", one, path("missing.json")}).status, 1);
}

TEST_F(TableCommandsTest, ImportThenExportGivesTheSameChoices) {
  const RunResult imported = run({"table", "import", l40s_table(4096, 4096), "--nearest", "--out", path("own")});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const std::string own = path("own/N=4096,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.octile.json");
  EXPECT_THAT(imported.out, HasSubstr(own));
  EXPECT_EQ(run({"table", "lint", own}).status, 0);
  const RunResult exported = run({"table", "export", "--triton", own, "--out", path("field")});
  ASSERT_EQ(exported.status, 0) << exported.err;
  const std::string field = path("field/N=4096,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json");
  EXPECT_EQ(run({"table", "lint", field}).status, 0);

  const std::string m = "1,3,6,7,12,13,257,384,385,3072,3073,8192";
  const std::vector<std::string> explain = {"explain", "--n", "4096",          "--k",         "4096",
                                            "--m",     m,     "--device-name", "NVIDIA_L40S", "--json"};
  const Json shipped = run_json(explain);
  for (const char* directory : {"own", "field"}) {
    std::vector<std::string> arguments = explain;
    arguments.insert(arguments.end(), {"--tables", path(directory)});
    const Json converted = run_json(arguments);
    ASSERT_EQ(converted.size(), shipped.size());
    for (std::size_t i = 0; i < shipped.size(); ++i) {
      EXPECT_EQ(converted[i]["config"], shipped[i]["config"]) << directory << " M " << shipped[i]["m"];
      EXPECT_EQ(converted[i]["choice"], shipped[i]["choice"]) << directory << " M " << shipped[i]["m"];
    }
  }
}

TEST_F(TableCommandsTest, ImportKeepsTheEntriesThatWereThere) {
  const std::string low = write("low/" + std::string(kName), std::string(R"({"16": )") + kTile + "}");
  const std::string high = write("high/" + std::string(kName), R"({"16": null, "32": null})");
  ASSERT_EQ(run({"table", "import", low, "--out", path("own")}).status, 0);
  const std::string own = path("own/N=64,K=64,device_name=X,dtype=fp8_w8a8_channelwise.octile.json");
  // As if it had been measured: dated entries go before imported ones.
  std::string text = read_file(own);
  text.replace(text.find("\"kernel\""), 0, "\"date\":\"2026-11-29T18:00:00Z\",");
  write("own/N=64,K=64,device_name=X,dtype=fp8_w8a8_channelwise.octile.json", text);
  const RunResult second = run({"table", "import", high, "--out", path("own")});
  EXPECT_EQ(second.status, 0) << second.err;
  const RunResult shown = run({"table", "show", own});
  EXPECT_THAT(shown.out, testing::AllOf(HasSubstr("[16, 16]"), HasSubstr("BLOCK_SIZE_M"), HasSubstr("[32, 32]")));
}

TEST_F(TableCommandsTest, MergeUnitesAndLosesNothingThatWasThere) {
  const std::string low = write("low/" + std::string(kName), std::string(R"({"16": )") + kTile + "}");
  const std::string high = write("high/" + std::string(kName), std::string(R"({"32": )") + kTile + "}");
  const std::string own_name = "N=64,K=64,device_name=X,dtype=fp8_w8a8_channelwise.octile.json";
  ASSERT_EQ(run({"table", "import", low, "--out", path("own/low")}).status, 0);
  ASSERT_EQ(run({"table", "import", high, "--out", path("own/high")}).status, 0);
  const std::string out = path("merged/" + own_name);
  ASSERT_EQ(run({"table", "merge", path("own/low/" + own_name), "--out", out}).status, 0);
  const RunResult second = run({"table", "merge", path("own/high/" + own_name), "--out", out});
  EXPECT_EQ(second.status, 0) << second.err;
  const RunResult shown = run({"table", "show", out});
  EXPECT_THAT(shown.out, testing::AllOf(HasSubstr("[16, 16]"), HasSubstr("[32, 32]")));
}

TEST_F(TableCommandsTest, MergeOfDirectoriesUnitesTheTablesOfEachWeight) {
  for (const int n : {4096, 24576}) {
    ASSERT_EQ(run({"table", "import", l40s_table(n, 4096), "--out", path("a")}).status, 0);
  }
  ASSERT_EQ(run({"table", "import", l40s_table(24576, 4096), "--out", path("b/below")}).status, 0);
  const RunResult merged = run({"table", "merge", path("a"), path("b"), "--out", path("all")});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_THAT(merged.out, testing::AllOf(HasSubstr("of 1 files"), HasSubstr("of 2 files")));
  const std::string tail = ",K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.octile.json";
  for (const char* n : {"4096", "24576"}) {
    const std::string name = std::string("N=") + n + tail;
    EXPECT_EQ(run({"table", "diff", path("a/" + name), path("all/" + name)}).status, 0) << n;
  }
  ASSERT_TRUE(std::filesystem::create_directory(path("empty")));
  const RunResult nothing = run({"table", "merge", path("empty"), "--out", path("all")});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr(path("empty")));
}

TEST_F(TableCommandsTest, MergeRefusesTablesOfDifferentKeysWithBothValues) {
  ASSERT_EQ(run({"table", "import", l40s_table(4096, 4096), l40s_table(24576, 4096), "--out", path("own")}).status, 0);
  const std::string tail = ",K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.octile.json";
  const RunResult result =
      run({"table", "merge", path("own/N=4096" + tail), path("own/N=24576" + tail), "--out", path("merged.octile.json")});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("4096"), HasSubstr("24576")));
  EXPECT_FALSE(std::filesystem::exists(path("merged.octile.json")));
}

TEST_F(TableCommandsTest, MergeDoesNotReplaceAFileItDoesNotUnderstand) {
  ASSERT_EQ(run({"table", "import", l40s_table(4096, 4096), "--out", path("own")}).status, 0);
  const std::string out = write("notes.json", "my notes");
  const RunResult result =
      run({"table", "merge", path("own/N=4096,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.octile.json"),
           "--out", out});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(read_file(out), "my notes");
}

TEST_F(TableCommandsTest, AdoptTakesWhatABenchFoundOnceAndRefusesWhatIsNoRecord) {
  const std::string record = path("record.json");
  write("record.json",
        R"({"device_name": "X", "date": "2026-11-02T00:00:00Z", "rows": [{"shape": "s", "n": 64, "k": 64, "m": 16,
    "scope": "linear", "layout": "row_major", "accumulate": "fast", "baseline_us": 14, "baseline_kernel": "cublaslt",
    "best_vendor_us": 10, "best_vendor_kernel": "cublaslt {\"algo_id\": 66}", "best_vendor_config": {"algo_id": 66},
    "best_vendor_source_hash": "abcd", "best_vendor_version": "13.1.0", "chosen_config": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128, "num_warps": 4, "num_stages": 3}, "chosen_us": 11, "chosen_kernel": "ada_mma",
    "choice": "tile", "ratio": 1.27, "ratio_lo": 1.26, "ratio_hi": 1.28, "rounds": 12, "vs_vendor": 0.91, "vs_vendor_lo": 0.90,
    "vs_vendor_hi": 0.92}]})");
  const std::string table =
      write("tables/N=64,K=64,device_name=X,dtype=fp8_w8a8_channelwise.octile.json", R"({"octile_table": 1,
    "key": {"device_name": "X", "arch": "sm_90", "sm_count": 132, "n": 64, "k": 64, "scheme": "fp8_w8a8_channelwise",
    "out_dtype": "bf16", "bias": false, "accumulate": "fast", "numerics": "deterministic", "weight_layout": "row_major",
    "pdl": "off"}, "provenance": {"cublaslt": "13.1.0"}, "entries": [{"m": [1, 16], "kernel": "ada_mma", "config":
    {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "num_warps": 4, "num_stages": 3}, "us": 11, "baseline_us": 14,
    "ratio": {"mid": 1.27, "lo": 1.26, "hi": 1.28}, "date": "2026-11-01T00:00:00Z"}]})");
  // Of outputs of another type nothing is taken.
  std::string of_fp16 = read_file(record);
  of_fp16.replace(of_fp16.find("\"accumulate\""), 0, "\"out_dtype\": \"fp16\", ");
  EXPECT_THAT(run({"table", "adopt", write("fp16.json", of_fp16), "--tables", path("tables")}).out,
              HasSubstr("nothing to adopt"));
  const RunResult adopted = run({"table", "adopt", record, "--tables", path("tables")});
  ASSERT_EQ(adopted.status, 0) << adopted.err;
  EXPECT_THAT(adopted.out, HasSubstr("s m=16: cublaslt {\"algo_id\": 66} is 1.099x (at least 1.087x) as fast as ada_mma"));
  EXPECT_THAT(adopted.out, HasSubstr("wrote " + table));
  EXPECT_EQ(run_json({"table", "lint", path("tables"), "--json"})["ok"], true);
  EXPECT_THAT(run({"table", "show", table}).out, HasSubstr("[16, 16]  cublaslt"));
  EXPECT_THAT(run({"table", "adopt", record, "--tables", path("tables")}).out, HasSubstr("nothing to adopt"));
  const RunResult broken = run({"table", "adopt", table, "--tables", path("tables")});
  EXPECT_EQ(broken.status, 1);
  EXPECT_THAT(broken.err, HasSubstr("wanted what `octile bench --json` writes"));
  const RunResult other = run({"table", "adopt", record, "--tables", l40s_directory()});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("wanted tables of \"X\""));
  EXPECT_NE(run({"table", "adopt", path("none.json"), "--tables", path("tables")}).status, 0);
}

}  // namespace
}  // namespace octile::cli
