# SPDX-License-Identifier: Apache-2.0
"""The product of codes and scales with the arguments that engines' functions have.

Nothing is cached behind the caller's back: whether a weight's memory has been overwritten since it was packed cannot be
known from the outside, so a packed weight is a value that the caller holds (pack_b), and a raw `b` is read anew by every
call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octile import _arrays
from octile._linear import Linear, Weight


def pack_b(
    b: Any,
    scale_b: Any,
    out_dtype: Any = "bf16",
    bias: Any = None,
    *,
    max_m: int = 256,
    **options: Any,
) -> Linear:
    """`b` and what belongs to it, packed once and prepared for max_m rows: pass it to scaled_mm in the place of `b`.

    `b`: e4m3 [K, N] column-major (weight.t() of a weight [N, K]); `scale_b`: fp32, bf16 or fp16 [1, N], [N] or [N, 1], or
    one for all; `bias`: [N] or None. The copy does not follow later writes to any of them: pack again after a weight
    update. The other options are Weight's.
    """
    if _arrays.is_torch(b):
        transposed = b.t() if b.dim() == 2 else b
    else:
        transposed = np.asarray(b).T if not isinstance(b, np.ndarray) else b.T
    if transposed.ndim != 2:
        raise ValueError(f"b: want [K, N], got {list(b.shape)}")
    n, k = transposed.shape
    array = _arrays.read(transposed, "b")
    if array.strides[-1] != 1 and k > 1:
        raise ValueError(
            f"b [{k}, {n}]: want it column-major (the transposed view of a weight [{n}, {k}]), "
            f"got strides {tuple(reversed(array.strides))}"
        )
    scale_shape = tuple(getattr(scale_b, "shape", ()))
    scales = scale_b.reshape(n) if scale_shape == (1, n) else scale_b
    weight = Weight(transposed, scales, out_dtype=out_dtype, **options)
    return Linear(weight, bias, activation="quantized", max_m=max_m)


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any = None,
    out_dtype: Any = None,
    bias: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """[M, N] = round((a . b * scale_b) * scale_a + bias), as torch's row-wise _scaled_mm, vLLM's cutlass_scaled_mm and
    SGLang's fp8_scaled_mm take their arguments.

    `a`: e4m3 [M, K]; `scale_a`: fp32 [M, 1] or [M], or one for all rows. `b`: what pack_b() made, which knows its scales,
    bias and output type; or a raw [K, N] in host memory, which is packed for this one call (always right, and slow).
    `out_dtype`: default bf16.
    """
    if isinstance(b, Linear):
        if scale_b is not None or bias is not None:
            raise ValueError("scale_b, bias: what pack_b() made has its own, got others: give them to pack_b()")
        if out_dtype is not None and _arrays.dtype_name(out_dtype) != b.weight.out_dtype:
            raise ValueError(f"out_dtype: b was packed for {b.weight.out_dtype}, got {_arrays.dtype_name(out_dtype)}")
        packed = b
    else:
        if scale_b is None:
            raise ValueError("scale_b: want the scales of b, got None")
        if _arrays.is_torch(b) and b.device.type != "cpu":
            raise ValueError(
                f"b: packing it for every call would copy it from {b.device} each time: pack it once with octile.pack_b(b, "
                "scale_b, out_dtype, bias), pass the result as b, and pack again after an update"
            )
        packed = pack_b(b, scale_b, "bf16" if out_dtype is None else out_dtype, bias, max_m=max(1, _rows(a)))
    return packed(a, _row_scales(a, scale_a), out=out, stream=stream)


def _rows(a: Any) -> int:
    shape = tuple(getattr(a, "shape", ()))
    if len(shape) != 2:
        raise ValueError(f"a: want [M, K], got {list(shape)}")
    return shape[0]


def _row_scales(a: Any, scale_a: Any) -> Any:
    """One scale a row: [M] and [M, 1] as they are, one for all expanded."""
    rows = _rows(a)
    shape = tuple(getattr(scale_a, "shape", ()))
    if shape in ((rows,), (rows, 1)):
        return scale_a
    if shape not in ((), (1,), (1, 1)):
        raise ValueError(f"scale_a: want fp32 [{rows}, 1] or [{rows}], or one for all rows, got {list(shape)}")
    if _arrays.is_torch(scale_a):
        return scale_a.reshape(1).expand(rows).contiguous()
    return np.full(rows, np.asarray(scale_a).reshape(()), np.float32)
