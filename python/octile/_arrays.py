# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries as the library reads them: an address, a dtype by name, shape, strides and device.

numpy knows neither bf16 nor e4m3: they come as arrays of the package ml_dtypes, or as uint16 and uint8 with their dtype
named. Tensors of torch are asked for their address, all others come by the buffer protocol or DLPack. Nothing is copied.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from octile import _core

# Names that numpy's dtypes and torch's have for what the library calls by the name on the right.
_NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float8_e4m3fn": "e4m3",
    "float8_e4m3fnuz": "e4m3fnuz",
}
# Bytes of an element.
SIZES = {"bf16": 2, "fp16": 2, "fp32": 4, "e4m3": 1, "e4m3fnuz": 1}
# Integers that may hold the bits of a dtype.
_BITS = {"uint8": ("e4m3", "e4m3fnuz"), "uint16": ("bf16", "fp16")}
# Numpy's dtype that holds a dtype's bits.
_STORAGE: dict[str, Any] = {"bf16": np.uint16, "fp16": np.float16, "fp32": np.float32, "e4m3": np.uint8, "e4m3fnuz": np.uint8}

_DLPACK_CPU = (1, 3)  # Ordinary memory, and memory that CUDA has pinned.
_DLPACK_CUDA = (2, 13)  # Device memory, and memory that CUDA manages.
_LEGACY_DEFAULT_STREAM = 1  # DLPack's number for CUDA's stream 0.


@dataclass(slots=True)
class Array:
    """What an argument looks like. `owner` keeps its memory alive; `source` is the argument itself."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # In elements.
    device: str  # "cpu", "cuda:0".
    kind: str  # "numpy", "torch" or "dlpack".
    owner: Any
    source: Any


def torch_module() -> Any:
    """torch where the process has imported it, else None: a tensor cannot exist before."""
    return sys.modules.get("torch")


def is_torch(value: Any) -> bool:
    torch = torch_module()
    return torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)


def dtype_name(dtype: Any) -> str:
    """The library's name for "bf16", numpy.float16, ml_dtypes.bfloat16, torch.bfloat16, ..."""
    if isinstance(dtype, str) or dtype is None:
        name = str(dtype)  # numpy takes None for float64.
    elif torch_module() is not None and isinstance(dtype, getattr(torch_module(), "dtype", ())):
        name = str(dtype).removeprefix("torch.")
    else:
        name = np.dtype(dtype).name
    return _NAMES.get(name, name)


def read(value: Any, name: str, *, dtype: Any = None, stream: int | None = None, writable: bool = False) -> Array:
    """`value` as an Array. `dtype` says what uint8 or uint16 elements hold; where the dtype is known it must agree.

    `stream`: the CUDA stream that the work will run on; memory of a GPU is made ready for it by its owner.
    """
    array = _read_torch(value, name) if is_torch(value) else _read_other(value, name, stream, writable)
    if dtype is not None:
        wanted = dtype_name(dtype)
        if wanted not in SIZES:
            raise ValueError(f"{name}: want dtype one of {', '.join(SIZES)}, got {dtype!r}")
        if wanted in _BITS.get(array.dtype, ()):
            array.dtype = wanted
        elif wanted != array.dtype:
            raise ValueError(f"{name}: dtype={wanted} is given, but the array's elements are {array.dtype}")
    return array


def _read_torch(value: Any, name: str) -> Array:
    torch = torch_module()
    if value.layout != torch.strided or value.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name}: want a dense tensor on a cpu or cuda device, got {value.layout} on {value.device}")
    if value.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: has no gradient here: call under torch.no_grad(), or detach() the tensor")
    if value.is_neg():
        raise ValueError(f"{name}: is a lazily negated view: resolve_neg() it")
    return Array(
        value.data_ptr(), dtype_name(value.dtype), tuple(value.shape), value.stride(), device_of(value), "torch", value, value
    )


def _read_other(value: Any, name: str, stream: int | None, writable: bool) -> Array:
    if isinstance(value, np.ndarray):
        # numpy's buffers and capsules know no dtype of ml_dtypes.
        named = _NAMES.get(value.dtype.name)
        # A type that a package has added to numpy's own.
        custom = named if named is not None and value.dtype.isbuiltin == 2 else None
        plain = value.dtype.isbuiltin == 1 and value.dtype.kind in "fiu"
        if not (custom or plain) or not value.flags.aligned:
            raise ValueError(
                f"{name}: want bf16, fp16, fp32 or e4m3 (or their bits), aligned and in the machine's byte order, "
                f"got dtype {value.dtype}, {'aligned' if value.flags.aligned else 'not aligned'}"
            )
        view = value.view(_STORAGE[custom]) if custom else value
        memory = _core.Array(view, name, writable)
        dtype = custom or memory.dtype
        return Array(memory.pointer, dtype, memory.shape, memory.strides, "cpu", "numpy", memory, value)
    memory = _core.Array(_capsule(value, stream), name, writable)
    return Array(
        memory.pointer,
        memory.dtype,
        memory.shape,
        memory.strides,
        _device_of(memory.device_type, memory.device_id, name),
        "dlpack",
        memory,
        value,
    )


