// SPDX-License-Identifier: Apache-2.0
// Counting and writing untuned calls, and reading them back; see untuned_log.h.
#include "octile/linear/untuned_log.h"

#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/core/log.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string_view>

namespace octile {

namespace {

using Counts = std::vector<std::pair<std::int64_t, std::uint64_t>>;

constexpr const char* kVariable = "OCTILE_UNTUNED_LOG";
// A service that runs for weeks would write the same points over and over: the pauses double, from the first to the last.
constexpr std::chrono::seconds kFirstPause{10};
constexpr std::chrono::seconds kLongestPause{1800};
// A day of a service with hundreds of points is some megabytes.
constexpr std::int64_t kMaxLogBytes = std::int64_t{256} << 20;

std::string line_of(const UntunedShape& shape, std::int64_t m, std::uint64_t count) {
  const nlohmann::ordered_json line = {
      {"device_name", shape.device_name}, {"n", shape.n},      {"k", shape.k}, {"m", m}, {"count", count},
      {"out_dtype", shape.out_dtype},     {"bias", shape.bias}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

// Appends in one write, so that lines of several processes do not mix.
Expected<void> append_to(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) {
    return make_error(ErrorCode::io, "{}: cannot be opened for appending: {}", path, std::strerror(errno));
  }
  const ssize_t written = text.empty() ? 0 : ::write(fd, text.data(), text.size());
  const int reason = errno;
  ::close(fd);
  if (written != static_cast<ssize_t>(text.size())) {
    return make_error(ErrorCode::io, "{}: wanted to append {} bytes, {} were written{}{}", path, text.size(),
                      std::max<ssize_t>(written, 0), written < 0 ? ": " : "", written < 0 ? std::strerror(reason) : "");
  }
  return {};
}

// The counters of the process and the thread that writes them.
class Recorder {
 public:
  static Recorder& instance() {
    static Recorder recorder;
    return recorder;
  }

  std::shared_ptr<UntunedCounter> counter(const std::string& path, const UntunedShape& shape) {
    const std::lock_guard lock(mutex_);
    if (path != path_) {
      if (Expected<void> writable = append_to(path, {}); !writable) {
        log_once(LogLevel::warning, path,
                 format("{}: {}; untuned calls are not recorded", kVariable, writable.error().message));
        return nullptr;
      }
      path_ = path;
    }
    std::shared_ptr<UntunedCounter>& counter = counters_[shape];
    if (counter == nullptr) {
      counter = std::make_shared<UntunedCounter>();
    }
    if (writer_ == nullptr) {
      auto writer = std::make_unique<Writer>();
      const int refused = ::pthread_create(&writer->thread, nullptr, &Recorder::write_now_and_then, writer.get());
      if (refused == 0) {
        writer_ = std::move(writer);
      } else {
        log_once(LogLevel::warning, "untuned_log.thread",
                 format("{}: no thread to write now and then: {}; what was counted is written at the end", kVariable,
                        std::strerror(refused)));
      }
    }
    return counter;
  }

  Expected<void> flush() {
    const std::lock_guard lock(mutex_);
    return flush_locked();
  }

 private:
  Recorder() {
    // A child has neither the thread nor the parent's calls.
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().start_afresh(); });
  }

  ~Recorder() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    if (writer_ != nullptr) {
      writer_->wake.notify_all();
      ::pthread_join(writer_->thread, nullptr);
    }
    // What log_once() remembers may be gone already.
    if (const Expected<void> done = flush(); !done) {
      log_message(LogLevel::warning, format("{}: {}", kVariable, done.error().message));
    }
  }

  void start_afresh() {
    // It names a thread that does not exist here, whose place in the condition variable would be waited for: left alone, in
    // reach of leak checkers.
    if (writer_ != nullptr) {
      writer_->next = left_alone_;
      left_alone_ = writer_.release();
    }
    for (const auto& [shape, counter] : counters_) {
      static_cast<void>(counter->take());
    }
    mutex_.unlock();
  }

  // The thread's whole life; it is given its writer.
  static void* write_now_and_then(void* writer) {
    instance().write_until_the_end(static_cast<Writer*>(writer)->wake);
    return nullptr;
  }

  void write_until_the_end(std::condition_variable& wake) {
    std::unique_lock lock(mutex_);
    for (std::chrono::seconds pause = kFirstPause; !ends_; pause = std::min(2 * pause, kLongestPause)) {
      wake.wait_for(lock, pause, [this] { return ends_; });
      if (ends_) {
        return;
      }
      if (const Expected<void> done = flush_locked(); !done) {
        log_once(LogLevel::warning, done.error().message, format("{}: {}", kVariable, done.error().message));
      }
    }
  }

  // Nothing that is thrown leaves: this runs on a thread of its own inside of a service.
  Expected<void> flush_locked() try {
    std::string text;
    std::map<UntunedShape, Counts> taken;
    Expected<void> done;
    try {
      for (const auto& [shape, counter] : counters_) {
        Counts& calls = taken[shape];
        calls = counter->take();
        for (const auto& [m, count] : calls) {
          text += line_of(shape, m, count);
        }
      }
      if (text.empty()) {
        return {};
      }
      done = append_to(path_, text);
    } catch (const std::bad_alloc&) {
      done = out_of_memory("no memory to write what was counted");
    }
    if (!done) {
      for (const auto& [shape, calls] : taken) {
        counters_[shape]->put_back(calls);
      }
    }
    return done;
  } catch (const std::bad_alloc&) {
    return out_of_memory("no memory to keep what was counted");
  }

