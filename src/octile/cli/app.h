// SPDX-License-Identifier: Apache-2.0
// The tree of commands and options, and its plain description from which shell completion is written.
#pragma once

#include <string>
#include <vector>

namespace octile::cli {

struct OptionInfo {
  std::vector<std::string> names;  // "--json", "-h".
  std::string value;               // "" for a flag; else what it takes: "FILE", "DIR", "MODEL", "{linear,gemm}", ...
  bool value_optional = false;     // "--json [FILE]".
  std::string description;
};
struct CommandInfo {
  std::string name;
  std::string description;
  std::vector<OptionInfo> options;
  std::string positional;  // What its positional arguments are: "FILE", "DIR", "{bash,zsh,fish}"; "" for none.
  std::vector<CommandInfo> commands;
};

// The whole command; argv as main() gets it. Returns the exit status.
int run_app(int argc, char** argv);

// A script for "bash", "zsh" or "fish".
std::string completion_script(const CommandInfo& root, const std::string& shell);

}  // namespace octile::cli