def _capsule(value: Any, stream: int | None) -> Any:
    """A DLPack capsule that is ready for `stream`; `value` itself where it lies in ordinary memory or speaks no DLPack."""
    device = getattr(value, "__dlpack_device__", None)
    if device is None or int(device()[0]) not in _DLPACK_CUDA:
        return value
    ready_for = stream or _LEGACY_DEFAULT_STREAM
    try:
        return value.__dlpack__(stream=ready_for, max_version=(1, 1))
    except TypeError:  # Of a library that is older than DLPack 1.0.
        return value.__dlpack__(stream=ready_for)


def _device_of(device_type: int, device_id: int, name: str) -> str:
    if device_type in _DLPACK_CPU:
        return "cpu"
    if device_type in _DLPACK_CUDA:
        return f"cuda:{device_id}"
    raise ValueError(f"{name}: want memory of a CPU or of CUDA, got DLPack's device type {device_type}")


def matrix(array: Array, name: str, columns: int | None = None) -> tuple[int, int, int, int]:
    """(rows, cols, row stride, column stride) of [..., cols]: the leading dimensions are one, which takes one stride."""
    if not array.shape:
        raise ValueError(f"{name}: want at least one dimension, got a scalar")
    if columns is not None and array.shape[-1] != columns:
        raise ValueError(f"{name}: want [..., {columns}], got {list(array.shape)}")
    cols = array.shape[-1]
    if 0 in array.shape[:-1]:
        return 0, cols, cols, 1
    rows = 1
    row_stride = cols
    for size, stride in zip(reversed(array.shape[:-1]), reversed(array.strides[:-1]), strict=True):
        if size == 1:
            continue
        if rows == 1:
            row_stride = stride
        elif stride != rows * row_stride:
            raise ValueError(f"{name} {list(array.shape)}: want rows at one stride, got strides {tuple(array.strides)}")
        rows *= size
    return rows, cols, row_stride, array.strides[-1] if cols > 1 else 1


def vector(array: Array, name: str, shapes: list[tuple[int, ...]]) -> None:
    """Raises unless `array` is fp32, has one of `shapes` and lies in one piece."""
    if array.dtype != "fp32" or array.shape not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name}: want fp32 {wanted}, got {array.dtype} {list(array.shape)}")
    require_packed(array, name)


def require_packed(array: Array, name: str) -> None:
    """Raises unless the elements lie one after the other, the last dimension fastest."""
    expected = 1
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if size > 1 and stride != expected and 0 not in array.shape:
            raise ValueError(f"{name} {list(array.shape)}: want one piece, got strides {tuple(array.strides)}")
        expected *= size


def same_device(array: Array, name: str, device: str) -> None:
    if array.device != device:
        raise ValueError(f"{name}: want memory of {device}, got {array.device}")


def device_of(value: Any) -> str:
    """Where an array is, as an id of devices()."""
    if is_torch(value):
        return "cpu" if value.device.type == "cpu" else f"cuda:{value.device.index}"
    return read(value, "array").device if hasattr(value, "__dlpack_device__") else "cpu"


def empty_like(source: Array, shape: tuple[int, ...], dtype: str) -> Any:
    """An array of `source`'s library and device for results. numpy: bf16 and e4m3 are ml_dtypes' where the source's
    dtype is, else uint16 and uint8."""
    if source.kind == "torch":
        torch = torch_module()
        return torch.empty(shape, dtype=_torch_dtype(dtype), device=source.source.device)
    if source.device != "cpu":
        raise ValueError(f"no out= was given, and on {source.device} results are made by torch alone: give out=")
    storage = np.empty(shape, _STORAGE[dtype])
    if source.kind == "numpy" and source.source.dtype.type.__module__ == "ml_dtypes" and storage.dtype.kind == "u":
        ml_dtypes = sys.modules["ml_dtypes"]
        return storage.view(ml_dtypes.bfloat16 if dtype == "bf16" else ml_dtypes.float8_e4m3fn)
    return storage


def _torch_dtype(dtype: str) -> Any:
    torch = torch_module()
    return {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "e4m3": torch.float8_e4m3fn,
    }[dtype]
