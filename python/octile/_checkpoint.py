# SPDX-License-Identifier: Apache-2.0
"""The linears of a Hugging Face checkpoint, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from octile import _core
from octile._linear import Linear, Weight


class CheckpointLinear:
    """A linear of a checkpoint in host memory.

    Quantised: `codes` are the bits of e4m3 (uint8 [N, K]) and `scales` fp32 [N], those for all expanded; `values` is None.
    Otherwise `values` [N, K] are as it was trained, bf16 as its bits (uint16), and the other two are None. `bias`: fp32 [N] or
    None. The arrays are read-only: they may be the mapped file. `activation`, `static_scale`, `quantize`: as octile.Linear's.
    """

    def __init__(self, core: _core.CheckpointLinear) -> None:
        entry = core.entry
        quantized = entry.dtype == "e4m3"
        self.entry: _core.CheckpointEntry = entry
        self.name: str = entry.name
        self.shape: tuple[int, int] = entry.shape
        self.dtype: str = entry.dtype
        self.codes: np.ndarray | None = core.matrix if quantized else None
        self.scales: np.ndarray | None = core.scales
        self.values: np.ndarray | None = None if quantized else core.matrix
        self.bias: np.ndarray | None = core.bias
        self.activation: str = entry.activation
        self.static_scale: float = core.static_scale
        self.quantize: _core.QuantizeOptions = core.quantize

    def weight(self, **options: Any) -> Weight:
        """Packs it; what is not quantised is, with one scale an output channel. `options` are those of octile.Weight."""
        if self.codes is not None:
            return Weight(self.codes, self.scales, **options)
        return Weight.quantize(self.values, dtype=self.dtype, **options)

    def linear(self, *, x_dtype: Any = "bf16", max_m: int | None = None, **options: Any) -> Linear:
        """An octile.Linear of it, with its bias and its activations' scales. `options` are those of octile.Weight."""
        return Linear(
            self.weight(**options),
            self.bias,
            activation=self.activation,
            static_scale=self.static_scale,
            x_dtype=x_dtype,
            quantize=self.quantize,
            max_m=max_m,
        )

    def __repr__(self) -> str:
        return f"octile.CheckpointLinear({self.name!r}, {list(self.shape)}, dtype={self.dtype!r})"


class Checkpoint(Mapping[str, CheckpointLinear]):
    """An open checkpoint: names of linears to CheckpointLinear, layer by layer. Each look-up reads and checks the weight
    anew, without the GIL, and keeps nothing: hold one linear at a time, and memory stays at one."""

    def __init__(self, core: _core.Checkpoint) -> None:
        self._core = core
        self.entries: list[_core.CheckpointEntry] = core.entries
        self._indices = {entry.name: index for index, entry in enumerate(self.entries)}

    @property
    def quantization(self) -> str:
        """Who quantised it: "compressed-tensors", "fbgemm_fp8", "fp8", "modelopt", "quark", or "none"."""
        return self._core.quantization

    def __getitem__(self, name: str) -> CheckpointLinear:
        return CheckpointLinear(self._core.load(self._indices[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def __contains__(self, name: object) -> bool:
        return name in self._indices

    # A mapping is compared by its values, which would read both checkpoints.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"octile.Checkpoint({len(self)} linears, quantization={self.quantization!r})"


def load_checkpoint(
    path: str | os.PathLike[str], *, tp: int = 1, rank: int = 0, fuse: bool = True, mmap: bool = True
) -> Checkpoint:
    """Opens the checkpoint in directory `path`: config.json and safetensors files.

    Headers and shapes are checked here, weights are read when they are looked up. `tp`, `rank`: the share of one
    tensor-parallel rank. `fuse`: q, k, v and gate, up become one linear each. `mmap`: what lies in one piece of a file is not
    copied; without it everything is, and a file that is cut meanwhile is an error instead of a SIGBUS. Raises ValueError for
    what Octile doesn't serve, RuntimeError for files that are missing or broken.
    """
    return Checkpoint(_core.Checkpoint(os.fsdecode(path), tp=tp, rank=rank, fuse=fuse, mmap=mmap))