  // No std::thread: what it allocates is known to the stack of its thread alone, which a child of fork() does not have, so
  // that leak checkers would find it there.
  struct Writer {
    std::condition_variable wake;
    pthread_t thread = {};
    Writer* next = nullptr;  // Of those left alone.
  };

  std::mutex mutex_;
  std::string path_;
  std::map<UntunedShape, std::shared_ptr<UntunedCounter>> counters_;
  std::unique_ptr<Writer> writer_;
  bool ends_ = false;
  static inline Writer* left_alone_ = nullptr;
};

Expected<std::int64_t> positive(const nlohmann::ordered_json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number_integer() || *found < 1 ||
      *found > std::numeric_limits<std::int64_t>::max()) {
    return make_error(ErrorCode::corrupt, "\"{}\": want a whole number from 1, got {}", name,
                      found == line.end() ? "nothing" : describe_json(*found));
  }
  return found->get<std::int64_t>();
}

// One line of a log.
Expected<UntunedPoint> point_of(std::string_view text, std::string_view name) {
  Expected<nlohmann::ordered_json> line = parse_json(text, name);
  if (!line) {
    return std::move(line).error();
  }
  if (!line->is_object()) {
    return make_error(ErrorCode::corrupt, "want an object, got {}", describe_json(*line));
  }
  UntunedPoint point;
  const auto device = line->find("device_name");
  if (device == line->end() || !device->is_string() || device->get_ref<const std::string&>().empty()) {
    return make_error(ErrorCode::corrupt, "\"device_name\": want the name of a device, got {}",
                      device == line->end() ? "nothing" : describe_json(*device));
  }
  point.shape.device_name = device->get<std::string>();
  std::int64_t count = 0;
  for (const auto& [key, target] :
       {std::pair{"n", &point.shape.n}, {"k", &point.shape.k}, {"m", &point.m}, {"count", &count}}) {
    Expected<std::int64_t> value = positive(*line, key);
    if (!value) {
      return std::move(value).error();
    }
    *target = *value;
  }
  point.count = static_cast<std::uint64_t>(count);
  // Lines that others wrote may leave out what is usual.
  const auto out_dtype = line->find("out_dtype");
  point.shape.out_dtype = out_dtype != line->end() && out_dtype->is_string() ? out_dtype->get<std::string>() : "bf16";
  const auto bias = line->find("bias");
  point.shape.bias = bias != line->end() && bias->is_boolean() && bias->get<bool>();
  return point;
}

}  // namespace

std::int64_t UntunedCounter::counted_as(std::int64_t m) noexcept {
  return m <= kEveryMUpTo ? m : std::min((m - 1) / kStep + 1, kLargest / kStep) * kStep;
}

std::size_t UntunedCounter::slot_of(std::int64_t m) noexcept {
  const std::int64_t counted = counted_as(m);
  return static_cast<std::size_t>(counted <= kEveryMUpTo ? counted - 1 : kEveryMUpTo - 1 + (counted - kEveryMUpTo) / kStep);
}

Counts UntunedCounter::take() {
  Counts calls;
  for (std::size_t slot = 0; slot < counts_.size(); ++slot) {
    if (counts_[slot].load(std::memory_order_relaxed) == 0) {
      continue;
    }
    const auto index = static_cast<std::int64_t>(slot);
    const std::int64_t m = index < kEveryMUpTo ? index + 1 : kEveryMUpTo + (index - kEveryMUpTo + 1) * kStep;
    calls.emplace_back(m, counts_[slot].exchange(0, std::memory_order_relaxed));
  }
  return calls;
}

void UntunedCounter::put_back(const Counts& calls) noexcept {
  for (const auto& [m, count] : calls) {
    counts_[slot_of(m)].fetch_add(count, std::memory_order_relaxed);
  }
}

std::shared_ptr<UntunedCounter> untuned_counter(const UntunedShape& shape) {
  const Expected<std::string> path = env::get_text(kVariable);
  return path && !path->empty() ? Recorder::instance().counter(*path, shape) : nullptr;
}

Expected<void> flush_untuned_log() { return Recorder::instance().flush(); }

Expected<UntunedLog> read_untuned_log(const std::string& path) {
  const Expected<std::string> text = read_whole_file(path, kMaxLogBytes);
  if (!text) {
    return text.error();
  }
  UntunedLog log;
  std::map<std::pair<UntunedShape, std::int64_t>, std::uint64_t> counts;
  std::int64_t unreadable = 0;
  std::string first;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t newline = text->find('\n', begin);
    const std::string_view line = std::string_view(*text).substr(begin, newline - begin);
    begin = newline == std::string::npos ? text->size() : newline + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    Expected<UntunedPoint> point = point_of(line, "the line");
    if (point) {
      counts[{std::move(point->shape), point->m}] += point->count;
    } else if (++unreadable == 1) {
      first = format("line {}: {}", number, point.error().message);
    }
  }
  if (counts.empty()) {
    return make_error(ErrorCode::corrupt, "{}: wanted lines with device_name, n, k, m and count, {}", path,
                      unreadable == 0 ? "got none" : format("could read none of {}; {}", unreadable, first));
  }
  if (unreadable > 0) {
    // A process that was killed, or a full disk, cuts a line short.
    log.notes.push_back(
        format("{}: {} of {} lines could not be read and were left out; {}", path, unreadable, number, first));
  }
  for (const auto& [key, count] : counts) {
    log.points.push_back({key.first, key.second, count});
  }
  return log;
}

}  // namespace octile
