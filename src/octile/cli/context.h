// SPDX-License-Identifier: Apache-2.0
// Where the figures of a run come from, for records and reports.
#pragma once

#include "octile/report/html_report.h"
#include "octile/report/json_report.h"

#include <string>

namespace octile::cli {

// Commit, command line, and the vendor libraries of the device.
RecordedContext context_of(const std::string& device_id, const std::string& command_line);
// The same as what a page shows; the rest of it is empty.
HtmlOrigin html_origin(const RecordedContext& context);
// Writes the page; says it where it has no plots.
Expected<void> write_html(const std::string& path, const std::string& page);

}  // namespace octile::cli
