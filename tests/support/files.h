// SPDX-License-Identifier: Apache-2.0
// Temporary directories and variables of the system for tests.
#pragma once

#include <string>
#include <string_view>

namespace octile::test {

// A fresh directory, removed with everything in it when the object dies.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;                             // The path of `name` in it.
  std::string write(std::string_view name, std::string_view content) const;  // Makes folders too; returns the path.

 private:
  std::string path_;
};

std::string read_text(const std::string& path);  // "" and a test failure where it cannot be read.

// Sets or unsets (nullptr) a variable of the process for the life of the object. For variables of the system, such as HOME;
// Octile's own have env::ScopedOverride.
class ScopedSystemVariable {
 public:
  ScopedSystemVariable(const char* name, const char* value);
  ~ScopedSystemVariable();
  ScopedSystemVariable(const ScopedSystemVariable&) = delete;
  ScopedSystemVariable& operator=(const ScopedSystemVariable&) = delete;

 private:
  std::string name_;
  std::string previous_;
  bool was_set_;
};

}  // namespace octile::test
