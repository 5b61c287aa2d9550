// SPDX-License-Identifier: Apache-2.0
// fork and exec, with both streams read at once so that neither can block the other.
#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

namespace octile::cli {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0) << std::strerror(errno);
  return {ends[0], ends[1]};
}

// A pseudo-terminal: the command sees a terminal, the test reads what it drew.
Pipe make_terminal() {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(master, 0) << std::strerror(errno);
  EXPECT_EQ(::grantpt(master), 0);
  EXPECT_EQ(::unlockpt(master), 0);
  std::array<char, 128> name{};
  EXPECT_EQ(::ptsname_r(master, name.data(), name.size()), 0);
  const int slave = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(slave, 0) << std::strerror(errno);
  return {master, slave};
}

void read_all(std::array<std::pair<int, std::string*>, 2> streams, std::chrono::steady_clock::time_point deadline) {
  while (streams[0].first >= 0 || streams[1].first >= 0) {
    std::array<pollfd, 2> polled{};
    for (std::size_t i = 0; i < 2; ++i) {
      polled[i] = {streams[i].first, POLLIN, 0};
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0 || ::poll(polled.data(), 2, static_cast<int>(left)) <= 0) {
      return;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (polled[i].revents == 0) {
        continue;
      }
      std::array<char, 65536> buffer{};
      const ssize_t got = ::read(streams[i].first, buffer.data(), buffer.size());
      if (got > 0) {
        streams[i].second->append(buffer.data(), static_cast<std::size_t>(got));
      } else {
        streams[i].first = -1;
      }
    }
  }
}

// In the child: connects the streams and becomes the command.
[[noreturn]] void become_command(const Invocation& options, int out, int err, char* const* argv, char* const* environment) {
  const auto connect = [](const char* device, int flags, int descriptor) {
    const int opened = ::open(device, flags);
    if (opened < 0 || ::dup2(opened, descriptor) < 0) {
      ::_exit(125);
    }
  };
  connect("/dev/null", O_RDONLY, STDIN_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (options.standard_output == Stdout::closed) {
    ::close(STDOUT_FILENO);
  } else if (options.standard_output == Stdout::full_device) {
    connect("/dev/full", O_WRONLY, STDOUT_FILENO);
  } else {
    ::dup2(out, STDOUT_FILENO);
  }
  ::close_range(3, ~0U, 0);
  if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) {
    ::_exit(126);
  }
  ::execve(argv[0], argv, environment);
  ::_exit(127);
}

}  // namespace

void CommandTest::SetUp() {
  std::string pattern = (std::filesystem::temp_directory_path() / "octile-cli-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

void CommandTest::TearDown() { std::filesystem::remove_all(folder_); }

std::string CommandTest::write(const std::string& name, const std::string& content) const {
  const std::string file = path(name);
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  std::ofstream(file, std::ios::binary) << content;
  return file;
}

RunResult CommandTest::run(const std::vector<std::string>& arguments, const Invocation& options) const {
  std::map<std::string, std::string> environment = options.environment;
  environment.emplace("HOME", path("home"));
  environment.emplace("XDG_DATA_HOME", path("home/data"));
  environment.emplace("XDG_CACHE_HOME", path("home/cache"));
  environment.insert(environment_.begin(), environment_.end());
  // The last two only matter to builds with sanitizers: CMakePresets.json.
  for (const char* name :
       {"PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "OMP_WAIT_POLICY", "UCX_MEM_EVENTS"}) {
    if (const char* value = std::getenv(name)) {
      environment.emplace(name, value);
    }
  }
  std::vector<std::string> words = {options.program.empty() ? OCTILE_TEST_COMMAND : options.program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) {
    settings.push_back(name);
    settings.back() += "=" + value;
  }
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> result;
    result.reserve(texts.size() + 1);
    for (std::string& text : texts) {
      result.push_back(text.data());
    }
    result.push_back(nullptr);
    return result;
  };
  const auto argv = pointers(words);
  const auto envp = pointers(settings);

  Pipe out = make_pipe();
  const Pipe err = options.stderr_is_terminal ? make_terminal() : make_pipe();
  if (options.standard_output == Stdout::pipe_without_reader) {
    ::close(out.read_end);
    out.read_end = -1;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    become_command(options, out.write_end, err.write_end, argv.data(), envp.data());
  }
  EXPECT_GT(child, 0) << std::strerror(errno);
  ::close(out.write_end);
  ::close(err.write_end);

  RunResult result;
  read_all({{{out.read_end, &result.out}, {err.read_end, &result.err}}},
           std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_s));
  if (out.read_end >= 0) {
    ::close(out.read_end);
  }
  ::close(err.read_end);

  // Both streams ended, or time is up: a child that still lives hangs.
  int state = 0;
  for (int i = 0; i < 5000; ++i) {
    if (::waitpid(child, &state, WNOHANG) == child) {
      result.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
      return result;
    }
    ::usleep(1000);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &state, 0);
  ADD_FAILURE() << "the command did not end within " << options.timeout_s << " s; stderr: " << result.err;
  return result;
}

nlohmann::ordered_json CommandTest::run_json(const std::vector<std::string>& arguments, const Invocation& options) const {
  const RunResult result = run(arguments, options);
  EXPECT_EQ(result.status, 0) << result.err;
  auto json = nlohmann::ordered_json::parse(result.out, nullptr, false);
  if (json.is_discarded()) {
    ADD_FAILURE() << "no JSON: " << result.out;
    return {};
  }
  return json;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    keys.push_back(key);
  }
  return keys;
}

std::string l40s_directory() { return std::string(OCTILE_TEST_SOURCE_DIR) + "/tables/NVIDIA_L40S"; }

std::string l40s_table(int n, int k) {
  return l40s_directory() + "/N=" + std::to_string(n) + ",K=" + std::to_string(k) +
         ",device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json";
}

}  // namespace octile::cli
