// SPDX-License-Identifier: Apache-2.0
#include "octile/core/env.h"

#include "support/log_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>

namespace octile::env {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kSwitch = "OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE";
constexpr const char* kFieldSwitch = "SGLANG_ENABLE_FP8_GEMM_CONFIG_TUNE";

// The process environment, restored when the object goes.
class RealVariable {
 public:
  RealVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~RealVariable() { ::unsetenv(name_); }
  RealVariable(const RealVariable&) = delete;
  RealVariable& operator=(const RealVariable&) = delete;

 private:
  const char* name_;
};

TEST(Env, EveryWordOfABooleanIsAcceptedInAnyCase) {
  for (const char* word : {"on", "ON", "On", "true", "TRUE", "1", "yes", "Yes"}) {
    EXPECT_EQ(parse_bool(word), true) << word;
  }
  for (const char* word : {"off", "OFF", "oFf", "false", "False", "0", "no", "NO"}) {
    EXPECT_EQ(parse_bool(word), false) << word;
  }
  for (const char* word : {"of", "", " on", "2", "enable", "y", "n", "onn", "falsee", "tru"}) {
    EXPECT_EQ(parse_bool(word), std::nullopt) << word;
  }
}

TEST(Env, ATypoInASwitchIsAnErrorThatListsTheAcceptedWords) {
  const ScopedOverride typo(kSwitch, "of");
  const auto value = get_bool(kSwitch);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, ErrorCode::invalid_argument);
  for (const char* part : {kSwitch, "'of'", "on", "off", "true", "false", "yes", "no"}) {
    EXPECT_THAT(value.error().message, HasSubstr(part));
  }
  EXPECT_FALSE(check_all());
}

TEST(Env, TheFieldsSwitchIsHonouredWhereOursIsUnsetAndOnlyThere) {
  const RealVariable field(kFieldSwitch, "off");
  ASSERT_TRUE(get_bool(kSwitch));
  EXPECT_FALSE(*get_bool(kSwitch));
  EXPECT_THAT(value_of(kSwitch)->source, HasSubstr(kFieldSwitch));
  const RealVariable ours(kSwitch, "on");
  EXPECT_TRUE(*get_bool(kSwitch));
  EXPECT_EQ(value_of(kSwitch)->source, "environment");
}

TEST(Env, AnUnparseableFallbackIsAnErrorThatNamesTheFallback) {
  const RealVariable field(kFieldSwitch, "maybe");
  const auto value = get_bool(kSwitch);
  ASSERT_FALSE(value);
  EXPECT_THAT(value.error().message, HasSubstr(kFieldSwitch));
}

TEST(Env, EmptyAndBlankCountAsUnset) {
  const RealVariable empty(kSwitch, "");
  EXPECT_TRUE(*get_bool(kSwitch));
  EXPECT_EQ(value_of(kSwitch)->source, "default");
  const RealVariable blank(kSwitch, "  ");
  EXPECT_TRUE(*get_bool(kSwitch));
}

TEST(Env, IntegersOutsideTheirRangeAndWithRestAreRefusedWithTheRange) {
  for (const char* bad : {"-1", "1025", "2x", "1.5", "99999999999999999999", "two", "0x10"}) {
    const ScopedOverride value("OCTILE_NUM_THREADS", bad);
    const auto number = get_int("OCTILE_NUM_THREADS");
    ASSERT_FALSE(number) << bad;
    EXPECT_THAT(number.error().message, HasSubstr("0 to 1024"));
    EXPECT_THAT(number.error().message, HasSubstr(bad));
  }
  const ScopedOverride good("OCTILE_NUM_THREADS", "7");
  EXPECT_EQ(*get_int("OCTILE_NUM_THREADS"), 7);
}

TEST(Env, AChoiceIsOneOfItsWordsInAnyCase) {
  const ScopedOverride good("OCTILE_LOG_LEVEL", "Warning");
  EXPECT_EQ(*get_text("OCTILE_LOG_LEVEL"), "warning");
  const ScopedOverride bad("OCTILE_LOG_LEVEL", "warn");
  ASSERT_FALSE(get_text("OCTILE_LOG_LEVEL"));
  EXPECT_THAT(get_text("OCTILE_LOG_LEVEL").error().message, HasSubstr("debug info warning error off"));
}

TEST(Env, OverridesNestAndAreRestoredWhenAnExceptionPasses) {
  try {
    const ScopedOverride outer(kSwitch, "off");
    EXPECT_FALSE(*get_bool(kSwitch));
    {
      const ScopedOverride inner(kSwitch, "on");
      EXPECT_TRUE(*get_bool(kSwitch));
    }
    EXPECT_FALSE(*get_bool(kSwitch));
    const ScopedOverride unset(kSwitch, std::nullopt);
    EXPECT_EQ(value_of(kSwitch)->source, "default");
    throw std::runtime_error("passes");
  } catch (const std::runtime_error&) {
    EXPECT_TRUE(*get_bool(kSwitch));
  }
}

TEST(Env, AnUndeclaredVariableIsRefused) { EXPECT_FALSE(get_bool("OCTILE_NO_SUCH_THING")); }

TEST(Env, AMisspeltNameIsFoundWithTheOneThatWasMeant) {
  for (const Variable& variable : variables()) {
    const std::string name = variable.name;
    for (const std::string& wrong : {name.substr(0, name.size() - 1), name + "S", name + "_", "OCTILE_X" + name.substr(7)}) {
      const RealVariable value(wrong.c_str(), "off");
      const std::vector<Misspelt> found = misspelt();
      ASSERT_EQ(found.size(), 1U) << wrong;
      EXPECT_EQ(found.front().name, wrong);
      const auto checked = check_all();
      ASSERT_FALSE(checked) << wrong;
      EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
      EXPECT_THAT(checked.error().message, AllOf(HasSubstr(wrong), HasSubstr("did you mean OCTILE_")));
    }
  }
  const RealVariable value("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNING", "off");
  EXPECT_EQ(misspelt().at(0).meant, kSwitch);
}

TEST(Env, OtherProgramsNamesAreNoneOfOurs) {
  const RealVariable near_us("OCTILES_TABLE_PATH", "x");
  const RealVariable own("OCTILE_ENGINE_THREADS_OF_ITS_OWN", "x");
  const RealVariable fallback(kFieldSwitch, "on");
  EXPECT_TRUE(misspelt().empty());
}

TEST(Env, AMisspeltNameIsWarnedOfOnce) {
  const RealVariable value("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUN", "off");
  const test::LogCapture log;
  warn_of_misspelt();
  warn_of_misspelt();
  EXPECT_EQ(log.warnings_with("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUN: there is no such variable, did you mean "
                              "OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE?"),
            1);
}

TEST(Env, EveryVariableIsDeclaredOnceWithASentenceASectionAndADefaultThatParses) {
  std::set<std::string> names;
  for (const Variable& variable : variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_THAT(variable.name, HasSubstr("OCTILE_"));
    EXPECT_STRNE(variable.section, "");
    EXPECT_EQ(std::string(variable.sentence).back(), '.') << variable.name;
    const ScopedOverride unset(variable.name, std::nullopt);
    EXPECT_TRUE(value_of(variable.name)) << variable.name;
  }
}

}  // namespace
}  // namespace octile::env
