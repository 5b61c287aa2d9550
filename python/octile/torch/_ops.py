# SPDX-License-Identifier: Apache-2.0
"""The custom operators octile::linear and the like, and the packed weights and producers that their handles stand for.

An operator's arguments are tensors and plain values, so what was packed goes by a number. Numbers are drawn at random and
never used again: a graph that outlives its weight, or was loaded in another process, finds nothing and says so, and cannot
find another weight. A module that was given a name has a number made of it, the same in every process: for graphs that are
kept in files.
"""

from __future__ import annotations

import gc
import hashlib
import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from octile import _core, _producers
from octile._linear import Linear as PackedLinear

_DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


def is_eager(*tensors: torch.Tensor) -> bool:
    """Whether a call needs no operator, which costs more than the call itself: only graphs and gradients (to be refused) do."""
    return not torch.compiler.is_compiling() and all(
        type(tensor) is torch.Tensor and not (tensor.requires_grad and torch.is_grad_enabled()) for tensor in tensors
    )


class Packed:
    """A linear that is ready for calls with tensors of `dtype` on `device`."""

    def __init__(
        self,
        linear: PackedLinear,
        dtype: torch.dtype,
        device: torch.device,
        bias: torch.Tensor | None,
        max_sms: int | None,
    ) -> None:
        self.linear = linear
        self.of_codes: PackedLinear | None = None  # The same weight for codes that come with their scales.
        self.dtype = dtype
        self.device = device
        self.n, self.k = linear.weight.shape
        self.bias = bias  # In host memory.
        self.max_sms = max_sms
        self.captured = False  # Whether a CUDA graph may hold its addresses.

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != self.dtype or x.device != self.device or x.dim() < 1 or x.shape[-1] != self.k:
            raise ValueError(
                f"x: want {self.dtype} [..., {self.k}] on {self.device}, got {x.dtype} {list(x.shape)} on {x.device}"
            )
        rows = _rows(x, self.k)
        return self._run(self.linear, rows, _DTYPE_NAMES[self.dtype], 0, x.shape[:-1])

    def prepare_codes(self, max_m: int) -> None:
        if self.of_codes is None:
            self.of_codes = PackedLinear(self.linear.weight, self.bias, activation="quantized", max_sms=self.max_sms)
        self.of_codes.prepare(max_m)

    def run_codes(self, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """Of codes [..., K] with scales [..., 1]."""
        if self.of_codes is None:
            raise RuntimeError("this octile.torch.Linear is not prepared for codes: call its prepare_codes() first")
        wanted = (*codes.shape[:-1], 1)
        if codes.dtype != torch.float8_e4m3fn or codes.device != self.device or codes.shape[-1:] != (self.k,):
            raise ValueError(
                f"codes: want float8_e4m3fn [..., {self.k}] on {self.device}, got {codes.dtype} {list(codes.shape)} on "
                f"{codes.device}"
            )
        if scales.dtype != torch.float32 or scales.device != self.device or tuple(scales.shape) != wanted:
            raise ValueError(
                f"scales: want float32 {list(wanted)} on {self.device}, got {scales.dtype} {list(scales.shape)} on "
                f"{scales.device}"
            )
        rows, scales = _rows(codes, self.k), scales.contiguous()
        return self._run(self.of_codes, rows, "e4m3", scales.data_ptr(), codes.shape[:-1])

    def _run(self, linear: PackedLinear, rows: torch.Tensor, name: str, scales: int, lead: Sequence[int]) -> torch.Tensor:
        m = rows.shape[0]
        y = torch.empty((*lead, self.n), dtype=self.dtype, device=self.device)
        workspace = nbytes = stream = 0
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream(self.device).cuda_stream
            # From torch's allocator, which knows of streams and keeps a graph's memory for the graph.
            nbytes = max(linear.workspace_bytes(m), 1)
            memory = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
            workspace = memory.data_ptr()
            self.captured = self.captured or torch.cuda.is_current_stream_capturing()
        linear._core.run(
            rows.data_ptr(),
            name,
            m,
            self.k,
            rows.stride(0) if m > 1 else self.k,
            1,
            scales,
            y.data_ptr(),
            _DTYPE_NAMES[self.dtype],
            m,
            self.n,
            self.n,
            1,
            workspace,
            nbytes,
            stream,
        )
        return y


def _rows(x: torch.Tensor, k: int) -> torch.Tensor:
    """x [..., k] as rows that are one stride apart, copied only where they are not."""
    if x.dim() == 2 and x.stride(1) == 1 and (x.stride(0) >= k or x.shape[0] == 1):
        return x
    rows = x.reshape(-1, k)
    return rows if rows.stride(1) == 1 and rows.stride(0) >= k else rows.contiguous()


class PackedProducer:
    """A producer that is ready for calls."""

    def __init__(self, producer: _producers.RmsNorm | _producers.SwiGlu) -> None:
        self.producer = producer
        self.captured = False  # Whether a CUDA graph may hold its addresses.

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if tensors[0].is_cuda:
            self.captured = self.captured or torch.cuda.is_current_stream_capturing()
        # Leading dimensions at one stride: a copy, only where they are not.
        rows = (tensor if tensor.dim() == 2 and tensor.stride(1) == 1 else tensor.contiguous() for tensor in tensors)
        return self.producer(*rows)


class Slot:
    """What a handle stands for: a module's packed weight or producer, which the module may replace."""

    def __init__(self, name: str | None = None) -> None:
        self.handle: int = secrets.randbits(_HANDLE_BITS) if name is None else handle_of(name)
        self.packed: Any = None
        with _lock:
            if name is not None:
                require_free(name)
            _slots[self.handle] = self


def handle_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> (64 - _HANDLE_BITS)


def require_free(name: str) -> None:
    """Raises where a module of this process has the name."""
    if handle_of(name) in _slots:
        gc.collect()  # What had it may be no more than garbage.
    if handle_of(name) in _slots:
        raise ValueError(f"name: another module of this process is called {name!r}")


def copied_slot(name: str | None) -> tuple[Slot, str | None]:
    """Of a copy or of what was loaded: its name where nothing else here has it, else none."""
    try:
        return Slot(name), name
    except ValueError:
        return Slot(), None


_HANDLE_BITS = 62
_lock = threading.RLock()
_slots: weakref.WeakValueDictionary[int, Slot] = weakref.WeakValueDictionary()


def _find(handle: int) -> Any:
    slot = _slots.get(handle)
    if slot is None or slot.packed is None:
        raise RuntimeError(
            f"octile: no packed weight has the handle {handle} in this process: the module it belonged to is gone, "
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


@torch.library.custom_op("octile::linear_of_codes", mutates_args=())
def linear_of_codes(codes: torch.Tensor, scales: torch.Tensor, handle: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    """y [..., n] of codes [..., K] with scales [..., 1]."""
    return _find(handle).run_codes(codes, scales)


@linear_of_codes.register_fake
def _linear_of_codes_fake(codes: torch.Tensor, scales: torch.Tensor, handle: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    return codes.new_empty((*codes.shape[:-1], n), dtype=dtype)


def _fake_rows(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    codes = x.new_empty((*x.shape[:-1], _core.codes_row_stride(k)), dtype=torch.float8_e4m3fn)[..., :k]
    return codes, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


@torch.library.custom_op("octile::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor, handle: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of the norm of x [..., k]."""
    return _find(handle)(x)


@rms_norm.register_fake
def _rms_norm_fake(x: torch.Tensor, handle: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _fake_rows(x, k)


@torch.library.custom_op("octile::add_rms_norm", mutates_args=())
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, handle: int, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes and scales of the norm of x + residual, and that sum."""
    return _find(handle)(x, residual)


@add_rms_norm.register_fake
def _add_rms_norm_fake(
    x: torch.Tensor, residual: torch.Tensor, handle: int, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return *_fake_rows(x, k), x.new_empty(x.shape)


@torch.library.custom_op("octile::swiglu", mutates_args=())
def swiglu(gate_up: torch.Tensor, handle: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of silu(gate) * up of gate_up [..., 2 k]."""
    return _find(handle)(gate_up)


@swiglu.register_fake
def _swiglu_fake(gate_up: torch.Tensor, handle: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _fake_rows(gate_up, k)
