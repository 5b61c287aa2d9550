// SPDX-License-Identifier: Apache-2.0
// tune, bench, verify and explain one after the other, on a weight small enough for any machine. Nothing here is about
// speed.
#include "cli/command.h"
#include "support/row_fields.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

using test::kRowFields;

class MainJobTest : public CommandTest {
 protected:
#if defined(__SANITIZE_ADDRESS__) && defined(__clang__)
  // Benches would spend their time in the one engine that is not optimised there (cmake/OctileOptions.cmake).
  MainJobTest() { environment_["OCTILE_CPU_ISA"] = "avx512"; }
#endif
  std::vector<std::string> on_small_weight(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--n", "1024", "--k", "1088", "--tables", path("tables")});
    return arguments;
  }
};

// The rows of a page; a failure where it has no table.
std::string points_table_of(const std::string& page_path) {
  const std::string page = read_file(page_path);
  const std::size_t start = page.find("id=\"points-table\"");
  EXPECT_NE(start, std::string::npos) << page_path;
  return start == std::string::npos ? "" : page.substr(start, page.find("</table>", start) - start);
}

TEST_F(MainJobTest, TuneBenchVerifyExplain) {
  const RunResult tuned = run(on_small_weight({"tune", "--m", "1,5", "--html", path("tune.html")}));
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, testing::AllOf(HasSubstr("baseline us"), HasSubstr("wrote " + path("tables"))));
  // Progress is on stderr, as plain lines, since no terminal is there.
  EXPECT_THAT(tuned.err, testing::AllOf(HasSubstr("octile: "), testing::Not(HasSubstr("\x1b["))));
  EXPECT_EQ(run({"table", "lint", path("tables")}).status, 0);
  EXPECT_THAT(
      read_file(path("tune.html")),
      testing::AllOf(HasSubstr("Octile tuning report"), HasSubstr("octile tune --m 1,5"), HasSubstr("kernel source hash"),
                     HasSubstr("<dt>protocol</dt>"), HasSubstr("make command"), HasSubstr("1024 \u00D7 1088")));

  const Json report = run_json(on_small_weight({"bench", "--m", "1,5", "--time-budget", "60s", "--csv", path("bench.csv"),
                                                "--html", path("bench.html"), "--record", "small", "--json"}),
                               {.directory = folder_});
  EXPECT_EQ(keys_of(report), (std::vector<std::string>{"device_name", "octile_version", "kernel_source_hash", "date", "unit",
                                                       "protocol", "rows"}));
  EXPECT_EQ(report["unit"], "us");
  ASSERT_EQ(report["rows"].size(), 2U) << report.dump();
  for (const Json& row : report["rows"]) {
    EXPECT_EQ(keys_of(row), kRowFields);
    EXPECT_EQ(row["n"], 1024);
    EXPECT_EQ(row["k"], 1088);
    EXPECT_GT(row["chosen_us"].get<double>(), 0);
    EXPECT_GT(row["baseline_us"].get<double>(), 0);
    EXPECT_GT(row["floor_us"].get<double>(), 0);
    EXPECT_LE(row["ratio_lo"].get<double>(), row["ratio"].get<double>());
    EXPECT_GE(row["ratio_hi"].get<double>(), row["ratio"].get<double>());
    EXPECT_LT(row["rel_error"].get<double>(), 0.01);
  }
  const std::string csv = read_file(path("bench.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_THAT(csv, testing::StartsWith("shape,n,k,m,scope,"));
  const Json recorded = Json::parse(
      read_file(path("bench/results/" + report["device_name"].get<std::string>() + "/small.json")), nullptr, false);
  ASSERT_FALSE(recorded.is_discarded());
  EXPECT_EQ(recorded["rows"], report["rows"]);
  EXPECT_THAT(recorded["command"].get<std::string>(), testing::StartsWith("octile bench --m 1,5"));
  EXPECT_NE(recorded["commit"], "");
  EXPECT_TRUE(recorded["libraries"].is_object());
  EXPECT_TRUE(recorded.contains("driver"));

  // What --record wrote gives the page of the run again, but for where it says that it comes from.
  const std::string record = path("bench/results/" + report["device_name"].get<std::string>() + "/small.json");
  ASSERT_EQ(run({"report", record, "--html", path("again.html")}).status, 0);
  EXPECT_EQ(points_table_of(path("again.html")), points_table_of(path("bench.html")));
  EXPECT_THAT(read_file(path("bench.html")), testing::Not(HasSubstr("octile report")));
  EXPECT_THAT(read_file(path("again.html")),
              testing::AllOf(HasSubstr("octile report " + record), HasSubstr("octile bench --m 1,5")));

  const RunResult verified =
      run({"verify", "--tables", path("tables"), "--time-budget", "60s", "--json", path("verify.json")});
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
  const Json findings = Json::parse(read_file(path("verify.json")), nullptr, false);
  EXPECT_EQ(keys_of(findings), (std::vector<std::string>{"ok", "findings"}));
  EXPECT_EQ(findings["ok"], true);

  // What was tuned is what is used, at every M that was asked for.
  for (const Json& point : run_json(on_small_weight({"explain", "--m", "1,5", "--json"}))) {
    EXPECT_THAT(point["table_file"].get<std::string>(), testing::StartsWith(path("tables"))) << point.dump();
    EXPECT_FALSE(point["measured"].is_null()) << point.dump();
  }
}

TEST_F(MainJobTest, CurvesOverEveryMWithPublishedTimesAndTheirPageAgain) {
  ASSERT_EQ(run(on_small_weight({"tune", "--m", "1,5", "--time-budget", "20s"})).status, 0);
  const std::string theirs = write("theirs.csv", "N,K,M,ladder_us\n1024,1088,2,7.5\n4096,1088,2,9\n");
  const RunResult result = run(on_small_weight({"bench", "--all-m", "--max-m", "9", "--compare", theirs, "--time-budget",
                                                "60s", "--json", path("curves.json"), "--html", path("curves.html")}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::AllOf(HasSubstr("Cliffs of linear, the choice:"),
                                         HasSubstr("Cliffs of linear, our own families alone:"),
                                         HasSubstr("1 of 9 rows have published times of the 2 points of ")));
  const Json curves = Json::parse(read_file(path("curves.json")), nullptr, false);
  ASSERT_FALSE(curves.is_discarded());
  EXPECT_EQ(curves["all_m"], true);
  EXPECT_TRUE(curves["cliffs"].is_array());
  EXPECT_EQ(curves["left_out"], Json::array());
  EXPECT_EQ(curves["published_from"], theirs);
  ASSERT_EQ(curves["rows"].size(), 9U) << result.out;
  for (const Json& row : curves["rows"]) {
    EXPECT_GT(row["own_us"].get<double>(), 0) << row.dump();
    EXPECT_NE(row["own_kernel"], "");
    EXPECT_LE(row["own_ratio_lo"].get<double>(), row["own_ratio_hi"].get<double>());
    EXPECT_EQ(row["published"].size(), row["m"] == 2 ? 1U : 0U);
  }
  ASSERT_EQ(run({"report", path("curves.json"), "--html", path("again.html")}).status, 0);
  EXPECT_EQ(points_table_of(path("again.html")), points_table_of(path("curves.html")));
  EXPECT_THAT(points_table_of(path("again.html")), HasSubstr("own kernel"));

  const RunResult broken = run(on_small_weight({"bench", "--m", "1", "--compare", write("broken.csv", "N,K\n")}));
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.err, testing::AllOf(HasSubstr("--compare: "), HasSubstr("got no M")));
}

TEST_F(MainJobTest, TuneFromALogTunesWhatWasRunHere) {
  const std::string here = run_json({"devices", "--json"})[0]["device_name"].get<std::string>();
  const auto line = [](const std::string& device, int m, int count) {
    return Json{{"device_name", device}, {"n", 256}, {"k", 128}, {"m", m}, {"count", count}}.dump() + "\n";
  };
  const std::string log =
      write("untuned.jsonl", line(here, 3, 2) + line("NVIDIA_H300", 9, 5) + line(here, 7, 1) + line(here, 3, 2) + "{\"torn");
  const RunResult tuned = run({"tune", "--from-log", log, "--tables", path("tables")});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, testing::AllOf(HasSubstr("256x128"), HasSubstr("NVIDIA_H300"), HasSubstr("1 of 5 lines")));
  const Json points =
      run_json({"explain", "--n", "256", "--k", "128", "--m", "3,7,64", "--tables", path("tables"), "--json"});
  EXPECT_FALSE(points[0]["measured"].is_null());
  EXPECT_FALSE(points[1]["measured"].is_null());
  EXPECT_TRUE(points[2]["measured"].is_null()) << "M = 64 was never run";

  EXPECT_EQ(run({"tune", "--from-log", log, "--m", "4"}).status, 2);
  EXPECT_EQ(run({"tune", "--from-log", log, "--model", "qwen3-8b"}).status, 2);
  const RunResult nothing = run({"tune", "--from-log", write("other.jsonl", line("NVIDIA_H300", 9, 5))});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, testing::AllOf(HasSubstr(here), HasSubstr("NVIDIA_H300")));
  EXPECT_EQ(run({"tune", "--from-log", path("missing")}).status, 2);
}

