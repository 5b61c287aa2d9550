// SPDX-License-Identifier: Apache-2.0
// Safetensors files: every tensor of a file that opens can be read and mapped, and lies within it.
#include "fuzz/fuzz.h"
#include "octile/model/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

using namespace octile;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("octile-fuzz.safetensors", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  fuzz::require(::ftruncate(fd, 0) == 0 && ::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size), "memory for the file");
  const Expected<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) {
    fuzz::require(!file.error().message.empty(), "a file that is refused has a reason");
    return 0;
  }
  std::int64_t end = 0;
  std::vector<std::byte> bytes;
  const auto mapped = file->map();
  for (const StoredTensor& tensor : file->tensors()) {
    fuzz::require(tensor.begin == end, "tensors follow one another");
    end = tensor.begin + tensor.bytes;
    fuzz::require(end <= static_cast<std::int64_t>(size), "a tensor lies within the file");
    fuzz::require(file->find(tensor.name) == &tensor, "a tensor is found by its name");
    bytes.resize(static_cast<std::size_t>(tensor.bytes));
    fuzz::require(file->read(tensor, 0, bytes).has_value(), "a tensor can be read");
    for (std::size_t i = 0; mapped && i < bytes.size(); ++i) {
      fuzz::require((mapped->get())[static_cast<std::size_t>(tensor.begin) + i] == bytes[i], "mapped and read agree");
    }
    static_cast<void>(describe(tensor));
  }
  return 0;
}
