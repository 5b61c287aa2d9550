// SPDX-License-Identifier: Apache-2.0
// Compilation of device sources with NVRTC and the cache in front of it; needs no GPU.
#include "octile/kernels/cuda/compile.h"

#include "octile/core/cores.h"
#include "octile/core/env.h"
#include "octile/core/log.h"
#include "octile/kernels/cuda/cubin_cache.h"
#include "octile/kernels/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace octile::cuda {
namespace fs = std::filesystem;
namespace {

using testing::HasSubstr;

std::mutex logged_mutex;
std::vector<std::string> logged;

class Compile : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto api = nvrtc(); !api) {
      GTEST_SKIP() << api.error().message;
    }
    std::string pattern = (fs::temp_directory_path() / "octile_compile_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    cache_.emplace("OCTILE_CACHE_DIR", directory_);
    logged.clear();
    previous_ = set_log_sink([](LogLevel, std::string_view message) {
      const std::lock_guard lock(logged_mutex);
      logged.emplace_back(message);
    });
  }
  void TearDown() override {
    if (!directory_.empty()) {
      set_log_sink(previous_);
      fs::remove_all(directory_);
    }
  }

  std::vector<fs::path> entries() const {
    std::vector<fs::path> result;
    if (fs::exists(directory_ + "/cubin")) {
      for (const auto& entry : fs::directory_iterator(directory_ + "/cubin")) {
        result.push_back(entry.path());
      }
    }
    return result;
  }

  std::string directory_;
  std::optional<env::ScopedOverride> cache_;
  LogSink previous_ = nullptr;
};

CompileRequest request(const std::string& arch = "sm_90a", const std::string& define = "OUT=0") {
  return {arch, "vendor_epilogue.cuh", {define}, "octile_vendor_epilogue"};
}

TEST_F(Compile, GivesMachineCodeAndTheCompilersReport) {
  const auto compiled = compile(request());
  ASSERT_TRUE(compiled) << compiled.error().message;
  ASSERT_GT(compiled->cubin.size(), 64U);
  EXPECT_EQ(static_cast<char>(compiled->cubin[1]), 'E') << "a cubin is an ELF file";
  EXPECT_GT(compiled->registers, 0);
  EXPECT_LE(compiled->registers, 255);
  EXPECT_EQ(compiled->spill_store_bytes, 0);
  EXPECT_EQ(compiled->spill_load_bytes, 0);
  EXPECT_THAT(compiled->log, HasSubstr("octile_vendor_epilogue"));
  EXPECT_FALSE(compiled->from_cache);
}

TEST_F(Compile, TakesTheSecondFromTheCacheWithTheSameReport) {
  const auto first = compile(request());
  const auto second = compile(request());
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(second->from_cache);
  EXPECT_EQ(second->cubin, first->cubin);
  EXPECT_EQ(second->registers, first->registers);
  EXPECT_EQ(entries().size(), 1U);
}

TEST_F(Compile, KeepsArchitecturesAndDefinesApart) {
  for (const char* arch : {"sm_89", "sm_90a", "sm_120"}) {
    for (const char* define : {"OUT=0", "OUT=1", "OUT=2"}) {
      const auto compiled = compile(request(arch, define));
      ASSERT_TRUE(compiled) << arch << " " << define << ": " << compiled.error().message;
      EXPECT_FALSE(compiled->from_cache) << arch << " " << define;
    }
  }
  EXPECT_EQ(entries().size(), 9U);
}

TEST_F(Compile, ReplacesAnEntryThatWasAlteredAndSaysSo) {
  const auto first = compile(request());
  ASSERT_TRUE(first);
  ASSERT_EQ(entries().size(), 1U);
  const fs::path entry = entries().front();
  for (const std::string& damage : {std::string("truncated"), std::string("altered"), std::string("empty")}) {
    if (damage == "truncated") {
      fs::resize_file(entry, fs::file_size(entry) / 2);
    } else if (damage == "altered") {
      std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(fs::file_size(entry) / 3));
      file.put('\x5A');
      file.put('\xA5');
    } else {
      fs::resize_file(entry, 0);
    }
    const auto again = compile(request());
    ASSERT_TRUE(again) << damage << ": " << again.error().message;
    EXPECT_FALSE(again->from_cache) << damage;
    const auto cached = compile(request());
    ASSERT_TRUE(cached);
    EXPECT_TRUE(cached->from_cache) << damage << ": the entry was not replaced";
    EXPECT_EQ(cached->cubin, again->cubin);
  }
  EXPECT_THAT(logged, testing::Contains(HasSubstr(entry.string())));
}

