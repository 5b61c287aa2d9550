# SPDX-License-Identifier: Apache-2.0
"""What stands before a linear in a decoder, fused with the quantisation of the linear's activations."""

from __future__ import annotations

from typing import Any

from octile import _arrays, _core
from octile._linear import _host, _stream_handle
from octile._quantize import quantize_options


def matrix_of(array: _arrays.Array, name: str, columns: int) -> tuple[int, str, int, int, int, int]:
    """[..., columns] as the module reads a matrix."""
    return (array.pointer, array.dtype, *_arrays.matrix(array, name, columns))


class _Producer:
    """What both have in common: `device`, `k` elements of a row of their results, and the dtype of activations."""

    _core: Any

    def __init__(self, device: str, k: int, dtype: Any) -> None:
        self.device: str = device
        self.k: int = k
        self.dtype: str = _arrays.dtype_name(dtype)

    def _read(self, value: Any, name: str, columns: int, stream: int) -> _arrays.Array:
        array = _arrays.read(value, name, dtype=self.dtype, stream=stream)
        _arrays.same_device(array, name, self.device)
        if not array.shape or array.shape[-1] != columns:
            raise ValueError(f"{name}: want [..., {columns}], got {list(array.shape)}")
        return array

    def _empty_rows(self, source: _arrays.Array) -> tuple[Any, Any]:
        """Codes [..., k], whose rows lie where every product reads them as they are, and scales [..., 1]."""
        lead = source.shape[:-1]
        codes = _arrays.empty_like(source, (*lead, _core.codes_row_stride(self.k)), "e4m3")[..., : self.k]
        return codes, _arrays.empty_like(source, (*lead, 1), "fp32")

    def __reduce__(self) -> Any:
        raise TypeError(f"octile.{type(self).__name__} is made for one device and is not pickled or copied")


class RmsNorm(_Producer):
    """(codes, scales) of round(round(s / sqrt(mean(s^2) + epsilon)) * weight), s = x or round(x + residual).

    round() is to `dtype`, "bf16" or "fp16", where Hugging Face's and vLLM's models round; codes and scales are those that
    the linear behind would make of it. `weight`: [k] in bf16, fp16 or fp32, copied. `device`: an id of devices(); default:
    where the weight is. `quantize`: as Linear's; `static_scale` > 0: the scale of every row. `pdl`: as Weight's.
    """

    def __init__(
        self,
        weight: Any,
        epsilon: float = 1e-6,
        *,
        device: str | None = None,
        dtype: Any = "bf16",
        weight_dtype: Any = None,
        quantize: str | _core.QuantizeOptions = "octile",
        static_scale: float = 0.0,
        pdl: str = "full",
    ) -> None:
        array = _arrays.read(_host(weight, "weight"), "weight", dtype=weight_dtype)
        _arrays.same_device(array, "weight", "cpu")
        if len(array.shape) != 1 or array.dtype not in ("bf16", "fp16", "fp32"):
            raise ValueError(f"weight: want bf16, fp16 or fp32 [k], got {array.dtype} {list(array.shape)}")
        _arrays.require_packed(array, "weight")
        super().__init__(_arrays.device_of(weight) if device is None else device, array.shape[0], dtype)
        self._core = _core.RmsNorm(
            weight=array.pointer,
            weight_dtype=array.dtype,
            epsilon=epsilon,
            device=self.device,
            k=self.k,
            dtype=self.dtype,
            quantize=quantize_options(quantize),
            static_scale=static_scale,
            pdl=pdl,
        )

    def __call__(self, x: Any, residual: Any = None, *, stream: Any = None) -> tuple[Any, Any] | tuple[Any, Any, Any]:
        """(codes, scales) of x [..., k]; with a residual [..., k] (codes, scales, round(x + residual)).

        Arrays of numpy and tensors of torch, on whose current stream the work is enqueued.
        """
        handle = _stream_handle(x, self.device, stream)
        source = self._read(x, "x", self.k, handle)
        added = None if residual is None else self._read(residual, "residual", self.k, handle)
        if added is not None and added.shape != source.shape:
            raise ValueError(f"residual: want {list(source.shape)} as x has, got {list(added.shape)}")
        codes, scales = self._empty_rows(source)
        total = None if added is None else _arrays.empty_like(source, source.shape, self.dtype)
        self._core.run(
            matrix_of(source, "x", self.k),
            None if added is None else matrix_of(added, "residual", self.k),
            None if total is None else matrix_of(_arrays.read(total, "sum", dtype=self.dtype, writable=True), "sum", self.k),
            matrix_of(_arrays.read(codes, "codes", dtype="e4m3", writable=True), "codes", self.k),
            _arrays.read(scales, "scales", writable=True).pointer,
            handle,
        )
        return (codes, scales) if total is None else (codes, scales, total)


class SwiGlu(_Producer):
    """(codes, scales) of round(round(silu(gate)) * up), for gate and up side by side [..., 2 k] as a gate_up linear has them.

    The options are RmsNorm's.
    """

    def __init__(
        self,
        k: int,
        *,
        device: str = "cpu",
        dtype: Any = "bf16",
        quantize: str | _core.QuantizeOptions = "octile",
        static_scale: float = 0.0,
        pdl: str = "full",
    ) -> None:
        super().__init__(device, k, dtype)
        self._core = _core.SwiGlu(
            device=device,
            k=k,
            dtype=self.dtype,
            quantize=quantize_options(quantize),
            static_scale=static_scale,
            pdl=pdl,
        )

    def __call__(self, gate_up: Any, *, stream: Any = None) -> tuple[Any, Any]:
        """(codes [..., k], scales [..., 1]) of gate_up [..., 2 k]."""
        handle = _stream_handle(gate_up, self.device, stream)
        source = self._read(gate_up, "gate_up", 2 * self.k, handle)
        codes, scales = self._empty_rows(source)
        self._core.run(
            matrix_of(source, "gate_up", 2 * self.k),
            matrix_of(_arrays.read(codes, "codes", dtype="e4m3", writable=True), "codes", self.k),
            _arrays.read(scales, "scales", writable=True).pointer,
            handle,
        )
        return codes, scales
