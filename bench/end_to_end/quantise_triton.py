# SPDX-License-Identifier: Apache-2.0
"""Per-token quantisation in one kernel, for torch's row-wise FP8: what an engine would have in its place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_LARGE_ROW = 8192


@triton.jit
def torch_quantise_rows(x, codes, scales, row_stride, k, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < k
    values = tl.load(x + row * row_stride + cols, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12) / 448.0
    tl.store(scales + row, scale)
    tl.store(codes + row * k + cols, (values / scale).to(tl.float8e4nv), mask=inside)


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [M, K] and scales [M, 1] of x [M, K]."""
    m, k = x.shape
    codes = torch.empty((m, k), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((m, 1), dtype=torch.float32, device=x.device)
    warps = 16 if k > _LARGE_ROW else 8
    torch_quantise_rows[(m,)](x, codes, scales, x.stride(0), k, BLOCK=triton.next_power_of_2(k), num_warps=warps)
    return codes, scales
