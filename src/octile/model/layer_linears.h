// SPDX-License-Identifier: Apache-2.0
// Which rows and columns of which stored weights make the linears of one rank: q, k and v fused to one, gate and up fused to
// one, each divided among the ranks before it is fused.
//
//   qkv      rows of q, k, v: the rank's heads          gate_up  rows of gate, up: the rank's share     (column-parallel)
//   o        columns: the rank's heads                  down     columns: the rank's share              (row-parallel)
#pragma once

#include "octile/model/model.h"

#include <octile/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// What a linear takes of one stored weight.
struct LinearPart {
  std::string module;         // "self_attn.q_proj"
  std::int64_t stored_n = 0;  // The whole weight [stored_n, stored_k], as config.json has it.
  std::int64_t stored_k = 0;
  std::vector<Range> rows;  // In the order of the linear.
  Range columns;
};

// A linear of a layer: its parts one below the other.
struct LinearPlan {
  std::string module;  // "self_attn.qkv_proj"
  std::string kind;    // "qkv", "q", "k", "v", "o", "gate_up", "gate", "up" or "down".
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool row_parallel = false;  // Divided along K: the ranks' results are summed.
  std::vector<LinearPart> parts;
};

struct LayerLayout {
  bool stored_qkv = false;      // q, k and v are stored as one weight, qkv_proj, and
  bool stored_gate_up = false;  // gate and up as gate_up_proj.
  bool fuse = true;             // What is stored apart becomes one.
};

// The linears of `rank` of `tp`. Errors (invalid_argument): a rank that is none, and what linear_shapes() refuses.
Expected<std::vector<LinearPlan>> plan_layer(const ModelFigures& figures, std::int64_t tp, std::int64_t rank,
                                             const LayerLayout& layout);

}  // namespace octile
