// SPDX-License-Identifier: Apache-2.0
// Runs the built command as a process of its own and keeps what it wrote.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace octile::cli {

// What standard output is connected to.
enum class Stdout { pipe, closed, full_device, pipe_without_reader };

struct Invocation {
  std::map<std::string, std::string> environment =
      {};  // Beside PATH, HOME and XDG_DATA_HOME, which lead to an empty folder.
  Stdout standard_output = Stdout::pipe;
  std::string directory = {};  // Working directory; empty: the test's own.
  bool stderr_is_terminal = false;
  int timeout_s = 120;
  std::string program = {};  // Another program than the command.
};
struct RunResult {
  int status = -1;  // Exit status, 128 + signal, or -1 after a timeout.
  std::string out;
  std::string err;
};

// A temporary folder a test, removed with it; and the command run so that nothing of the user's is read or written.
class CommandTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  RunResult run(const std::vector<std::string>& arguments, const Invocation& options = {}) const;
  // Expects status 0 and nothing but JSON on stdout.
  nlohmann::ordered_json run_json(const std::vector<std::string>& arguments, const Invocation& options = {}) const;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const;

  std::string folder_;
  std::map<std::string, std::string> environment_;  // Of every run, where its own says nothing else.
};

std::string read_file(const std::string& path);
// The keys of an object, in order.
std::vector<std::string> keys_of(const nlohmann::ordered_json& object);
// "{path of the sources}/tables/NVIDIA_L40S/N=4096,K=4096,...json"
std::string l40s_table(int n, int k);
std::string l40s_directory();

}  // namespace octile::cli