TEST_F(Compile, WorksWithoutACacheThatCannotBeWrittenAndSaysSoOnce) {
  const std::string blocked = directory_ + "/file";
  std::ofstream(blocked) << "x";
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", blocked);
  for (const char* define : {"OUT=0", "OUT=1"}) {
    const auto compiled = compile(request("sm_90a", define));
    ASSERT_TRUE(compiled) << compiled.error().message;
    EXPECT_FALSE(compiled->from_cache);
  }
  const auto about_writing = std::ranges::count_if(
      logged, [](const std::string& message) { return message.find("going on without it") != std::string::npos; });
  // Once a process: another test of this process may have said it already.
  EXPECT_LE(about_writing, 1);
}

TEST_F(Compile, RefusesWhatCannotBeCompiledWithTheReason) {
  CompileRequest bad = request();
  bad.source = "absent.cuh";
  const auto no_source = compile(bad);
  ASSERT_FALSE(no_source);
  EXPECT_EQ(no_source.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(no_source.error().message, testing::AllOf(HasSubstr("absent.cuh"), HasSubstr("vendor_epilogue.cuh")));

  bad = request();
  bad.kernel = "not_in_there";
  const auto no_kernel = compile(bad);
  ASSERT_FALSE(no_kernel);
  EXPECT_THAT(no_kernel.error().message, HasSubstr("not_in_there"));

  for (const char* arch : {"", "90", "compute_90", "sm_"}) {
    const auto no_arch = compile(request(arch));
    ASSERT_FALSE(no_arch) << arch;
    EXPECT_EQ(no_arch.error().code, ErrorCode::invalid_argument) << no_arch.error().message;
  }
  const auto unknown_arch = compile(request("sm_999"));
  ASSERT_FALSE(unknown_arch);
  EXPECT_EQ(unknown_arch.error().code, ErrorCode::unavailable) << unknown_arch.error().message;
  EXPECT_TRUE(entries().empty()) << "a failure was cached";
}

TEST_F(Compile, PrintsTheCompilersLogWhereTheSourceDoesNotCompile) {
  const auto failed = compile(request("sm_90a", "OUT=syntax("));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::failed);
  EXPECT_THAT(failed.error().message, testing::AllOf(HasSubstr("vendor_epilogue.cuh"), HasSubstr("error")));
}

TEST_F(Compile, GivesManyResultsInTheOrderOfTheRequests) {
  std::vector<CompileRequest> requests;
  for (const char* arch : {"sm_89", "sm_90a", "sm_120"}) {
    for (const char* define : {"OUT=0", "OUT=1", "OUT=2"}) {
      requests.push_back(request(arch, define));
    }
  }
  requests[4].kernel = "absent";
  const auto results = compile_all(requests, 4);
  ASSERT_EQ(results.size(), requests.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].has_value(), i != 4) << i;
    if (results[i]) {
      EXPECT_EQ(results[i]->arch, requests[i].arch) << i;
    }
  }
  EXPECT_TRUE(compile_all({}).empty());
}

TEST_F(Compile, SaysOfEachOfManyOnceThatItIsThrough) {
  std::vector<CompileRequest> requests = {request("sm_89"), request("sm_90a"), request("sm_90a"), request("sm_120")};
  requests[1].kernel = "absent";
  std::vector<std::size_t> done;
  static_cast<void>(compile_all(requests, 2, [&](std::size_t i) { done.push_back(i); }));
  EXPECT_THAT(done, testing::UnorderedElementsAre(0, 1, 2, 3));
}

TEST_F(Compile, KnowsWhatIsCompiledByWhatIsInTheCacheOrExported) {
  const CompileRequest wanted = request("sm_90a");
  EXPECT_FALSE(is_compiled(wanted));
  ASSERT_TRUE(compile(wanted));
  EXPECT_TRUE(is_compiled(wanted));
  EXPECT_FALSE(is_compiled(request("sm_89")));
  EXPECT_FALSE(is_compiled({"sm_90a", "absent.cuh", {}, "absent"}));
  const std::vector<CompileRequest> requests = {wanted};
  const std::string exported = directory_ + "/exported";
  ASSERT_TRUE(export_cubins(requests, exported));
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", directory_ + "/empty");
  EXPECT_FALSE(is_compiled(wanted));
  const env::ScopedOverride path("OCTILE_CUBIN_PATH", exported);
  EXPECT_TRUE(is_compiled(wanted));
}