TEST_F(MainJobTest, PreciseSumsAreTunedIntoTablesThatSayThem) {
  const RunResult tuned = run({"tune", "--n", "256", "--k", "128", "--m", "1", "--accumulate", "precise", "--time-budget",
                               "20s", "--tables", path("tables")});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  std::vector<std::string> accumulate;
  for (const auto& file : std::filesystem::directory_iterator(path("tables"))) {
    if (file.path().string().ends_with(".octile.json")) {
      accumulate.push_back(Json::parse(read_file(file.path()), nullptr, false)["key"]["accumulate"].get<std::string>());
    }
  }
  EXPECT_EQ(accumulate, std::vector<std::string>{"precise"});
  const RunResult wrong = run({"tune", "--n", "256", "--k", "128", "--accumulate", "exact"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, testing::AllOf(HasSubstr("--accumulate"), HasSubstr("exact"), HasSubstr("precise")));
}

// Tables of bf16 outputs do not serve linears of fp16: these are tuned, timed, checked and explained likewise.
TEST_F(MainJobTest, EveryOutputTypeIsTunedIntoTablesThatServeItAlone) {
  for (const std::string type : {"fp16", "fp32"}) {
    SCOPED_TRACE(type);
    const std::string tables = path("tables_" + type);
    const std::vector<std::string> more = {"--n", "96", "--k", "64", "--m", "1", "--tables", tables};
    const auto of_type = [&](std::vector<std::string> words, bool says_type = true) {
      words.insert(words.end(), more.begin(), more.end());
      if (says_type) {
        words.insert(words.end(), {"--out-dtype", type});
      }
      return words;
    };
    const RunResult tuned = run(of_type({"tune", "--time-budget", "20s"}));
    ASSERT_EQ(tuned.status, 0) << tuned.err;
    const Json found = run_json(of_type({"explain", "--json"}));
    EXPECT_NE(found["table_file"], "") << found.dump();
    const Json other = run_json(of_type({"explain", "--json"}, false));
    EXPECT_THAT(other["reason"].get<std::string>(), testing::AllOf(HasSubstr("out_dtype"), HasSubstr(type)));
    const Json benched = run_json(of_type({"bench", "--time-budget", "10s", "--json"}));
    EXPECT_EQ(benched["rows"][0]["out_dtype"], type);
    EXPECT_EQ(
        run({"verify", "--n", "96", "--k", "64", "--tables", tables, "--out-dtype", type, "--time-budget", "10s"}).status,
        0);
  }
  const RunResult wrong = run({"tune", "--n", "96", "--k", "64", "--out-dtype", "fp8"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, testing::AllOf(HasSubstr("--out-dtype"), HasSubstr("fp8"), HasSubstr("fp16")));
}

TEST_F(MainJobTest, DevicesAreTakenAsAListAndEachOnce) {
  const std::vector<std::string> tune{"tune", "--n", "256", "--k", "128", "--m", "1", "--tables", path("tables")};
  const auto run_on = [&](std::vector<std::string> more) {
    more.insert(more.begin(), tune.begin(), tune.end());
    return run(more);
  };
  const RunResult tuned = run_on({"--devices", "cpu"});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("wrote " + path("tables")));
  for (const char* wrong : {"cpu,cpu", "cpu,cuda:99", "all,cpu", ""}) {
    EXPECT_EQ(run_on({"--devices", wrong}).status, 2) << wrong;
  }
  EXPECT_THAT(run_on({"--devices", "cpu,cuda:99"}).err, HasSubstr("cuda:99"));
  EXPECT_EQ(run_on({"--devices", "cpu", "--device", "cpu"}).status, 2);
}

TEST_F(MainJobTest, ShardsAreTunedAloneAndMerged) {
  // One point: whatever a machine is busy with, that much is measured. What shards of many make is tested on simulated time.
  const auto tune = [&](const std::string& shard) {
    return run({"tune", "--n", "256", "--k", "128", "--m", "1", "--shard", shard, "--tables", path("shards")});
  };
  const RunResult first = tune("1/2");
  ASSERT_EQ(first.status, 0) << first.err;
  const RunResult second = tune("2/2");
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("shard 2/2 holds no point"));
  const RunResult merged = run({"table", "merge", path("shards"), "--out", path("tables")});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(run({"table", "lint", path("tables")}).status, 0);
  const Json point = run_json({"explain", "--n", "256", "--k", "128", "--m", "1", "--tables", path("tables"), "--json"});
  EXPECT_FALSE(point["measured"].is_null()) << point.dump();
  const RunResult refused = tune("3/2");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("3/2"));
}

