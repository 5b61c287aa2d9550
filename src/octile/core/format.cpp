// SPDX-License-Identifier: Apache-2.0
// The one file that compiles fmt's implementation, so that the command needs no libfmt at run time.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include "octile/core/format.h"

namespace octile {

std::string detail::vformat(fmt::string_view text, fmt::format_args args) { return fmt::vformat(text, args); }

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::to_string(fmt::join(parts, separator));
}

}  // namespace octile
