// SPDX-License-Identifier: Apache-2.0
// The tuner's journal: one JSON object a line, appended and fsynced point by point, so that a kill at any moment loses at
// most the point being measured. It lies in the tables directory under a name that no table loader takes for a table.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/tune.h"

#include <map>
#include <string>
#include <vector>

namespace octile {

// What must agree for a journal's points to count in a run, by name: device, problem, version, source hash of each family.
using HardKeys = std::map<std::string, std::string>;

struct JournalContent {
  std::vector<TunePoint> points;
  std::vector<FailedCandidate> failed;
};

class Journal {
 public:
  // Opens a journal in `directory` (made where it is missing) and holds a lock on it, so that a second tuner takes another
  // file. resume: goes on from one whose hard keys are these, preferably of the same `request` (any text that names shapes
  // and M); what it holds goes to `content`. Journals of other hard keys, and all where resume is not set, are set aside
  // under another name; `notes` says so. Errors (io): the directory or the file cannot be written.
  static Expected<Journal> open(const std::string& directory, const std::string& device_name, const HardKeys& hard_keys,
                                const std::string& request, bool resume, JournalContent& content,
                                std::vector<std::string>& notes);
  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&& other) noexcept;
  ~Journal();  // Leaves the file.

  // On disk when it returns.
  Expected<void> append(const TunePoint& point);
  Expected<void> append(const FailedCandidate& failed);
  // The run is complete and its tables are written.
  Expected<void> remove();
  const std::string& path() const noexcept { return path_; }

 private:
  Journal(int fd, std::string path) noexcept : fd_(fd), path_(std::move(path)) {}
  Expected<void> append_line(const std::string& line);

  int fd_ = -1;
  std::string path_;
};

// The readable part of a journal's text. A torn last line is left out; `valid_bytes` receives the length of what is whole.
// False where the text does not begin with a journal's header of exactly these hard keys; `why` then names the difference.
bool parse_journal(const std::string& text, const HardKeys& hard_keys, JournalContent& content, std::string& request,
                   std::size_t& valid_bytes, std::string& why);

}  // namespace octile
