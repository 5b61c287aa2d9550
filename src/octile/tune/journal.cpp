// SPDX-License-Identifier: Apache-2.0
// The tuner's journal; see journal.h.
#include "octile/tune/journal.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/tune/protocol.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

namespace octile {

using nlohmann::json;

namespace {

constexpr int kJournalFormat = 1;
// Tuners at once on one directory and device.
constexpr int kMaxJournals = 64;
// 100,000 points of 1 KiB.
constexpr std::int64_t kMaxJournalBytes = std::int64_t{128} << 20;

json to_json(const TunePoint& p) {
  return {{"shape", p.shape.name},
          {"n", p.shape.n},
          {"k", p.shape.k},
          {"m", p.m},
          {"status", static_cast<int>(p.status)},
          {"kernel", p.kernel},
          {"config", to_json(p.config)},
          {"us", p.us},
          {"baseline_us", p.baseline_us},
          {"ratio", {p.ratio, p.ratio_lo, p.ratio_hi}},
          {"rounds", p.rounds},
          {"rel_error", p.rel_error},
          {"undecided", p.undecided},
          {"worked", p.worked},
          {"conditions", to_json(p.conditions)},
          {"reason", p.reason}};
}

std::optional<TunePoint> point_from_json(const json& value) {
  TunePoint p;
  p.shape.name = json_get(value, "shape", std::string());
  p.shape.n = json_get(value, "n", std::int64_t{0});
  p.shape.k = json_get(value, "k", std::int64_t{0});
  p.m = json_get(value, "m", std::int64_t{0});
  const int status = json_get(value, "status", -1);
  const json ratio = value.is_object() ? value.value("ratio", json()) : json();
  Expected<TileConfig> config = config_from_json(value.is_object() ? value.value("config", json()) : json());
  if (p.shape.n < 1 || p.shape.k < 1 || p.m < 1 || status < 0 || status > static_cast<int>(PointStatus::failed) || !config ||
      !ratio.is_array() || ratio.size() != 3 || !ratio[0].is_number() || !ratio[1].is_number() || !ratio[2].is_number()) {
    return std::nullopt;
  }
  p.status = static_cast<PointStatus>(status);
  p.kernel = json_get(value, "kernel", std::string());
  p.config = std::move(*config);
  p.us = json_get(value, "us", 0.0);
  p.baseline_us = json_get(value, "baseline_us", 0.0);
  p.ratio = ratio[0].get<double>();
  p.ratio_lo = ratio[1].get<double>();
  p.ratio_hi = ratio[2].get<double>();
  p.rounds = json_get(value, "rounds", 0);
  p.rel_error = json_get(value, "rel_error", 0.0);
  p.undecided = json_get(value, "undecided", false);
  p.reason = json_get(value, "reason", std::string());
  p.conditions = measure_conditions_from_json(value.value("conditions", json()));
  for (const json& kernel : value.value("worked", json::array())) {
    if (kernel.is_string()) {
      p.worked.push_back(kernel.get<std::string>());
    }
  }
  p.resumed = true;
  return p;
}

json to_json(const FailedCandidate& f) {
  return {{"shape", f.shape}, {"m", f.m},          {"kernel", f.kernel}, {"config", to_json(f.config)},
          {"kind", f.kind},   {"reason", f.reason}};
}

std::optional<FailedCandidate> failed_from_json(const json& value) {
  FailedCandidate f;
  Expected<TileConfig> config = config_from_json(value.is_object() ? value.value("config", json()) : json());
  f.kernel = json_get(value, "kernel", std::string());
  if (!config || f.kernel.empty()) {
    return std::nullopt;
  }
  f.config = std::move(*config);
  f.shape = json_get(value, "shape", std::string());
  f.m = json_get(value, "m", std::int64_t{0});
  f.kind = json_get(value, "kind", std::string());
  f.reason = json_get(value, "reason", std::string());
  return f;
}

std::string line_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

// What differs between two sets of hard keys, or an empty string.
std::string difference(const HardKeys& wanted, const json& found) {
  if (!found.is_object()) {
    return "it states no hard keys";
  }
  for (const auto& [name, value] : wanted) {
    const auto there = json_get(found, name.c_str(), std::string("nothing"));
    if (there != value) {
      return format("{}: the journal has {}, this run {}", name, quote_for_message(there), quote_for_message(value));
    }
  }
  for (const auto& [name, value] : found.items()) {
    if (!wanted.contains(name)) {
      return format("{}: the journal has {}, this run nothing", name, value.dump());
    }
  }
  return {};
}

// An open, locked journal file; nullopt where another process holds it or it was replaced meanwhile.
Expected<std::optional<int>> open_locked(const std::string& path, bool create) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_APPEND | (create ? O_CREAT : 0), 0644);
  if (fd < 0) {
    if (errno == ENOENT && !create) {
      return std::optional<int>();
    }
    return make_error(ErrorCode::io, "cannot open the journal {}: {}", path, std::strerror(errno));
  }
  struct stat by_fd{};
  struct stat by_path{};
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 || ::fstat(fd, &by_fd) != 0 || ::stat(path.c_str(), &by_path) != 0 ||
      by_fd.st_ino != by_path.st_ino || by_fd.st_dev != by_path.st_dev) {
    ::close(fd);
    return std::optional<int>();
  }
  return std::optional<int>(fd);
}

Expected<void> sync_directory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ::fsync(fd) != 0) {
    const int reason = errno;
    if (fd >= 0) {
      ::close(fd);
    }
    return make_error(ErrorCode::io, "cannot sync the directory {}: {}", directory, std::strerror(reason));
  }
  ::close(fd);
  return {};
}

}  // namespace

