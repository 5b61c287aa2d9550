// SPDX-License-Identifier: Apache-2.0
// Finding and opening the CUTLASS component: what is missing, old or broken is a reason, not a failure.
#include "octile/kernels/cuda/cutlass_loader.h"

#include "cutlass_fake.h"
#include "octile/core/env.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <utility>

namespace octile::cuda {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CutlassLoader, SaysEveryPlaceThatWasTried) {
  const CutlassComponent component = open_cutlass({"/nonexistent/a.so", "/nonexistent/b.so"});
  EXPECT_EQ(component.api, nullptr);
  EXPECT_EQ(component.reason, "not found: /nonexistent/a.so; not found: /nonexistent/b.so");
}

TEST(CutlassLoader, ALibraryThatIsNoComponentIsAReason) {
  const CutlassComponent component = open_cutlass({OCTILE_FAKE_CUDA});
  EXPECT_EQ(component.api, nullptr);
  EXPECT_THAT(component.reason, HasSubstr(std::string(OCTILE_FAKE_CUDA) + " has no symbol octile_cutlass_api"));
}

TEST(CutlassLoader, EveryKindOfBrokenComponentIsRefusedWithWhatIsWrong) {
  const std::pair<const char*, const char*> kinds[] = {
      {"old", "want component interface 1, got 0"},
      {"small", "bytes, got 16"},
      {"without_run", "a function of its interface is missing"},
      {"bad_config", "is not described as this interface asks"},
      {"without_kernels", "kernels, got 0"},
      {"null", "gives no interface"},
  };
  for (const auto& [kind, words] : kinds) {
    const std::string path = fake_cutlass_path(kind);
    const CutlassComponent component = open_cutlass({path});
    EXPECT_EQ(component.api, nullptr) << kind;
    EXPECT_EQ(component.path, "") << kind;
    EXPECT_THAT(component.reason, AllOf(HasSubstr(path), HasSubstr(words))) << kind;
  }
}

TEST(CutlassLoader, AComponentAfterABrokenOneStillServes) {
  const CutlassComponent component = open_cutlass({fake_cutlass_path("old"), fake_cutlass_path("good")});
  ASSERT_NE(component.api, nullptr) << component.reason;
  EXPECT_EQ(component.path, fake_cutlass_path("good"));
  EXPECT_EQ(component.reason, "");
  EXPECT_STREQ(component.api->version, "4.2.0");
}

TEST(CutlassLoader, TheVariableNamesTheOnlyPlace) {
  const env::ScopedOverride file("OCTILE_CUTLASS_PATH", "/some/where/component.so");
  EXPECT_THAT(cutlass_candidates(), ElementsAre("/some/where/component.so"));
  const env::ScopedOverride directory("OCTILE_CUTLASS_PATH", OCTILE_FAKE_CUTLASS);
  EXPECT_THAT(cutlass_candidates(), ElementsAre(std::string(OCTILE_FAKE_CUTLASS) + "/liboctile_cutlass.so"));
}

TEST(CutlassLoader, LooksBesideTheProgramAndInTheBuildTree) {
  const env::ScopedOverride unset("OCTILE_CUTLASS_PATH", std::nullopt);
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  EXPECT_THAT(cutlass_candidates(), Contains((program / "liboctile_cutlass.so").string()));
  EXPECT_THAT(cutlass_candidates(), Contains(std::string(OCTILE_TEST_BINARY_DIR) + "/liboctile_cutlass.so"));
}

#ifdef OCTILE_BUILT_CUTLASS
TEST(CutlassLoader, TheBuiltComponentLoadsAndListsItsKernels) {
  const CutlassComponent component = open_cutlass({OCTILE_BUILT_CUTLASS});
  ASSERT_NE(component.api, nullptr) << component.reason;
  const OctileCutlassApi& api = *component.api;
  EXPECT_THAT(api.version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_EQ(api.kernels_for(89), OCTILE_CUTLASS_NATIVE_KERNELS);
  EXPECT_EQ(api.kernels_for(120), OCTILE_CUTLASS_NATIVE_KERNELS);
  EXPECT_EQ(api.kernels_for(90), OCTILE_CUTLASS_PTX_KERNELS);
  EXPECT_EQ(api.kernels_for(86), OCTILE_CUTLASS_NO_KERNELS);
  // The stand-in has the same list, which other tests rely on.
  ASSERT_EQ(api.config_count, good_cutlass().api->config_count);
  for (std::int32_t i = 0; i < api.config_count; ++i) {
    const OctileCutlassConfig& built = *api.config(i);
    const OctileCutlassConfig& known = *good_cutlass().api->config(i);
    EXPECT_EQ(built.tile_m, known.tile_m) << i;
    EXPECT_EQ(built.tile_n, known.tile_n) << i;
    EXPECT_EQ(built.stages, known.stages) << i;
    EXPECT_EQ(built.threads, known.threads) << i;
    EXPECT_EQ(built.precise, known.precise) << i;
    EXPECT_LE(built.shared_bytes, 101376) << i;
  }
  EXPECT_EQ(api.config(-1), nullptr);
  EXPECT_EQ(api.config(api.config_count), nullptr);
}

TEST(CutlassLoader, TheBuiltComponentRefusesProductsWithAReason) {
  const CutlassComponent component = open_cutlass({OCTILE_BUILT_CUTLASS});
  ASSERT_NE(component.api, nullptr) << component.reason;
  const OctileCutlassApi& api = *component.api;
  OctileCutlassProduct good = {};
  good.struct_bytes = sizeof(good);
  good.m = 3;
  good.n = 5;
  good.k = 32;
  good.x_stride = 32;
  good.w_stride = 32;
  good.y_stride = 5;
  EXPECT_EQ(api.can_run(0, &good), 0);
  EXPECT_EQ(api.workspace_bytes(0, &good), 0);
  const auto refusal = [&](std::int32_t index, OctileCutlassProduct product) {
    const int code = api.can_run(index, &product);
    EXPECT_LT(api.workspace_bytes(index, &product), 0);
    return code == 0 ? std::string("taken") : std::string(api.error_text(code));
  };
  OctileCutlassProduct bad = good;
  bad.k = 40;
  EXPECT_EQ(refusal(0, bad), "K must be a multiple of 16");
  bad = good;
  bad.x_stride = 40;
  EXPECT_EQ(refusal(0, bad), "rows of codes must start at multiples of 16 bytes");
  bad = good;
  bad.m = std::int64_t{1} << 31;
  EXPECT_THAT(refusal(0, bad), HasSubstr("too large"));
  bad = good;
  bad.m = 0;
  EXPECT_EQ(refusal(0, bad), "M, N and K must be at least 1");
  bad = good;
  bad.out = 3;
  EXPECT_EQ(refusal(0, bad), "unknown output type");
  bad = good;
  bad.struct_bytes = 8;
  EXPECT_THAT(refusal(0, bad), HasSubstr("smaller than this component's"));
  EXPECT_EQ(refusal(api.config_count, good), "there is no kernel of that number");
  EXPECT_NE(api.run(0, &good, nullptr, nullptr), 0) << "null pointers";
}
#endif

}  // namespace
}  // namespace octile::cuda
