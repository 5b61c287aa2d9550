# SPDX-License-Identifier: Apache-2.0
"""Per-token quantisation."""

from __future__ import annotations

from typing import Any

from octile import _arrays, _core


def quantize_options(quantize: str | _core.QuantizeOptions) -> _core.QuantizeOptions:
    """The options themselves, or those of an engine: "octile", "vllm", "sglang"."""
    return _core.quantize_preset(quantize) if isinstance(quantize, str) else quantize


def quantize_per_token(
    x: Any,
    *,
    dtype: Any = None,
    quantize: str | _core.QuantizeOptions = "octile",
    out: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """(codes, scales) of x [..., K] in bf16, fp16 or fp32, in host memory: e4m3 [..., K] and fp32 [..., 1].

    scale = amax / 448 of each row, codes = e4m3(x / scale); a row with a NaN or an infinity becomes NaN. `dtype` says what
    a uint16 array holds. `quantize`: an engine whose codes are to be met bit for bit, or QuantizeOptions. `out`: codes in
    one piece, and scales. Without it numpy's codes are uint8 (ml_dtypes' where x's dtype is), torch's float8_e4m3fn.
    """
    source = _arrays.read(x, "x", dtype=dtype)
    _arrays.same_device(source, "x", "cpu")
    rows, cols, row_stride, col_stride = _arrays.matrix(source, "x")
    if out is None:
        codes_out = _arrays.empty_like(source, source.shape, "e4m3")
        scales_out = _arrays.empty_like(source, (*source.shape[:-1], 1), "fp32")
    else:
        codes_out, scales_out = out
    codes = _arrays.read(codes_out, "out[0]", dtype="e4m3", writable=True)
    scales = _arrays.read(scales_out, "out[1]", writable=True)
    for array, name in ((codes, "out[0]"), (scales, "out[1]")):
        _arrays.same_device(array, name, "cpu")
    if codes.shape != source.shape:
        raise ValueError(f"out[0]: want {list(source.shape)}, got {list(codes.shape)}")
    _arrays.require_packed(codes, "out[0]")
    _arrays.vector(scales, "out[1]", [(*source.shape[:-1], 1), source.shape[:-1]])
    _core.quantize_per_token(
        source.pointer,
        source.dtype,
        rows,
        cols,
        row_stride,
        col_stride,
        codes.pointer,
        scales.pointer,
        quantize_options(quantize),
    )
    return codes_out, scales_out
