// SPDX-License-Identifier: Apache-2.0
// Completion scripts for bash, zsh and fish, written from the tree of commands and options; no list is kept by hand.
#include "octile/cli/app.h"
#include "octile/core/format.h"
#include "octile/model/model.h"

#include <string_view>

namespace octile::cli {
namespace {

// What can be completed for a value, from the name of its type: "{linear,gemm}" lists its words.
struct Candidates {
  std::string words;  // With blanks between them.
  bool files = false;
  bool directories = false;
};
Candidates candidates_of(const std::string& value) {
  Candidates candidates;
  if (value.size() > 2 && value.front() == '{' && value.back() == '}') {
    for (const char c : value.substr(1, value.size() - 2)) {
      candidates.words += c == ',' ? ' ' : c;
    }
  } else if (value == "MODEL") {
    candidates.files = true;
    for (const ModelPreset& preset : model_presets()) {
      candidates.words += format("{}{}", candidates.words.empty() ? "" : " ", preset.name);
    }
  }
  candidates.files = candidates.files || value == "FILE";
  candidates.directories = value == "DIR";
  return candidates;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += format("{}{}", text.empty() ? "" : " ", word);
  }
  return text;
}

std::vector<std::string> command_names(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const CommandInfo& sub : command.commands) {
    names.push_back(sub.name);
  }
  return names;
}

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string result;
  for (const char c : text) {
    result += c == from ? std::string(to) : std::string(1, c);
  }
  return result;
}

// The commands of compgen that list the candidates, as one command substitution each.
std::string bash_reply(const Candidates& candidates) {
  std::string text;
  if (!candidates.words.empty()) {
    text += format(" $(compgen -W \"{}\" -- \"$cur\")", candidates.words);
  }
  text += candidates.files ? " $(compgen -f -- \"$cur\")" : "";
  text += candidates.directories ? " $(compgen -d -- \"$cur\")" : "";
  return format("COMPREPLY=({})", text.empty() ? text : text.substr(1));
}

void bash_command(const CommandInfo& command, const std::string& path, std::string& paths, std::string& values,
                  std::string& words) {
  std::vector<std::string> options;
  for (const OptionInfo& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (option.value.empty()) {
      continue;
    }
    std::string patterns;
    for (const std::string& name : option.names) {
      patterns += format("{}\"{} {}\"", patterns.empty() ? "" : "|", path, name);
    }
    const std::string reply = bash_reply(candidates_of(option.value));
    // Where the value may be left out, the next word may be an option as well.
    values += option.value_optional ? format("    {}) [[ $cur == -* ]] || {{ {}; return; }} ;;\n", patterns, reply)
                                    : format("    {}) {}; return ;;\n", patterns, reply);
  }
  Candidates positional = candidates_of(command.positional);
  positional.words += format("{}{}", positional.words.empty() ? "" : " ", joined(command_names(command)));
  const Candidates only_options{joined(options), false, false};
  words += format("    \"{}\") if [[ $cur == -* ]]; then {}; else {}; fi ;;\n", path, bash_reply(only_options),
                  bash_reply(positional));
  for (const CommandInfo& sub : command.commands) {
    const std::string sub_path = path + " " + sub.name;
    paths += format("{}\"{}\"", paths.empty() ? "" : "|", sub_path);
    bash_command(sub, sub_path, paths, values, words);
  }
}

std::string bash_script(const CommandInfo& root) {
  std::string paths;
  std::string values;
  std::string words;
  bash_command(root, root.name, paths, values, words);
  return format(
      "# bash completion of {0}, written by `{0} completion bash`.\n"
      "_{0}() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} path={0} i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$path ${{COMP_WORDS[i]}}\" in\n"
      "    {1}) path=\"$path ${{COMP_WORDS[i]}}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path $prev\" in\n{2}  esac\n"
      "  case \"$path\" in\n{3}  esac\n"
      "}}\n"
      "complete -o filenames -F _{0} {0}\n",
      root.name, paths, values, words);
}

// A text inside single quotes and an _arguments specification, where brackets and colons have meaning.
std::string zsh_text(std::string_view text) {
  std::string result = replaced(text, '\'', "'\\''");
  result = replaced(result, '[', "(");
  result = replaced(result, ']', ")");
  return replaced(replaced(result, ':', "\\:"), '\n', " ");
}

std::string zsh_action(const std::string& value) {
  const Candidates candidates = candidates_of(value);
  if (candidates.files && !candidates.words.empty()) {
    return format("{{ compadd {}; _files }}", candidates.words);
  }
  if (!candidates.words.empty()) {
    return format("({})", candidates.words);
  }
  return candidates.files ? "_files" : candidates.directories ? "_files -/" : " ";
}