TEST_F(MainJobTest, OnATerminalProgressIsABar) {
  const RunResult tuned = run(on_small_weight({"tune", "--m", "1"}), {.stderr_is_terminal = true});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.err, testing::AllOf(HasSubstr("\r\x1b[K["), HasSubstr("####################")));
  EXPECT_THAT(tuned.out, testing::Not(HasSubstr("\x1b")));
}

TEST_F(MainJobTest, VerifyFindsATamperedTable) {
  ASSERT_EQ(run(on_small_weight({"tune", "--m", "1"})).status, 0);
  std::size_t broken = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("tables"))) {
    if (entry.path().string().ends_with(".octile.json")) {
      const std::string text = read_file(entry.path());
      std::filesystem::resize_file(entry.path(), text.size() / 2);
      ++broken;
    }
  }
  ASSERT_EQ(broken, 1U);
  const RunResult verified = run({"verify", "--tables", path("tables"), "--time-budget", "60s"});
  EXPECT_NE(verified.status, 0) << verified.out << verified.err;
}

TEST_F(MainJobTest, TuneIntoAPlaceThatIsNoDirectoryIsAnError) {
  const std::string file = write("file", "");
  const RunResult tuned = run({"tune", "--n", "64", "--k", "64", "--m", "1", "--tables", file, "--time-budget", "5s"});
  EXPECT_EQ(tuned.status, 1);
  EXPECT_THAT(tuned.err, HasSubstr(file));
}

