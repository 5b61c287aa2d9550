# SPDX-License-Identifier: Apache-2.0
"""The custom operator octile::linear, and the packed weights that its handles stand for.

An operator's arguments are tensors and plain values, so a packed weight goes by a number. Numbers are drawn at random and
never used again: a graph that outlives its weight, or was loaded in another process, finds nothing and says so, and cannot
find another weight.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Sequence

import torch

from octile._linear import Linear as PackedLinear

_DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class Packed:
    """A linear that is ready for calls with tensors of `dtype` on `device`."""

    def __init__(self, linear: PackedLinear, dtype: torch.dtype, device: torch.device, has_bias: bool) -> None:
        self.linear = linear
        self.dtype = dtype
        self.device = device
        self.n, self.k = linear.weight.shape
        self.has_bias = has_bias
        self.captured = False  # Whether a CUDA graph may hold its addresses.

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != self.dtype or x.device != self.device or x.dim() < 1 or x.shape[-1] != self.k:
            raise ValueError(
                f"x: want {self.dtype} [..., {self.k}] on {self.device}, got {x.dtype} {list(x.shape)} on {x.device}"
            )
        if x.dim() == 2 and x.stride(1) == 1 and (x.stride(0) >= self.k or x.shape[0] == 1):
            rows = x
        else:
            rows = x.reshape(-1, self.k)
            if rows.stride(1) != 1 or rows.stride(0) < self.k:
                rows = rows.contiguous()
        m = rows.shape[0]
        y = torch.empty((*x.shape[:-1], self.n), dtype=self.dtype, device=self.device)
        name = _DTYPE_NAMES[self.dtype]
        workspace = nbytes = stream = 0
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream(self.device).cuda_stream
            # From torch's allocator, which knows of streams and keeps a graph's memory for the graph.
            nbytes = max(self.linear.workspace_bytes(m), 1)
            memory = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
            workspace = memory.data_ptr()
            self.captured = self.captured or torch.cuda.is_current_stream_capturing()
        self.linear._core.run(
            rows.data_ptr(),
            name,
            m,
            self.k,
            rows.stride(0) if m > 1 else self.k,
            1,
            0,
            y.data_ptr(),
            name,
            m,
            self.n,
            self.n,
            1,
            workspace,
            nbytes,
            stream,
        )
        return y


class Slot:
    """What a handle stands for: a module's packed weight, which the module may replace."""

    def __init__(self) -> None:
        self.handle: int = secrets.randbits(62)
        self.packed: Packed | None = None
        _slots[self.handle] = self


_slots: weakref.WeakValueDictionary[int, Slot] = weakref.WeakValueDictionary()


def _find(handle: int) -> Packed:
    slot = _slots.get(handle)
    if slot is None or slot.packed is None:
        raise RuntimeError(
            f"octile::linear: no packed weight has the handle {handle} in this process: the module it belonged to is gone, "
            "or the graph was made in another process; compile or export the model here, and keep it as long as the graph"
        )
    return slot.packed


@torch.library.custom_op("octile::linear", mutates_args=())
def linear(x: torch.Tensor, handle: int, n: int) -> torch.Tensor:
    """y [..., n] of x [..., K] with the packed weight of `handle`."""
    return _find(handle)(x)


@linear.register_fake
def _linear_fake(x: torch.Tensor, handle: int, n: int) -> torch.Tensor:
    shape: Sequence[int | torch.SymInt] = (*x.shape[:-1], n)
    return x.new_empty(shape)