std::string zsh_functions(const CommandInfo& command, const std::string& function) {
  std::string text;
  for (const CommandInfo& sub : command.commands) {
    text += zsh_functions(sub, format("{}_{}", function, sub.name));
  }
  std::string specs;
  for (const OptionInfo& option : command.options) {
    for (const std::string& name : option.names) {
      const std::string argument = option.value.empty() ? ""
                                                        : format("{}{}:{}", option.value_optional ? "::" : ":",
                                                                 zsh_text(option.value), zsh_action(option.value));
      specs += format(" \\\n    '{}[{}]{}'", name, zsh_text(option.description), argument);
    }
  }
  if (command.commands.empty()) {
    if (!command.positional.empty()) {
      specs += format(" \\\n    '*:{}:{}'", zsh_text(command.positional), zsh_action(command.positional));
    }
    return text + format("{}() {{\n  _arguments{}\n}}\n", function, specs);
  }
  std::string names;
  std::string cases;
  for (const CommandInfo& sub : command.commands) {
    names += format("\n      '{}:{}'", sub.name, zsh_text(sub.description));
    cases += format("\n      {0}) {1}_{0} ;;", sub.name, function);
  }
  return text + format(
                    "{0}() {{\n"
                    "  local curcontext=\"$curcontext\" state line\n"
                    "  local -a commands\n"
                    "  _arguments -C{1} \\\n    '1:command:->command' '*::argument:->argument'\n"
                    "  case $state in\n"
                    "  command)\n    commands=({2}\n    )\n    _describe command commands ;;\n"
                    "  argument)\n    case $words[1] in{3}\n    esac ;;\n"
                    "  esac\n"
                    "}}\n",
                    function, specs, names, cases);
}

std::string zsh_script(const CommandInfo& root) {
  return format("#compdef {0}\n# zsh completion of {0}, written by `{0} completion zsh`.\n{1}_{0} \"$@\"\n", root.name,
                zsh_functions(root, format("_{}", root.name)));
}

std::string fish_quoted(std::string_view text) {
  return format("'{}'", replaced(replaced(replaced(text, '\\', "\\\\"), '\'', "\\'"), '\n', " "));
}

// `condition`: where in the command line this command's options and sub-commands belong.
std::string fish_lines(const std::string& root, const CommandInfo& command, const std::string& condition) {
  std::string text;
  const std::string prefix = format("complete -c {} -n {}", root, fish_quoted(condition));
  for (const OptionInfo& option : command.options) {
    text += prefix;
    for (const std::string& name : option.names) {
      text += name.starts_with("--") ? format(" -l {}", name.substr(2)) : format(" -s {}", name.substr(1));
    }
    const Candidates candidates = candidates_of(option.value);
    if (!option.value.empty() && !option.value_optional) {
      text += candidates.files || candidates.directories ? " -r -F" : " -x";
    } else if (option.value_optional) {
      text += " -F";
    }
    text += candidates.words.empty() ? "" : format(" -a {}", fish_quoted(candidates.words));
    text += format(" -d {}\n", fish_quoted(option.description));
  }
  const Candidates positional = candidates_of(command.positional);
  if (positional.files || positional.directories) {
    text += prefix + " -F\n";
  }
  if (!positional.words.empty()) {
    text += format("{} -a {}\n", prefix, fish_quoted(positional.words));
  }
  const std::string names = joined(command_names(command));
  for (const CommandInfo& sub : command.commands) {
    const std::string inside = condition == "__fish_use_subcommand" ? "" : condition + "; and ";
    const std::string before = condition == "__fish_use_subcommand"
                                   ? condition
                                   : format("{}; and not __fish_seen_subcommand_from {}", condition, names);
    text += format("complete -c {} -n {} -a {} -d {}\n", root, fish_quoted(before), sub.name, fish_quoted(sub.description));
    text += fish_lines(root, sub, format("{}__fish_seen_subcommand_from {}", inside, sub.name));
  }
  return text;
}

std::string fish_script(const CommandInfo& root) {
  return format("# fish completion of {0}, written by `{0} completion fish`.\ncomplete -c {0} -f\n{1}", root.name,
                fish_lines(root.name, root, "__fish_use_subcommand"));
}

}  // namespace

std::string completion_script(const CommandInfo& root, const std::string& shell) {
  return shell == "bash" ? bash_script(root) : shell == "zsh" ? zsh_script(root) : fish_script(root);
}

}  // namespace octile::cli
