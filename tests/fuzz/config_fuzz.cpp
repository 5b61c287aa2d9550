// SPDX-License-Identifier: Apache-2.0
// A model's config.json: shapes that are positive, or a reason.
#include "fuzz/fuzz.h"
#include "octile/core/json_file.h"
#include "octile/model/hf_config.h"
#include "octile/model/model.h"

#include <nlohmann/json.hpp>

using namespace octile;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto document = parse_json(fuzz::as_text(data, size), "input");
  if (!document) {
    fuzz::require(!document.error().message.empty(), "what is no JSON has a reason");
    return 0;
  }
  static_cast<void>(describe_json(*document));
  const Expected<HfConfig> config = parse_hf_config(*document);
  if (!config) {
    fuzz::require(!config.error().message.empty(), "a config that is refused has a reason");
    return 0;
  }
  for (const std::int64_t tp : {1, 2, 3, 8, 1024}) {
    if (const auto shapes = linear_shapes(config->figures, tp)) {
      for (const LinearShape& shape : *shapes) {
        fuzz::require(shape.n > 0 && shape.k > 0, "sides are positive");
      }
    }
  }
  return 0;
}
