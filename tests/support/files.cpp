// SPDX-License-Identifier: Apache-2.0
// Temporary directories and variables of the system for tests.
#include "support/files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace octile::test {

namespace fs = std::filesystem;

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (fs::temp_directory_path() / "octile-test-XXXXXX").string();
  const char* const made = ::mkdtemp(pattern.data());
  EXPECT_NE(made, nullptr) << "cannot make " << pattern;
  path_ = made == nullptr ? "" : made;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) {
    fs::remove_all(path_, ignored);
  }
}

std::string TemporaryDirectory::file(std::string_view name) const { return (fs::path(path_) / name).string(); }

std::string TemporaryDirectory::write(std::string_view name, std::string_view content) const {
  const fs::path path = fs::path(path_) / name;
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  EXPECT_TRUE(out.good()) << "cannot write " << path;
  return path.string();
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

ScopedSystemVariable::ScopedSystemVariable(const char* name, const char* value) : name_(name) {
  const char* const old = std::getenv(name);
  was_set_ = old != nullptr;
  previous_ = was_set_ ? old : "";
  value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
}

ScopedSystemVariable::~ScopedSystemVariable() {
  was_set_ ? ::setenv(name_.c_str(), previous_.c_str(), 1) : ::unsetenv(name_.c_str());
}

}  // namespace octile::test
