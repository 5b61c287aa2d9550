// SPDX-License-Identifier: Apache-2.0
// `octile cache`: seen, limited, cleared.
#include "octile/kernels/cuda/cubin_cache.h"

#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using testing::HasSubstr;

class CacheTest : public CommandTest {
 protected:
  // Two entries of a megabyte each.
  Invocation with_two_entries() const {
    for (const char* name : {"a", "b"}) {
      EXPECT_TRUE(cuda::write_entry(path("cache/cubin"), cuda::make_cubin_key(name), {std::string(1'000'000, 'c'), ""}));
    }
    return {.environment = {{"OCTILE_CACHE_DIR", path("cache")}, {"OCTILE_CACHE_LIMIT_MB", "7"}}};
  }
};

TEST_F(CacheTest, ShowsWhatIsThereAndTheLimit) {
  const Invocation options = with_two_entries();
  const auto json = run_json({"cache", "--json"}, options);
  EXPECT_EQ(keys_of(json),
            (std::vector<std::string>{"directory", "entries", "bytes", "limit_bytes", "removed", "removed_bytes"}));
  EXPECT_EQ(json["directory"], path("cache/cubin"));
  EXPECT_EQ(json["entries"], 2);
  EXPECT_GT(json["bytes"], 2'000'000);
  EXPECT_EQ(json["limit_bytes"], 7'000'000);
  EXPECT_EQ(json["removed"], 0);
  EXPECT_THAT(run({"cache"}, options).out, testing::AllOf(HasSubstr(": 2 kernels, 2.0 MB"), HasSubstr("at most 7 MB")));
}

TEST_F(CacheTest, MakesRoomAndClears) {
  const Invocation options = with_two_entries();
  const auto limited = run_json({"cache", "--limit", "2", "--json"}, options);
  EXPECT_EQ(limited["entries"], 1);
  EXPECT_EQ(limited["removed"], 1);
  const auto cleared = run_json({"cache", "--clear", "--json"}, options);
  EXPECT_EQ(cleared["entries"], 0);
  EXPECT_EQ(cleared["removed"], 1);
  EXPECT_GT(cleared["removed_bytes"], 1'000'000);
}

TEST_F(CacheTest, WrongUseIsStatusTwo) {
  EXPECT_EQ(run({"cache", "--clear", "--limit", "2"}).status, 2);
  EXPECT_EQ(run({"cache", "--limit", "0"}).status, 2);
  EXPECT_EQ(run({"cache"}, {.environment = {{"OCTILE_CACHE_LIMIT_MB", "-1"}}}).status, 2);
}

TEST_F(CacheTest, WithoutAPlaceItSaysSo) {
  const RunResult result = run({"cache"}, {.environment = {{"HOME", ""}, {"XDG_CACHE_HOME", ""}}});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("no cache"));
}

}  // namespace
}  // namespace octile::cli
