// SPDX-License-Identifier: Apache-2.0
// What is embedded for HTML reports; cmake/OctileReportAssets.cmake writes the definition.
#pragma once

#include <string_view>

namespace octile {

struct HtmlAssets {
  std::string_view page;    // The frame: HTML with {{names}} where text goes.
  std::string_view style;   // CSS.
  std::string_view script;  // Sorting, filtering and plots.
  std::string_view d3;      // Empty where this build was made without it; the page then has no plots.
  std::string_view d3_licence;
  // As a Content-Security-Policy names them: "sha256-<base 64>"; of d3 empty where it is missing.
  std::string_view style_hash;
  std::string_view script_hash;
  std::string_view d3_hash;
};
const HtmlAssets& html_assets() noexcept;

}  // namespace octile