TEST(CompileThreads, AreAsManyAsTheCoresButThoseToSpare) {
  EXPECT_EQ(compile_threads_within(16, 0), 16);
  EXPECT_EQ(compile_threads_within(16, 1), 15);
  EXPECT_EQ(compile_threads_within(16, 8), 8);
  EXPECT_EQ(compile_threads_within(16, 100), 8) << "half of them compile in any case";
  EXPECT_EQ(compile_threads_within(2, 1), 1);
  EXPECT_EQ(compile_threads_within(1, 1), 1);
  EXPECT_EQ(compile_threads_within(192, 2), 64) << "no more at once";
  EXPECT_EQ(compile_threads_within(0, 0), 1) << "a number of cores that nobody knows";
  EXPECT_EQ(compile_threads_within(16, -3), 16);
}

TEST(CompileThreads, FollowTheAffinityMask) {
  int seen = 0;
  std::thread([&] {  // A thread of its own, whose mask dies with it.
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(affinity_cpus().front(), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    seen = compile_threads();
  })
      .join();
  EXPECT_EQ(seen, 1);
}

TEST_F(Compile, ServesExportedCubinsBeforeTheCache) {
  const std::vector<CompileRequest> requests = {request("sm_90a"), request("sm_89"), request("sm_90a")};
  const std::string exported = directory_ + "/exported";
  const auto written = export_cubins(requests, exported);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(*written, 2) << "equal requests are one file";
  const env::ScopedOverride path("OCTILE_CUBIN_PATH", exported);
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", directory_ + "/empty");
  const auto served = compile(requests[1]);
  ASSERT_TRUE(served) << served.error().message;
  EXPECT_TRUE(served->from_cache);
  EXPECT_GT(served->registers, 0);
  EXPECT_FALSE(fs::exists(directory_ + "/empty")) << "nothing was compiled";
  const auto other = compile(request("sm_89", "OUT=2"));
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->from_cache) << "what was not exported is compiled";
}

TEST_F(Compile, GivesPtxWithTheInstructionsOfTheArchitecture) {
  const auto ptx = compile_to_ptx(request("sm_90a", "OUT=0"));
  ASSERT_TRUE(ptx) << ptx.error().message;
  EXPECT_THAT(*ptx, testing::AllOf(HasSubstr(".target sm_90a"), HasSubstr("cvt.rn.bf16.f32")));
}

TEST(CompileArch, AddsTheSuffixWhereAnArchitectureHasInstructionsOfItsOwn) {
  EXPECT_EQ(compile_arch("sm_89"), "sm_89");
  EXPECT_EQ(compile_arch("sm_90"), "sm_90a");
  EXPECT_EQ(compile_arch("sm_100"), "sm_100a");
  EXPECT_EQ(compile_arch("sm_120"), "sm_120");
}

TEST(EmbeddedSources, EachIncludesOnlyEmbeddedOnesAndHasAHashOfItsOwn) {
  std::vector<std::string> hashes;
  ASSERT_FALSE(device_sources().empty());
  for (const DeviceSource& source : device_sources()) {
    hashes.push_back(source_hash(source.name));
    EXPECT_EQ(hashes.back().size(), 32U) << source.name << " includes something that is not embedded";
    EXPECT_EQ(source.text.find("#include <"), std::string_view::npos) << source.name;
  }
  std::ranges::sort(hashes);
  EXPECT_EQ(std::ranges::adjacent_find(hashes), hashes.end());
  EXPECT_EQ(source_hash("absent.cuh"), "");
}

TEST_F(Compile, ATextOfTheCallersIncludesEmbeddedSourcesAndIsNotCached) {
  const auto compiled = compile_text({"sm_90a", "mine", {"WORD=7"}, "mine"},
                                     "#include \"ptx.cuh\"\nextern \"C\" __global__ void mine(u32* out) { *out = WORD; }");
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_FALSE(compiled->cubin.empty());
  EXPECT_GT(compiled->registers, 0);
  EXPECT_TRUE(entries().empty());
  const auto wrong = compile_text({"sm_90a", "mine", {}, "other"}, "extern \"C\" __global__ void mine() {}");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("mine has no extern \"C\" __global__ function 'other'"));
}

}  // namespace
}  // namespace octile::cuda
