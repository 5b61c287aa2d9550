// SPDX-License-Identifier: Apache-2.0
// The one file that compiles fmt's implementation, so that the command needs no libfmt at run time.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include <string>

namespace octile::detail {

std::string vformat(fmt::string_view text, fmt::format_args args);

std::string vformat(fmt::string_view text, fmt::format_args args) { return fmt::vformat(text, args); }

}  // namespace octile::detail