bool parse_journal(const std::string& text, const HardKeys& hard_keys, JournalContent& content, std::string& request,
                   std::size_t& valid_bytes, std::string& why) {
  content = {};
  valid_bytes = 0;
  bool is_first = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      break;  // Torn: the process died while it wrote.
    }
    // Bounded: a journal may have been made by others.
    const Expected<json> parsed = parse_line(std::string_view(text).substr(begin, end - begin));
    const json line = parsed ? *parsed : json();
    begin = end + 1;
    if (is_first) {
      if (!line.is_object() || json_get(line, "octile_journal", 0) != kJournalFormat) {
        why = "it does not begin with the header of a journal";
        return false;
      }
      why = difference(hard_keys, line.value("hard_keys", json()));
      if (!why.empty()) {
        return false;
      }
      request = json_get(line, "request", std::string());
      is_first = false;
    } else if (line.is_object() && line.contains("point")) {
      if (std::optional<TunePoint> point = point_from_json(line["point"])) {
        content.points.push_back(std::move(*point));
      }
    } else if (line.is_object() && line.contains("failed")) {
      if (std::optional<FailedCandidate> failed = failed_from_json(line["failed"])) {
        content.failed.push_back(std::move(*failed));
      }
    }
    valid_bytes = begin;
  }
  if (is_first) {
    why = "it has no header";
  }
  return !is_first;
}

Expected<Journal> Journal::open(const std::string& directory, const std::string& device_name, const HardKeys& hard_keys,
                                const std::string& request, bool resume, JournalContent& content,
                                std::vector<std::string>& notes) {
  std::error_code made;
  std::filesystem::create_directories(directory, made);
  if (made) {
    return make_error(ErrorCode::io, "cannot make the directory {}: {}", directory, made.message());
  }
  const auto path_of = [&](int index) { return format("{}/octile-tune.{}.{}.journal", directory, device_name, index); };
  // First choice of a resumed run: a journal of the same request; second: any with these hard keys.
  for (int attempt = 0; resume && attempt < 2; ++attempt) {
    for (int index = 0; index < kMaxJournals; ++index) {
      const std::string path = path_of(index);
      Expected<std::optional<int>> fd = open_locked(path, false);
      if (!fd || !fd->has_value()) {
        continue;
      }
      Journal journal(**fd, path);
      Expected<std::string> text = read_whole_file(path, kMaxJournalBytes);
      std::string found_request;
      std::string why;
      std::size_t valid_bytes = 0;
      if (text && parse_journal(*text, hard_keys, content, found_request, valid_bytes, why) &&
          (attempt == 1 || found_request == request)) {
        if (::ftruncate(journal.fd_, static_cast<off_t>(valid_bytes)) != 0) {
          return make_error(ErrorCode::io, "cannot cut the torn end of {}: {}", path, std::strerror(errno));
        }
        notes.push_back(format("resumed from {}: {} points are there", path, content.points.size()));
        return journal;
      }
      content = {};
    }
  }
  for (int index = 0; index < kMaxJournals; ++index) {
    const std::string path = path_of(index);
    Expected<std::optional<int>> fd = open_locked(path, true);
    if (!fd) {
      return std::move(fd).error();
    }
    if (!fd->has_value()) {
      continue;  // Another tuner's.
    }
    Journal journal(**fd, path);
    Expected<std::string> text = read_whole_file(path, kMaxJournalBytes);
    if (text && !text->empty()) {
      const std::string aside = path + ".old";
      std::string found_request;
      std::string why;
      std::size_t valid_bytes = 0;
      JournalContent old;
      const bool is_ours = parse_journal(*text, hard_keys, old, found_request, valid_bytes, why);
      if (::rename(path.c_str(), aside.c_str()) != 0) {
        return make_error(ErrorCode::io, "cannot set {} aside: {}", path, std::strerror(errno));
      }
      if (!is_ours) {
        notes.push_back(format("started afresh: the journal {} cannot be resumed ({}); it is kept as {}", path, why, aside));
      } else if (!old.points.empty()) {
        notes.push_back(
            format("started afresh: the journal of an interrupted run with {} points is kept as {}; --resume would "
                   "have gone on from it",
                   old.points.size(), aside));
      }
      --index;  // The name is free now.
      continue;
    }
    const json header{{"octile_journal", kJournalFormat}, {"hard_keys", hard_keys}, {"request", request}};
    Expected<void> written = journal.append_line(line_of(header));
    if (written) {
      written = sync_directory(directory);
    }
    if (!written) {
      return std::move(written).error();
    }
    return journal;
  }
  return make_error(ErrorCode::failed, "{} tuners are at work in {} already", kMaxJournals, directory);
}

Journal::Journal(Journal&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

Journal& Journal::operator=(Journal&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

Journal::~Journal() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Expected<void> Journal::append_line(const std::string& line) {
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return make_error(ErrorCode::io, "cannot write the journal {}: {}", path_, std::strerror(errno));
    }
    written += static_cast<std::size_t>(n);
  }
  if (::fsync(fd_) != 0) {
    return make_error(ErrorCode::io, "cannot sync the journal {}: {}", path_, std::strerror(errno));
  }
  return {};
}

Expected<void> Journal::append(const TunePoint& point) { return append_line(line_of({{"point", to_json(point)}})); }
Expected<void> Journal::append(const FailedCandidate& failed) { return append_line(line_of({{"failed", to_json(failed)}})); }

Expected<void> Journal::remove() {
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    return make_error(ErrorCode::io, "cannot remove the journal {}: {}", path_, std::strerror(errno));
  }
  return {};
}

}  // namespace octile
