# SPDX-License-Identifier: Apache-2.0
"""Weights packed for a device, and linear layers made of them."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from octile import _arrays, _core
from octile._quantize import quantize_options, quantize_per_token


def _host(value: Any, name: str) -> Any:
    """`value` in host memory: packing reads it there. Tensors of torch are copied from their device; others must be there."""
    return value.detach().cpu() if _arrays.is_torch(value) else value


def _scale_count(scales: _arrays.Array, n: int) -> int:
    """How many scales there are: one a row of the weight, or one for all."""
    if scales.shape in ((n,), (n, 1)):
        return n
    if scales.shape in ((), (1,), (1, 1)):
        return 1
    raise ValueError(f"scales: want [{n}] or [{n}, 1] (one a row of the codes) or one for all, got {list(scales.shape)}")


def _source(
    codes: Any, scales: Any, scale_dtype: Any, device: str, stream: int | None = None
) -> tuple[dict[str, Any], list[_arrays.Array]]:
    """Codes and scales in memory of `device` as the module takes them, and what keeps them alive."""
    code_array = _arrays.read(codes, "codes", stream=stream)
    if code_array.dtype == "uint8":
        code_array.dtype = "e4m3"
    if isinstance(scales, (int, float)):
        scales = np.asarray(scales, np.float32)
    scale_array = _arrays.read(scales, "scales", dtype=scale_dtype, stream=stream)
    for array, name, known in (
        (code_array, "codes", ("e4m3", "e4m3fnuz")),
        (scale_array, "scales", ("fp32", "bf16", "fp16")),
    ):
        _arrays.same_device(array, name, device)
        if array.dtype not in known:
            raise ValueError(f"{name}: want {' or '.join(known)}, got {array.dtype}")
    if len(code_array.shape) != 2:
        raise ValueError(f"codes: want [N, K], got {list(code_array.shape)}")
    n, k = code_array.shape
    row_stride, col_stride = code_array.strides
    if (col_stride != 1 and k > 1) or (row_stride < k and n > 1):
        raise ValueError(
            f"codes [{n}, {k}]: want column stride 1 and row stride >= {k}, got strides {tuple(code_array.strides)}"
        )
    _arrays.require_packed(scale_array, "scales")
    source = {
        "n": n,
        "k": k,
        "codes": code_array.pointer,
        "code_dtype": code_array.dtype,
        "row_stride": row_stride if n > 1 else k,
        "scales": scale_array.pointer,
        "scale_dtype": scale_array.dtype,
        "scale_count": _scale_count(scale_array, n),
    }
    return source, [code_array, scale_array]


class Weight:
    """e4m3 codes [N, K] with their scales, packed once for one device in the one layout that serves every M of its table.

    `codes`: e4m3 [N, K] as a checkpoint holds them (uint8 is taken for e4m3); `scales`: fp32, bf16 or fp16 [N], [N, 1], or
    one for all; finite and > 0, or 0 for a row of zero codes. Both are read here and may be changed or freed afterwards:
    the packed copy does not follow. `device`: an id of devices(); default: where the codes are. `out_dtype`: "bf16", "fp16"
    or "fp32", of the linears made of it. `accumulate`: "default", "fast" or "precise"; `numerics`: "deterministic" or
    "baseline"; `batch_invariant`: a row's bits don't depend on the other rows; `pdl`: "off", "consume" or "full";
    `layout`: "automatic" (the table's, else row-major), "row_major" or "slab64", which our own kernels on Hopper alone read;
    `tables`: directories, ':' between them, searched before OCTILE_TABLE_PATH.
    """

    def __init__(
        self,
        codes: Any,
        scales: Any,
        *,
        device: str | None = None,
        out_dtype: Any = "bf16",
        accumulate: str = "default",
        numerics: str = "deterministic",
        batch_invariant: bool = False,
        pdl: str = "full",
        layout: str = "automatic",
        tables: str | os.PathLike[str] = "",
        scale_dtype: Any = None,
    ) -> None:
        self.device: str = _arrays.device_of(codes) if device is None else device
        self.out_dtype: str = _arrays.dtype_name(out_dtype)
        source, alive = _source(_host(codes, "codes"), _host(scales, "scales"), scale_dtype, "cpu")
        self._core = _core.Weight(
            **source,
            device=self.device,
            tables=os.fspath(tables),
            out_dtype=self.out_dtype,
            accumulate=accumulate,
            numerics=numerics,
            batch_invariant=batch_invariant,
            pdl=pdl,
            layout=layout,
        )
        del alive  # Copies from a device, and not sooner.

    @classmethod
    def quantize(cls, weight: Any, *, dtype: Any = None, device: str | None = None, **options: Any) -> Weight:
        """A weight [N, K] in bf16, fp16 or fp32, quantised with one scale a row. The other arguments are Weight's."""
        codes, scales = quantize_per_token(_host(weight, "weight"), dtype=dtype)
        return cls(codes, scales, device=_arrays.device_of(weight) if device is None else device, **options)

    def update(self, codes: Any, scales: Any, *, scale_dtype: Any = None, stream: Any = None) -> Weight:
        """Writes other codes and scales of the same shape in place: linears and captured graphs go on with the new ones.

        On a GPU alone. In host memory they are read before this returns. On the weight's own GPU, scales being fp32 [N] or
        [N, 1], they are read when the stream gets there, and scales are not checked. The work is on torch's current stream
        where codes are a tensor of torch, else on `stream` (the default stream without it); order other streams behind it.
        Nothing of the next call of any linear starts before it has ended. Do not call it while another thread is in a call.
        """
        handle = _stream_handle(codes, self.device, stream)
        where = _arrays.device_of(codes)
        if where not in ("cpu", self.device):
            raise ValueError(f"codes: want memory of the host or of {self.device}, got {where}")
        source, alive = _source(codes, scales, scale_dtype, where, handle)
        self._core.update(**source, on_device=where != "cpu", stream=handle)
        del alive
        return self

    @property
    def layout(self) -> str:
        """How the codes lie: "row_major", "slab64", or a CPU's own layout."""
        return str(self._core.layout)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self._core.n, self._core.k

    @property
    def nbytes(self) -> int:
        """Bytes resident on the device: packed codes, scales and, where a table asks for it, the baseline's copy."""
        return self._core.nbytes

    def __repr__(self) -> str:
        return f"octile.Weight({list(self.shape)}, device={self.device!r}, out_dtype={self.out_dtype!r})"

    def __reduce__(self) -> Any:
        raise TypeError("octile.Weight is packed for one device and is not pickled or copied: keep its codes and scales")


class Linear:
    """y = (x . w^T * scale_w) * scale_x + bias, for x [..., K] and y [..., N].

    `activation`: "dynamic_per_token" (x is bf16 or fp16, quantised with one scale a row), "static_per_tensor" (quantised
    with `static_scale`) or "quantized" (x is e4m3 and comes with its scales). `x_dtype`: of x, for the two that quantise.
    `quantize`: "octile", "vllm", "sglang" or QuantizeOptions, for "dynamic_per_token". `bias`: [N], copied. `max_m`:
    prepare() for so many rows at once. `max_sms`: the product keeps to at most so many multiprocessors of a GPU, which
    leaves the others to a communication kernel; an error on a CPU and beyond what the device has. Calls from several
    threads at once are fine.
    """

    def __init__(
        self,
        weight: Weight,
        bias: Any = None,
        *,
        activation: str = "dynamic_per_token",
        static_scale: float = 0.0,
        x_dtype: Any = "bf16",
        quantize: str | _core.QuantizeOptions = "octile",
        bias_dtype: Any = None,
        max_m: int | None = None,
        max_sms: int | None = None,
    ) -> None:
        if not isinstance(weight, Weight):
            raise TypeError(f"weight: want an octile.Weight, got {type(weight)}")
        if max_sms is not None and max_sms < 1:
            raise ValueError(f"max_sms: want at least 1, or None for no limit, got {max_sms}")
        self.weight: Weight = weight
        self.activation: str = activation
        self.x_dtype: str = "e4m3" if activation == "quantized" else _arrays.dtype_name(x_dtype)
        n, _ = weight.shape
        bias_array = None
        if bias is not None:
            bias_array = _arrays.read(_host(bias, "bias"), "bias", dtype=bias_dtype)
            _arrays.same_device(bias_array, "bias", "cpu")
            if bias_array.shape != (n,) or bias_array.dtype not in ("fp32", "bf16", "fp16"):
                raise ValueError(f"bias: want fp32, bf16 or fp16 [{n}], got {bias_array.dtype} {list(bias_array.shape)}")
            _arrays.require_packed(bias_array, "bias")
        self._core = _core.Linear(
            weight=weight._core,
            activation=activation,
            static_scale=static_scale,
            quantize=quantize_options(quantize),
            x_dtype="bf16" if activation == "quantized" else self.x_dtype,
            bias=0 if bias_array is None else bias_array.pointer,
            bias_dtype="fp32" if bias_array is None else bias_array.dtype,
            allow_capture_fallback=False,
            max_sms=max_sms or 0,
        )
        if max_m is not None:
            self.prepare(max_m)

    def prepare(self, max_m: int) -> Linear:
        """Loads every kernel that the table can reach up to max_m rows, runs each once, and returns the linear.

        Everything slow happens here. It may be called again for more rows, also while other threads call the linear. More
        rows than prepared run in chunks.
        """
        self._core.prepare(max_m)
        return self

    def workspace_bytes(self, m: int) -> int:
        """Bytes of workspace that a call with m rows takes; 0 before prepare()."""
        return self._core.workspace_bytes(m)

    def __call__(
        self,
        x: Any,
        scales: Any = None,
        *,
        out: Any = None,
        dtype: Any = None,
        out_dtype: Any = None,
        stream: Any = None,
        workspace: Any = None,
    ) -> Any:
        """y [..., N] of x [..., K]; `out` where it is given, else a new array of x's library.

        `scales`: fp32 [...] or [..., 1], for "quantized" alone. `dtype`, `out_dtype`: what x and out hold where they are
        arrays of uint16 or uint8. Work on a GPU is enqueued on torch's current stream where x is a tensor of torch, else on
        `stream` (the default stream without it).
        """
        weight = self.weight
        n, k = weight.shape
        handle = _stream_handle(x, weight.device, stream)
        source = _arrays.read(x, "x", dtype=dtype, stream=handle)
        if source.dtype == "uint8" and self.x_dtype == "e4m3":
            source.dtype = "e4m3"
        _arrays.same_device(source, "x", weight.device)
        if source.dtype != self.x_dtype:
            hint = " (say what the bits are with dtype=)" if source.dtype in ("uint8", "uint16") else ""
            raise ValueError(f"x: want {self.x_dtype}, got {source.dtype}{hint}")
        rows, cols, row_stride, col_stride = _arrays.matrix(source, "x", k)
        scale_array = self._scales(scales, source, handle)
        result = _arrays.empty_like(source, (*source.shape[:-1], n), weight.out_dtype) if out is None else out
        target = _arrays.read(
            result, "out", dtype=weight.out_dtype if out_dtype is None else out_dtype, stream=handle, writable=True
        )
        _arrays.same_device(target, "out", weight.device)
        if target.shape != (*source.shape[:-1], n):
            raise ValueError(f"out: want {[*source.shape[:-1], n]}, got {list(target.shape)}")
        y_rows, y_cols, y_row_stride, y_col_stride = _arrays.matrix(target, "out", n)
        work = _workspace(self, source, rows, workspace, handle)
        self._core.run(
            source.pointer,
            source.dtype,
            rows,
            cols,
            row_stride,
            col_stride,
            0 if scale_array is None else scale_array.pointer,
            target.pointer,
            target.dtype,
            y_rows,
            y_cols,
            y_row_stride,
            y_col_stride,
            0 if work is None else work.pointer,
            0 if work is None else work.shape[0],
            handle,
        )
        return result

    def _scales(self, scales: Any, source: _arrays.Array, stream: int) -> _arrays.Array | None:
        quantized = self.activation == "quantized"
        if quantized != (scales is not None):
            wanted = "scales of the codes" if quantized else "no scales: x is quantised here"
            raise ValueError(f"activation={self.activation!r}: want {wanted}, got {'none' if quantized else 'scales'}")
        if scales is None:
            return None
        array = _arrays.read(scales, "scales", stream=stream)
        _arrays.same_device(array, "scales", self.weight.device)
        _arrays.vector(array, "scales", [source.shape[:-1], (*source.shape[:-1], 1)])
        return array

    def explain(self, m: int) -> dict[str, Any]:
        """What serves m rows and why, as `octile explain --json` prints it; after prepare() it is what a call runs."""
        return json.loads(self._core.explain_json(m))

    def __repr__(self) -> str:
        n, k = self.weight.shape
        return f"octile.Linear([{n}, {k}], device={self.weight.device!r}, activation={self.activation!r})"

    def __reduce__(self) -> Any:
        raise TypeError("octile.Linear is made for one device and is not pickled or copied: keep its codes and scales")


def _stream_handle(x: Any, device: str, stream: Any) -> int:
    """The CUDA stream of a call as a number; 0, the default stream, on a CPU."""
    if device == "cpu":
        if stream is not None:
            raise ValueError(f"stream: a linear on the CPU has none, got {stream!r}")
        return 0
    given = None
    if stream is not None:
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))  # torch's streams, CuPy's, numbers.
        if not isinstance(handle, int) or handle < 0:
            raise ValueError(f"stream: want a stream of torch or CuPy or its handle as a number, got {stream!r}")
        given = handle
    if not _arrays.is_torch(x):
        return given or 0
    current = _arrays.torch_module().cuda.current_stream(device).cuda_stream
    if given is not None and given != current:
        raise ValueError("stream: tensors of torch run on torch's current stream: enter it with torch.cuda.stream()")
    return current


def _workspace(linear: Linear, source: _arrays.Array, rows: int, workspace: Any, stream: int) -> _arrays.Array | None:
    """The workspace of a call; None on a CPU where none is given: the module keeps one for each call that runs."""
    device = linear.weight.device
    if workspace is not None:
        array = _arrays.read(workspace, "workspace", stream=stream, writable=True)
        _arrays.same_device(array, "workspace", device)
        if array.dtype != "uint8" or len(array.shape) != 1:
            raise ValueError(f"workspace: want uint8 [bytes], got {array.dtype} {list(array.shape)}")
        _arrays.require_packed(array, "workspace")
        return array
    if device == "cpu":
        return None
    if source.kind == "torch":
        # From torch's allocator, which knows of streams and graphs.
        torch = _arrays.torch_module()
        nbytes = max(linear.workspace_bytes(rows), 1)
        return _arrays.read(torch.empty(nbytes, dtype=torch.uint8, device=source.source.device), "workspace")
    raise ValueError(
        f"workspace: want uint8 [{linear.workspace_bytes(rows)}] in memory of {device} for arrays that are not torch's"
    )
