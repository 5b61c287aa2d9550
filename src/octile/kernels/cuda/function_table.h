// SPDX-License-Identifier: Apache-2.0
// Fills a table of function pointers from a shared library.
#pragma once

#include "octile/core/format.h"
#include "octile/kernels/cuda/library_search.h"

namespace octile::cuda {

// Sets `field` to `symbol` of `library`; the Error (unavailable) names the symbol and the file.
template <class Function>
Expected<void> resolve(const SharedLibrary& library, const char* symbol, Function*& field) {
  void* address = find_symbol(library, symbol);
  if (address == nullptr) {
    return make_error(ErrorCode::unavailable, "{} has no function {}: too old or not NVIDIA's library", library.path,
                      symbol);
  }
  field = reinterpret_cast<Function*>(address);
  return {};
}

}  // namespace octile::cuda

// Resolves one entry of an OCTILE_..._FUNCTIONS list into table.field, or returns the Error.
#define OCTILE_RESOLVE(symbol, field, signature)                           \
  if (auto resolved = resolve(library, #symbol, table.field); !resolved) { \
    return resolved.error();                                               \
  }
