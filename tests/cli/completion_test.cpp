// SPDX-License-Identifier: Apache-2.0
// Completion scripts: every command and option of the help is in them, and bash runs its own.
#include "octile/cli/app.h"
#include "octile/core/format.h"

#include "cli/command.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using testing::HasSubstr;

class CompletionTest : public CommandTest {
 protected:
  // The words that --help of `command` names as options or sub-commands, found in the text for people.
  std::set<std::string> words_of_help(const std::vector<std::string>& command) const {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const std::string help = run(arguments).out;
    std::set<std::string> words;
    for (std::size_t at = help.find("--"); at != std::string::npos; at = help.find("--", at + 1)) {
      const std::size_t end = help.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
      const std::string word = help.substr(at, end - at);
      const bool begins_a_word = at == 0 || std::string_view(" ,\n").find(help[at - 1]) != std::string_view::npos;
      if (begins_a_word && word.size() > 2 && word[2] != '-') {
        words.insert(word);
      }
    }
    return words;
  }

  // What bash would offer after `line`, the last word of which is being typed.
  std::vector<std::string> bash_offers(const std::vector<std::string>& words) const {
    const std::string script = write("octile.bash", run({"completion", "bash"}).out);
    std::string quoted;
    for (const std::string& word : words) {
      quoted += format("'{}' ", word);
    }
    const std::string command = format(
        "bash --norc -c \"source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _octile; printf '%s\\n' "
        "\\\"\\${{COMPREPLY[@]}}\\\"\" 2>&1",
        script, quoted, words.size() - 1);
    std::vector<std::string> offers;
    FILE* pipe = ::popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    std::array<char, 4096> buffer{};
    while (pipe != nullptr && std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
      std::string offer = buffer.data();
      offer.pop_back();
      offers.push_back(offer);
    }
    EXPECT_EQ(::pclose(pipe), 0);
    return offers;
  }
};

const std::vector<std::vector<std::string>> kCommands = {
    {"devices"},         {"warmup"},         {"cache"},         {"tune"},
    {"bench"},           {"verify"},         {"explain"},       {"env"},
    {"table"},           {"table", "lint"},  {"table", "show"}, {"table", "merge"},
    {"table", "import"}, {"table", "export"}};

TEST_F(CompletionTest, EveryCommandAndOptionIsInEveryScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const RunResult script = run({"completion", shell});
    ASSERT_EQ(script.status, 0) << script.err;
    for (const auto& command : kCommands) {
      EXPECT_THAT(script.out, HasSubstr(command.back())) << shell;
      const auto words = words_of_help(command);
      EXPECT_GE(words.size(), 1U);
      for (const std::string& word : words) {
        // fish writes the name after "-l", without its dashes.
        const std::string wanted = std::string(shell) == "fish" ? format("-l {}", word.substr(2)) : word;
        EXPECT_THAT(script.out, HasSubstr(wanted)) << shell << " " << command.back();
      }
    }
    EXPECT_THAT(script.out, testing::Not(HasSubstr("worker")));
  }
}

TEST_F(CompletionTest, BashOffersCommandsOptionsAndPresets) {
  EXPECT_THAT(bash_offers({"octile", "t"}), testing::UnorderedElementsAre("tune", "table"));
  EXPECT_THAT(bash_offers({"octile", "table", "me"}), testing::ElementsAre("merge"));
  EXPECT_THAT(bash_offers({"octile", "tune", "--th"}), testing::ElementsAre("--thorough"));
  EXPECT_THAT(bash_offers({"octile", "bench", "--model", "qwen3-8"}), testing::ElementsAre("qwen3-8b"));
  EXPECT_THAT(bash_offers({"octile", "bench", "--scope", ""}), testing::UnorderedElementsAre("linear", "gemm"));
  EXPECT_THAT(bash_offers({"octile", "completion", "z"}), testing::ElementsAre("zsh"));
  // The value of --json may be left out.
  EXPECT_THAT(bash_offers({"octile", "bench", "--json", "--cs"}), testing::ElementsAre("--csv"));
}

TEST_F(CompletionTest, ForEveryCommandBashOffersWhatItsHelpNames) {
  for (const auto& command : kCommands) {
    std::vector<std::string> words = {"octile"};
    words.insert(words.end(), command.begin(), command.end());
    words.push_back("--");
    const auto offers = bash_offers(words);
    for (const std::string& word : words_of_help(command)) {
      EXPECT_THAT(offers, testing::Contains(word)) << command.back();
    }
  }
}

// bash is on every machine that builds this; these two need not be.
TEST_F(CompletionTest, ZshParsesItsScript) {
  if (std::system("command -v zsh > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "zsh is not installed";
  }
  const std::string script = write("_octile", run({"completion", "zsh"}).out);
  EXPECT_EQ(std::system(format("zsh -n '{}'", script).c_str()), 0);
}

TEST_F(CompletionTest, FishOffersCommandsAndOptions) {
  if (std::system("command -v fish > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "fish is not installed";
  }
  const std::string script = write("octile.fish", run({"completion", "fish"}).out);
  const std::string offers = path("offers");
  EXPECT_EQ(std::system(format("HOME='{0}' fish --no-config -c \"source '{1}'; complete -C 'octile table m'; complete -C "
                               "'octile tune --th'; complete -C 'octile bench --model qwen3-8'\" > '{2}' 2>&1",
                               folder_, script, offers)
                            .c_str()),
            0);
  EXPECT_THAT(read_file(offers), testing::AllOf(HasSubstr("merge\t"), HasSubstr("--thorough\t"), HasSubstr("qwen3-8b\t")));
}

TEST(Completion, TextOfOptionsCannotBreakAScript) {
  const CommandInfo root{
      "octile", "it's [odd]: \\ text", {{{"--odd"}, "FILE", false, "it's [odd]: \\ text\nsecond line"}}, "", {}};
  EXPECT_THAT(completion_script(root, "zsh"), HasSubstr("'--odd[it'\\''s (odd)\\: \\ text second line]:FILE:_files'"));
  EXPECT_THAT(completion_script(root, "fish"), HasSubstr("-d 'it\\'s [odd]: \\\\ text second line'"));
}

}  // namespace
}  // namespace octile::cli
