// SPDX-License-Identifier: Apache-2.0
// Valid files with bytes changed, thousands of times: never a crash, a hang or a table that breaks its own rules.
#include "octile/table/field_format.h"
#include "octile/table/own_format.h"
#include "octile/table/table_store.h"
#include "table/random_tables.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <random>
#include <string>

namespace octile {
namespace {

std::int64_t pick(std::int64_t lo, std::int64_t hi) {
  return std::uniform_int_distribution<std::int64_t>(lo, hi)(test::generator());
}

// One to four changes: a byte replaced, removed, doubled, a stretch copied elsewhere, the end cut off, or a piece of JSON
// put in.
std::string mutate(std::string text) {
  static const std::vector<std::string> pieces = {"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ",",
                                                  ":",
                                                  "\"",
                                                  "null",
                                                  "-1",
                                                  "1e308",
                                                  "\"64\":",
                                                  "\\u0000",
                                                  "9223372036854775808",
                                                  "0.5",
                                                  "true",
                                                  "{\"m\":[1,2]}",
                                                  "\xFF",
                                                  "/*x*/"};
  for (std::int64_t changes = pick(1, 4); changes > 0 && !text.empty(); --changes) {
    const auto at = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(text.size()) - 1));
    switch (pick(0, 5)) {
      case 0:
        text[at] = static_cast<char>(pick(0, 255));
        break;
      case 1:
        text.erase(at, static_cast<std::size_t>(pick(1, 8)));
        break;
      case 2:
        text.insert(at, 1, text[at]);
        break;
      case 3: {
        const std::string piece = text.substr(at, static_cast<std::size_t>(pick(1, 200)));
        text.insert(static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(text.size()))), piece);
        break;
      }
      case 4:
        text.resize(pick(0, 9) == 0 ? at : text.size());
        break;
      default:
        text.insert(at, pieces[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(pieces.size()) - 1))]);
    }
  }
  return text;
}

struct Outcome {
  int served = 0;    // A table came out without a finding.
  int in_part = 0;   // Entries were left out.
  int left_out = 0;  // No table, and a finding that says why.
};

// What a reader may deliver: no table and a reason, or one that keeps the rules and can be written.
template <class Parse, class Write>
Outcome run(const std::string& valid, int rounds, const Parse& parse, const Write& write) {
  Outcome outcome;
  for (int round = 0; round < rounds; ++round) {
    const std::string text = mutate(valid);
    std::vector<JsonDuplicate> duplicates;
    const auto document = parse_json(text, "mutant", {}, &duplicates);
    if (!document) {
      EXPECT_FALSE(document.error().message.empty());
      ++outcome.left_out;
      continue;
    }
    std::vector<Finding> findings;
    const std::optional<TileTable> table = parse(*document, duplicates, findings);
    for (const Finding& finding : findings) {
      EXPECT_FALSE(finding.kind.empty() || finding.message.empty()) << text;
    }
    if (!table) {
      EXPECT_FALSE(findings.empty()) << text;
      ++outcome.left_out;
      continue;
    }
    ++(findings.empty() ? outcome.served : outcome.in_part);
    const Expected<std::string> written = write(*table);
    EXPECT_TRUE(written) << written.error().message << "\n" << text;
    for (const std::int64_t m : {1, 17, 64, 1000, 100'000}) {
      const TableEntry* const entry = table->find(m);
      EXPECT_TRUE(entry == nullptr || (entry->m_lo >= 1 && entry->m_lo <= entry->m_hi));
      EXPECT_TRUE(entry == nullptr || entry->kernel != kFieldKernel || check_field_tile(entry->config));
    }
  }
  return outcome;
}

TEST(Mutation, FieldFilesWithChangedBytes) {
  SCOPED_TRACE(test::seed_text());
  const auto valid = read_whole_file(std::string(OCTILE_TEST_SOURCE_DIR) +
                                     "/tables/NVIDIA_L40S/N=24576,K=4096,device_name=NVIDIA_L40S,"
                                     "dtype=fp8_w8a8_channelwise.json");
  ASSERT_TRUE(valid) << valid.error().message;
  const Outcome outcome = run(
      *valid, 8000,
      [](const auto& document, const auto& duplicates, auto& findings) {
        return parse_field_table(document, duplicates, {}, "mutant", findings);
      },
      field_table_text);
  // The mutations reach each kind of outcome, so that the test tests something.
  EXPECT_GT(outcome.served, 0);
  EXPECT_GT(outcome.in_part, 0);
  EXPECT_GT(outcome.left_out, 0);
}

TEST(Mutation, OwnFilesWithChangedBytes) {
  SCOPED_TRACE(test::seed_text());
  Outcome total;
  for (int file = 0; file < 20; ++file) {
    const auto valid = own_table_text(test::random_own_table());
    ASSERT_TRUE(valid) << valid.error().message;
    const Outcome outcome = run(
        *valid, 400,
        [](const auto& document, const auto& duplicates, auto& findings) {
          return parse_own_table(document, duplicates, "mutant", findings);
        },
        own_table_text);
    total.served += outcome.served;
    total.in_part += outcome.in_part;
    total.left_out += outcome.left_out;
  }
  EXPECT_GT(total.served, 0);
  EXPECT_GT(total.in_part, 0);
  EXPECT_GT(total.left_out, 0);
}

TEST(Mutation, RandomBytesAreNoTable) {
  SCOPED_TRACE(test::seed_text());
  for (int round = 0; round < 2000; ++round) {
    std::string text(static_cast<std::size_t>(pick(0, 300)), '\0');
    std::generate(text.begin(), text.end(), [] { return static_cast<char>(pick(0, 255)); });
    std::vector<Finding> findings;
    const auto document = parse_json(text, "noise");
    if (document) {
      EXPECT_FALSE(parse_field_table(*document, {}, {}, "noise", findings));
      EXPECT_FALSE(parse_own_table(*document, {}, "noise", findings));
    }
  }
}

}  // namespace
}  // namespace octile
