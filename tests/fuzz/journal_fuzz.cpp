// SPDX-License-Identifier: Apache-2.0
// The tuner's journal: whatever a kill, a full disk or a hand left behind, what is read lies within it.
#include "fuzz/fuzz.h"
#include "octile/tune/journal.h"

using namespace octile;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const HardKeys keys{{"device_name", "Fake"}, {"kernel fake_tile", "bbbb"}};
  JournalContent content;
  std::string request;
  std::string why;
  std::size_t valid_bytes = 0;
  const std::string text(fuzz::as_text(data, size));
  if (!parse_journal(text, keys, content, request, valid_bytes, why)) {
    fuzz::require(!why.empty(), "a journal that is refused has a reason");
    return 0;
  }
  fuzz::require(valid_bytes <= size, "what is whole is no longer than the text");
  JournalContent again;
  std::size_t again_bytes = 0;
  fuzz::require(parse_journal(text.substr(0, valid_bytes), keys, again, request, again_bytes, why) &&
                    again.points.size() == content.points.size() && again.failed.size() == content.failed.size(),
                "the whole part holds all that was read");
  return 0;
}