TEST_F(MainJobTest, VerifyAtEveryMListsCliffsAndWhatTheBudgetLeftOut) {
  ASSERT_EQ(run(on_small_weight({"tune", "--m", "1", "--time-budget", "60s"})).status, 0);
  // Where others use the cores, the first budget may have ended before anything was timed.
  RunResult verified;
  for (const char* budget : {"3s", "12s", "40s"}) {
    verified = run(
        {"verify", "--all-m", "--fix", "--tables", path("tables"), "--time-budget", budget, "--json", path("verify.json")});
    if (verified.out.contains("Cliffs of")) {
      break;
    }
  }
  EXPECT_THAT(verified.out, testing::AllOf(HasSubstr("Cliffs of " + path("tables")), HasSubstr("checks were not made")));
  const Json json = Json::parse(read_file(path("verify.json")), nullptr, false);
  EXPECT_EQ(keys_of(json), (std::vector<std::string>{"ok", "findings", "advice", "cliffs", "files"}));
  EXPECT_EQ(verified.status, json["ok"].get<bool>() ? 0 : 1) << verified.err;
}

TEST_F(MainJobTest, VerifyWithoutAnyTableSaysSo) {
  std::filesystem::create_directories(path("none"));
  const RunResult verified = run({"verify", "--tables", path("none")});
  EXPECT_NE(verified.status, 0);
  EXPECT_THAT(verified.err, HasSubstr("octile: error: "));
}

}  // namespace
}  // namespace octile::cli
