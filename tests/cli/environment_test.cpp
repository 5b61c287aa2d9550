// SPDX-License-Identifier: Apache-2.0
// `octile env`, and the page that is written from it.
#include "octile/core/env.h"

#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using testing::HasSubstr;
using EnvironmentTest = CommandTest;

TEST_F(EnvironmentTest, ThePageOfTheDocumentationIsUpToDate) {
  // Values of the process must not reach the page.
  const RunResult result = run({"env", "--markdown"}, {.environment = {{"OCTILE_NUM_THREADS", "3"}}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, read_file(std::string(OCTILE_TEST_SOURCE_DIR) + "/docs/environment.md"))
      << "write it anew: octile env --markdown > docs/environment.md";
}

TEST_F(EnvironmentTest, JsonHoldsEveryVariableWithExactlyTheDocumentedFields) {
  const auto list = run_json({"env", "--json"});
  ASSERT_EQ(list.size(), env::variables().size());
  for (const env::Variable& variable : env::variables()) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& v) { return v["name"] == variable.name; });
    ASSERT_NE(found, list.end()) << variable.name;
    EXPECT_EQ(keys_of(*found), (std::vector<std::string>{"name", "section", "type", "default", "value", "source", "fallback",
                                                         "description"}));
    EXPECT_EQ((*found)["value"], variable.default_text);
    EXPECT_EQ((*found)["source"], "default");
  }
}

TEST_F(EnvironmentTest, SaysWhereAValueCameFrom) {
  const auto list = run_json({"env", "--json"},
                             {.environment = {{"OCTILE_NUM_THREADS", "3"}, {"SGLANG_ENABLE_FP8_GEMM_CONFIG_TUNE", "off"}}});
  for (const auto& variable : list) {
    if (variable["name"] == "OCTILE_NUM_THREADS") {
      EXPECT_EQ(variable["value"], "3");
      EXPECT_EQ(variable["source"], "environment");
    }
    if (variable["name"] == "OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE") {
      EXPECT_EQ(variable["value"], "off");
      EXPECT_EQ(variable["source"], "environment (SGLANG_ENABLE_FP8_GEMM_CONFIG_TUNE)");
    }
  }
}

TEST_F(EnvironmentTest, TextNamesEveryVariableUnderItsSection) {
  const RunResult result = run({"env"});
  EXPECT_EQ(result.status, 0);
  for (const env::Variable& variable : env::variables()) {
    EXPECT_THAT(result.out,
                testing::AllOf(HasSubstr(variable.name), HasSubstr(variable.section), HasSubstr(variable.sentence)));
  }
}

}  // namespace
}  // namespace octile::cli
