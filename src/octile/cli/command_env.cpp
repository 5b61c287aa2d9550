// SPDX-License-Identifier: Apache-2.0
// `octile env`: every environment variable, by section; and the page docs/environment.md.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/report/json_report.h"
#include "octile/report/text_report.h"

#include <algorithm>
#include <string_view>

namespace octile::cli {
namespace {

std::string type_text(const env::Variable& variable) {
  switch (variable.type) {
    case env::Type::boolean:
      return "on or off";
    case env::Type::integer:
      return format("whole number from {} to {}", variable.min_value, variable.max_value);
    case env::Type::choice: {
      std::string words = "one of";
      for (std::string_view rest = variable.words; !rest.empty();) {
        const std::size_t bar = rest.find('|');
        words += (words == "one of" ? " " : ", ") + std::string(rest.substr(0, bar));
        rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
      }
      return words;
    }
    case env::Type::text:
    case env::Type::path_list:
      return env::to_string(variable.type);
  }
  return "unknown";
}

}  // namespace

int run_env(const EnvArgs& args) {
  std::vector<VariableReport> reports;
  for (const env::Variable& variable : env::variables()) {
    const auto value = env::value_of(variable.name);
    if (!value) {
      return fail(value.error());
    }
    reports.push_back({variable.name, variable.section, type_text(variable), variable.default_text, value->text,
                       value->source, variable.fallback, variable.sentence});
  }
  // Sections together, in the order in which the registry first names them.
  std::vector<std::string> sections;
  for (const VariableReport& report : reports) {
    if (std::find(sections.begin(), sections.end(), report.section) == sections.end()) {
      sections.push_back(report.section);
    }
  }
  std::stable_sort(reports.begin(), reports.end(), [&](const VariableReport& a, const VariableReport& b) {
    return std::find(sections.begin(), sections.end(), a.section) < std::find(sections.begin(), sections.end(), b.section);
  });
  const std::string text = args.markdown ? env_markdown(reports) : env_text(reports);
  const auto written = write_result(text, args.json, [&] { return env_json(reports); });
  return written ? kDone : fail(written.error());
}

}  // namespace octile::cli
