// SPDX-License-Identifier: Apache-2.0
// Which files a checkpoint consists of, and that they lie in its directory.
#include "octile/model/checkpoint_files.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

namespace octile {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Whether `path` lies below `folder`; both are canonical.
bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end() && rest != path.end();
}

// The path of the file `name` of a checkpoint. The file itself may be a symbolic link, but only to within the directory, or,
// in the cache of the Hugging Face hub, whose directories REPOSITORY/snapshots/REVISION hold links to REPOSITORY/blobs, to
// there.
Expected<std::string> path_inside(const std::string& directory, const std::string& name) {
  const fs::path relative(name);
  const bool leaves = relative.is_absolute() ||
                      std::any_of(relative.begin(), relative.end(), [](const fs::path& part) { return part == ".."; });
  if (name.empty() || leaves || name.find('\0') != std::string::npos) {
    return make_error(ErrorCode::invalid_argument, "{}: wanted the name of a file in this directory, got {}", directory,
                      quote_for_message(name));
  }
  const fs::path path = fs::path(directory) / relative;
  std::error_code failed;
  const fs::path folder = fs::canonical(directory, failed);
  if (failed) {
    return make_error(ErrorCode::io, "cannot open {}: {}", directory, failed.message());
  }
  const fs::path real = fs::canonical(path, failed);
  if (failed) {
    return make_error(ErrorCode::io, "cannot open {}: {}", path.string(), failed.message());
  }
  const bool snapshot = folder.parent_path().filename() == "snapshots";
  if (!lies_in(real, folder) && !(snapshot && lies_in(real, folder.parent_path().parent_path() / "blobs"))) {
    return make_error(ErrorCode::invalid_argument,
                      "{} is a symbolic link to {}, outside of the checkpoint's directory: name that directory instead",
                      path.string(), printable_text(real.string(), 200));
  }
  return path.string();
}

bool exists(const std::string& directory, const char* name) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(fs::path(directory) / name, ignored));
}

Expected<nlohmann::ordered_json> read_json_inside(const std::string& directory, const std::string& name) {
  const auto path = path_inside(directory, name);
  if (!path) {
    return path.error();
  }
  return read_json_file(*path);
}

}  // namespace

std::string describe_place(const FoundTensor& found) {
  return format("tensor {} of {}", quote_for_message(found.tensor->name), found.file->path());
}

Expected<CheckpointFiles> CheckpointFiles::open(const std::string& directory) {
  std::error_code ignored;
  if (directory.find('\0') != std::string::npos || !fs::is_directory(directory, ignored)) {
    return make_error(ErrorCode::invalid_argument,
                      "wanted the directory of a checkpoint, with config.json and {} or {}, got {}, which is no directory",
                      kSingleFile, kIndexFile, quote_for_message(directory, 200));
  }
  CheckpointFiles files;
  files.directory_ = directory;
  auto config = read_json_inside(directory, "config.json");
  if (!config) {
    return std::move(config).error();
  }
  files.config_ = *std::move(config);
  if (exists(directory, "hf_quant_config.json")) {
    auto exported = read_json_inside(directory, "hf_quant_config.json");
    if (!exported) {
      return std::move(exported).error();
    }
    files.hf_quant_config_ = *std::move(exported);
  }
  Expected<void> opened;
  // As transformers does, which some checkpoints with both count on.
  if (exists(directory, kSingleFile)) {
    opened = files.open_one(kSingleFile);
  } else if (exists(directory, kIndexFile)) {
    opened = files.open_shards(kIndexFile);
  } else {
    opened = make_error(ErrorCode::invalid_argument, "{} holds neither {} nor {}", directory, kSingleFile, kIndexFile);
  }
  if (!opened) {
    return std::move(opened).error();
  }
  return files;
}

Expected<void> CheckpointFiles::open_one(const std::string& name) {
  const auto path = path_inside(directory_, name);
  if (!path) {
    return path.error();
  }
  auto file = SafetensorsFile::open(*path);
  if (!file) {
    return std::move(file).error();
  }
  files_.push_back(*std::move(file));
  for (const StoredTensor& tensor : files_.back().tensors()) {
    tensors_.emplace(tensor.name, FoundTensor{&files_.back(), &tensor});
  }
  return {};
}

Expected<void> CheckpointFiles::open_shards(const std::string& index_name) {
  const auto index = read_json_inside(directory_, index_name);
  if (!index) {
    return index.error();
  }
  const std::string index_path = (fs::path(directory_) / index_name).string();
  const auto map = index->is_object() ? index->find("weight_map") : index->end();
  if (map == index->end() || !map->is_object()) {
    return make_error(ErrorCode::corrupt, "{}: \"weight_map\": wanted an object of tensors and files, got {}", index_path,
                      map == index->end() ? "nothing" : describe_json(*map));
  }
  std::map<std::string, std::size_t> numbers;  // Of the shards.
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return make_error(ErrorCode::corrupt, "{}: \"weight_map\": {}: wanted the name of a file, got {}", index_path,
                        quote_for_message(tensor), describe_json(shard));
    }
    numbers.emplace(shard.get<std::string>(), numbers.size());
  }
  std::vector<std::string> names(numbers.size());
  for (const auto& [name, number] : numbers) {
    names[number] = name;
  }
  for (const std::string& name : names) {
    const auto path = path_inside(directory_, name);
    if (!path) {
      return Error{path.error().code, format("{}: {}", index_path, path.error().message)};
    }
    auto file = SafetensorsFile::open(*path);
    if (!file) {
      return std::move(file).error();
    }
    files_.push_back(*std::move(file));
  }
  for (const auto& [tensor, shard] : map->items()) {
    const SafetensorsFile& file = files_[numbers.at(shard.get<std::string>())];
    const StoredTensor* const found = file.find(tensor);
    if (found == nullptr) {
      return make_error(ErrorCode::corrupt, "{}: wanted tensor {} in {}, which does not hold it", index_path,
                        quote_for_message(tensor), file.path());
    }
    tensors_.emplace(tensor, FoundTensor{&file, found});
  }
  return {};
}

FoundTensor CheckpointFiles::find(std::string_view name) const {
  const auto found = tensors_.find(std::string(name));
  return found == tensors_.end() ? FoundTensor{} : found->second;
}

}  // namespace octile
