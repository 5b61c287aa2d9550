// SPDX-License-Identifier: Apache-2.0
// Entries of the cache of kernels: what was written comes back, and one changed byte is never taken for it.
#include "fuzz/fuzz.h"
#include "octile/kernels/cuda/cubin_cache.h"

#include <fuzzer/FuzzedDataProvider.h>

using namespace octile;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const cuda::CubinKey key = cuda::make_cubin_key("sm_90a some kernel");
  static_cast<void>(cuda::decode_entry(fuzz::as_text(data, size), key));

  FuzzedDataProvider provider(data, size);
  const auto place = provider.ConsumeIntegral<std::uint32_t>();
  const auto change = provider.ConsumeIntegralInRange<std::uint8_t>(1, 255);
  const auto cut = provider.ConsumeIntegral<std::uint16_t>();
  // An entry without machine code is refused.
  const cuda::CubinEntry entry{
      "\x7f"
      "ELF" +
          provider.ConsumeRandomLengthString(),
      provider.ConsumeRandomLengthString()};
  std::string file = cuda::encode_entry(key, entry);
  const auto whole = cuda::decode_entry(file, key);
  fuzz::require(whole && whole->cubin == entry.cubin && whole->log == entry.log, "what was written comes back");
  const std::string torn = file.substr(0, cut % file.size());
  fuzz::require(!cuda::decode_entry(torn, key), "a torn entry is refused");
  file[place % file.size()] = static_cast<char>(static_cast<std::uint8_t>(file[place % file.size()]) ^ change);
  fuzz::require(!cuda::decode_entry(file, key), "a changed entry is refused");
  return 0;
}
