// SPDX-License-Identifier: Apache-2.0
// RMSNorm and SwiGLU on a CPU, by the rows of quant/producers.h.
#pragma once

#include "octile/kernels/producer.h"

#include <memory>

namespace octile::cpu {

// Precondition: check_producer_spec() passed.
std::unique_ptr<Producer> make_producer(const ProducerSpec& spec);

}  // namespace octile::cpu
