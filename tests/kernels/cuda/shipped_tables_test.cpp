// SPDX-License-Identifier: Apache-2.0
// The tables of our own measurements under tables/: every kernel of ours in them is legal on its device and compiles for it.
#include "octile/core/env.h"
#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/nvrtc.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/kernels/known_devices.h"
#include "octile/table/table_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace octile::cuda {
namespace {

namespace fs = std::filesystem;

std::vector<TileTable> measured_tables() {
  std::vector<TileTable> tables;
  for (const auto& file : fs::recursive_directory_iterator(std::string(OCTILE_TEST_SOURCE_DIR) + "/tables")) {
    if (!file.path().string().ends_with(".octile.json")) {
      continue;
    }
    std::vector<Finding> findings;
    auto table = read_table(file.path().string(), findings);
    if (!table || !findings.empty()) {
      ADD_FAILURE() << file.path() << (table ? ": has findings" : ": " + table.error().message);
      continue;
    }
    tables.push_back(*std::move(table));
  }
  return tables;
}

TEST(ShippedTables, AreThereAndTheirEntriesAreLegal) {
  const auto tables = measured_tables();
  EXPECT_GE(tables.size(), 4U);
  for (const TileTable& table : tables) {
    const auto device = known_device(table.key.device_name);
    ASSERT_TRUE(device) << table.file;
    Problem problem;
    problem.n = table.key.n;
    problem.k = table.key.k;
    for (const TableEntry& entry : table.entries) {
      const KernelFamily* family = find_family(entry.kernel);
      if (entry.kernel == "baseline") {
        continue;
      }
      ASSERT_NE(family, nullptr) << table.file << ": " << entry.kernel;
      const auto legal = family->check(*device, problem, entry.config);
      EXPECT_TRUE(legal) << table.file << ": " << legal.error().message;
    }
  }
}

TEST(ShippedTables, EveryKernelOfOursInThemCompilesWithoutSpills) {
  if (const auto api = nvrtc(); !api) {
    GTEST_SKIP() << api.error().message;
  }
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins");
  std::vector<CompileRequest> requests;
  std::set<std::string> seen;
  for (const TileTable& table : measured_tables()) {
    const auto device = known_device(table.key.device_name);
    ASSERT_TRUE(device);
    Problem problem;
    problem.n = table.key.n;
    problem.k = table.key.k;
    for (const TableEntry& entry : table.entries) {
      const KernelFamily* family = find_family(entry.kernel);
      if (family == nullptr || family->is_vendor()) {
        continue;
      }
      const CompileRecorder recorder(*device);
      const auto kernel = family->prepare(*device, problem, entry.config, 1);
      ASSERT_TRUE(kernel) << table.file << ": " << kernel.error().message;
      for (const CompileRequest& request : recorder.requests()) {
        std::string text = request.arch + request.source + request.kernel;
        for (const std::string& define : request.defines) {
          text += " " + define;
        }
        if (seen.insert(text).second) {
          requests.push_back(request);
        }
      }
    }
  }
  EXPECT_GE(requests.size(), 8U);
  const auto results = compile_all(requests, 2);
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i]) << requests[i].kernel << ": " << results[i].error().message;
    EXPECT_EQ(results[i]->spill_store_bytes + results[i]->spill_load_bytes, 0) << results[i]->log;
  }
}

}  // namespace
}  // namespace octile::cuda
