// SPDX-License-Identifier: Apache-2.0
// Launches of producers.cuh.
#pragma once

#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/producer.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace octile::cuda {

// How the work of a row is laid out: the defines of producers.cuh. Results do not depend on it.
struct ProducerLayout {
  unsigned threads = 0;  // Of a block.
  unsigned cluster = 1;  // Blocks of a row.
  unsigned kept = 0;     // 16-byte vectors of a row that a thread keeps in registers; 0: none, for rows of any form.

  // Whether rows of k elements can be kept.
  bool keeps(std::int64_t k) const noexcept { return k % 8 == 0 && k <= std::int64_t{8} * kept * threads * cluster; }
};

// The layouts of one producer. Few rows want a row's latency short: many threads a row. Many rows want bytes in flight: few
// threads with several vectors each. `any` serves rows that are not aligned, too; the others serve aligned rows where they
// keep k elements.
struct ProducerLayouts {
  ProducerLayout few, many, any;
};
ProducerLayouts producer_layouts(const DeviceInfo& device, ProducerKind kind, std::int64_t k);

// What one kernel is compiled from.
CompileRequest producer_request(const ProducerSpec& spec, const ProducerLayout& layout);

// Slow: compiles (or takes from the cache) and loads, copies gamma to the device. Precondition: check_producer_spec()
// passed.
Expected<std::unique_ptr<Producer>> prepare_producer(const DeviceContext& context, const ProducerSpec& spec);
// The same with layouts of the caller's, which must be legal ones of producers.cuh.
Expected<std::unique_ptr<Producer>> prepare_producer(const DeviceContext& context, const ProducerSpec& spec,
                                                     const ProducerLayouts& layouts);

}  // namespace octile::cuda
