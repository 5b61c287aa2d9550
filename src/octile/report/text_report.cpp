// SPDX-License-Identifier: Apache-2.0
// Text for devices, environment variables, explanations and findings.
#include "octile/report/text_report.h"

#include "octile/core/format.h"
#include "octile/report/numbers.h"
#include "octile/report/text_table.h"

namespace octile {
namespace {

// A table cell of GitHub's Markdown: a bar would end it.
std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    cell += c == '|' ? "\\|" : std::string(1, c);
  }
  return cell;
}

std::string code_or_nothing(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

std::string state(bool available, const std::string& version, const std::string& reason) {
  if (available) {
    return "available" + (version.empty() ? "" : ", version " + version) + (reason.empty() ? "" : ", but " + reason);
  }
  return "not available: " + reason;
}

}  // namespace

std::string devices_text(std::span<const DeviceReport> devices) {
  std::string text;
  for (const DeviceReport& device : devices) {
    text += text.empty() ? "" : "\n";
    text += format("{}: {} ({}, {})\n", device.id, device.device_name, device.kind, device.arch);
    TextTable table{{{"kernels"}, {"role"}, {"state"}}, {}};
    for (const FamilyReport& family : device.families) {
      table.rows.push_back({family.name, "family", state(family.available, "", family.reason)});
    }
    for (const VendorStatus& vendor : device.vendors) {
      table.rows.push_back({vendor.name, "vendor", state(vendor.available, vendor.version, vendor.reason)});
    }
    text += table.to_string();
    if (device.overhead_bytes) {
      text += format("device memory beyond weights and workspaces: at most {}\n", format_bytes(*device.overhead_bytes));
    }
  }
  return text;
}

std::string env_text(std::span<const VariableReport> variables) {
  std::string text;
  std::string section;
  for (const VariableReport& variable : variables) {
    if (variable.section != section) {
      section = variable.section;
      text += format("{}{}\n", text.empty() ? "" : "\n", section);
    }
    text += format("  {} = {}  ({})\n", variable.name, variable.value.empty() ? "(none)" : variable.value, variable.source);
    text += format("      {}\n", variable.sentence);
    text += format("      type: {}; default: {}", variable.type,
                   variable.default_value.empty() ? "none" : variable.default_value);
    text += variable.fallback.empty() ? "\n" : format("; where unset, {} counts\n", variable.fallback);
  }
  return text;
}

std::string env_markdown(std::span<const VariableReport> variables) {
  std::string text =
      "# Environment variables\n\n"
      "This page is written by `octile env --markdown`; a test fails when it is out of date. `octile env` shows the values\n"
      "in force and where they came from.\n\n"
      "An empty value counts as unset. A value that cannot be parsed is an error that lists the accepted words: the "
      "command\n"
      "exits with status 2 before it does anything, and the library's functions return the error. A name that is nearly "
      "one of\n"
      "these is an error of the command, too, and one warning of the library: `OCTILE_ENABLE_FP8_GEMM_CONFIG_TUN` switches "
      "nothing.\n";
  std::string section;
  for (const VariableReport& variable : variables) {
    if (variable.section != section) {
      section = variable.section;
      text += format("\n## {}\n\n| variable | type | default | what it does |\n|---|---|---|---|\n", section);
    }
    std::string sentence = variable.sentence;
    if (!variable.fallback.empty()) {
      sentence += format(" Where it is unset, `{}` counts.", variable.fallback);
    }
    text += format("| `{}` | {} | {} | {} |\n", variable.name, markdown_cell(variable.type),
                   markdown_cell(code_or_nothing(variable.default_value)), markdown_cell(sentence));
  }
  return text;
}

std::string explanations_text(std::span<const Explanation> explanations, std::span<const std::string> shape_names) {
  std::string text;
  for (std::size_t i = 0; i < explanations.size(); ++i) {
    const Explanation& e = explanations[i];
    const std::string name = i < shape_names.size() && !shape_names[i].empty() ? shape_names[i] + ": " : "";
    text += text.empty() ? "" : "\n";
    text += format("{}N={} K={} M={} on {}\n", name, e.n, e.k, e.m, e.device_name);
    text += format("  choice    {}\n", e.choice);
    text += format("  kernel    {}\n", e.kernel.empty() ? "-" : e.kernel);
    text += format("  config    {}\n", e.config.empty() ? "-" : e.config);
    text += format("  table     {}\n", e.table_file.empty() ? "none" : e.table_file);
    text += format("  entry     {}\n", e.table_key.empty() ? "none" : e.table_key);
    text += format("  why       {}\n", e.reason);
    text += format("  measured  {}\n", e.measured.empty() || e.measured == "null" ? "nothing recorded" : e.measured);
    text += format("  stale     {}\n", e.stale ? "yes: a driver or library version differs from the one measured" : "no");
    text += format("  weight    {}\n", format_bytes(e.bytes));
  }
  return text;
}

std::string findings_text(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += format("{}{}: {}: {}\n", finding.file, finding.key.empty() ? "" : format(", key {}", finding.key), finding.kind,
                   finding.message);
  }
  return text;
}

}  // namespace octile
