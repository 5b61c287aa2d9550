// SPDX-License-Identifier: Apache-2.0
#include "support/safetensors_writer.h"

#include <nlohmann/json.hpp>

namespace octile::test {

std::string safetensors_of(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file.append(header).append(data);
}

std::string safetensors_file(const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    const std::size_t begin = data.size();
    data += tensor.bytes;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // As the format's own library aligns the data.
  return safetensors_of(text, data);
}

}  // namespace octile::test
