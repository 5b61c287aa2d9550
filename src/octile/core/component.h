// SPDX-License-Identifier: Apache-2.0
// Components: shared libraries of this project that are built against a vendor's library and opened at run time. A missing
// or broken component is a reason to print, never an error of the caller.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// Where the component `file` is looked for, in order: `variable` of the environment registry alone where it is set (a file,
// or the folder that holds it), else beside liboctile.so or the executable, in the folder `octile` of the library folder, in
// the build tree.
std::vector<std::string> component_candidates(std::string_view variable, std::string_view file);

struct Component {
  std::string path;    // Of the file that was opened; "" where none was.
  std::string reason;  // Why it is unavailable: every place that was tried, and what came of it. "" where it is available.
};

// Given the address of the entry symbol and the file: "" to take the component, or why it cannot serve.
using AcceptComponent = std::function<std::string(void* entry, const std::string& path)>;

// Opens the first candidate that exists, loads and is accepted, and never closes it.
Component open_component(const std::vector<std::string>& candidates, const char* entry_symbol,
                         const AcceptComponent& accept);

// A component with the interface that its entry gives; nullptr where it is unavailable.
template <class Api>
struct OpenedComponent : Component {
  const Api* api = nullptr;
};

// open_component() for an entry `const Api* entry()`; `problem_of` says why an interface (nullptr: none) cannot serve, "" to
// take it.
template <class Api>
OpenedComponent<Api> open_component_api(const std::vector<std::string>& candidates, const char* entry_symbol,
                                        std::string (*problem_of)(const Api* api, const std::string& path)) {
  OpenedComponent<Api> opened;
  static_cast<Component&>(opened) = open_component(candidates, entry_symbol, [&](void* entry, const std::string& path) {
    const Api* api = reinterpret_cast<const Api* (*)()>(entry)();
    std::string problem = problem_of(api, path);
    opened.api = problem.empty() ? api : nullptr;
    return problem;
  });
  return opened;
}

}  // namespace octile
