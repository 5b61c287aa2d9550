// SPDX-License-Identifier: Apache-2.0
// Runs a program again and again, with one more call of a group let through before one fails, until none is left to fail.
#pragma once

#include "cli/command.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace octile::test {

// What fails: a group of fault_injection.cpp, and with which errno.
struct Fault {
  std::string group;
  int error = 0;
  bool and_all_after = false;  // As on a disk that stays full.
};

// What is run. `reset` makes the state on disk as it is before the work, `check` looks at what a run left behind.
struct Work {
  std::string program = {};  // "": the command.
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment = {};
  std::function<void()> reset = [] {};
  std::function<void(const std::string& trace)> check = [](const std::string&) {};
  bool same_output = true;          // A run that succeeds always prints the same.
  std::string message = "error: ";  // What a run that fails says before its reason.
  // Status 4 stands for std::terminate(), which lack of memory may lead to inside of nlohmann's JSON and of libstdc++; it
  // may come after at most so many faults of a hundred.
  int terminates_of_hundred = 0;
  bool repeats = true;  // A run without a fault follows each.
  // For the run without a fault that follows each.
  std::vector<std::string> arguments_again = {};
};

// Which of the calls fail, one a run: from `first` on every `stride`-th, or a sample that thins out (stride 0).
struct Places {
  std::uint64_t first = 1;
  std::uint64_t stride = 0;
};

class FaultTest : public cli::CommandTest {
 protected:
  // Every run must end by itself with status 0 or 1: 1 with a message, 0 with the result of a run without a fault or with a
  // warning; and a run without a fault afterwards must succeed. Returns how many faults were injected.
  int inject(const Fault& fault, const Work& work, const Places& places = {});
  // Calls of `group` in a run without a fault.
  std::uint64_t calls_of(const std::string& group, const Work& work);

 private:
  cli::RunResult run_with(const Work& work, const std::vector<std::string>& arguments, const Fault* fault, std::uint64_t nth,
                          bool& failed);

 protected:
  void SetUp() override;
};

}  // namespace octile::test
