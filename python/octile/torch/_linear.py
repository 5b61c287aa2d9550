# SPDX-License-Identifier: Apache-2.0
"""The module that stands for a linear layer with e4m3 weights."""

from __future__ import annotations

from typing import Any

import torch

from octile._core import QuantizeOptions
from octile._linear import Linear as PackedLinear
from octile._linear import Weight
from octile.torch import _ops
from octile.torch._producers import Quantized

_FLOOR = 448.0 * 2.0**-126  # numerics.md: the scale of a row of zeros is the smallest normal number.


@torch.no_grad()
def quantize_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 codes [N, K] and fp32 scales [N, 1] of a weight, one scale an output channel, on the weight's device.

    The bits of octile.quantize_per_token, which works on the CPU alone.
    """
    wide = weight.detach().float()
    # Divided by a tensor of the device: by a number torch's CUDA kernels multiply with its rounded reciprocal.
    scales = wide.abs().amax(dim=1, keepdim=True).clamp(min=_FLOOR) / wide.new_full((), 448.0)
    return (wide / scales).to(torch.float8_e4m3fn), scales


class Linear(torch.nn.Module):
    """A linear layer with e4m3 weights and one scale an output channel; activations are quantised per token.

    `codes`: float8_e4m3fn [N, K]; `scales`: [N, 1], [N] or one for all; `bias`: [N] or None; all are kept in host memory for
    state_dict, copies and moves to another device, while calls use one packed copy on `device`. `dtype`: of x and of the
    result, bfloat16 or float16. `max_m`: rows that kernels are prepared for; more run in chunks. `activation`,
    `static_scale`, `quantize`, `max_sms`: as octile.Linear's. `options`: as octile.Weight's. `name`: what graphs know the
    module by, in this process and in others; without it by a number of this process. There is no backward.
    """

    def __init__(
        self,
        codes: torch.Tensor,
        scales: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.bfloat16,
        max_m: int = 256,
        activation: str = "dynamic_per_token",
        static_scale: float = 0.0,
        quantize: str | QuantizeOptions = "octile",
        max_sms: int | None = None,
        options: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if codes.dim() != 2 or codes.dtype != torch.float8_e4m3fn:
            raise ValueError(f"codes: want float8_e4m3fn [N, K], got {codes.dtype} {list(codes.shape)}")
        self.out_features, self.in_features = codes.shape
        if activation == "quantized":
            raise ValueError("activation: a module takes bf16 or fp16; for codes use octile.Linear or octile.scaled_mm")
        self.dtype = dtype
        self.device = _with_index(torch.device(device))
        self.max_m = max_m
        self.activation = activation
        self.static_scale = static_scale
        self.quantize = quantize
        self.max_sms = max_sms
        self.options = dict(options or {})
        self._codes_max_m = 0  # Rows of codes that are prepared for.
        self._host: dict[str, torch.Tensor] | None = None
        self.name = name
        self._slot = _ops.Slot(name)
        self._handle = self._slot.handle
        self._set(codes, scales, bias)

    @classmethod
    def from_float(cls, linear: torch.nn.Linear, **arguments: Any) -> Linear:
        """Of an nn.Linear, whose dtype and device it takes unless others are named."""
        codes, scales = quantize_weight(linear.weight)
        arguments.setdefault("dtype", linear.weight.dtype)
        arguments.setdefault("device", linear.weight.device)
        return cls(codes, scales, linear.bias, **arguments)

    def forward(self, x: torch.Tensor | Quantized) -> torch.Tensor:
        """y [..., N] of x [..., K], or of what a producer made of it."""
        if isinstance(x, Quantized):
            if _ops.is_eager(*x):
                return self._ready().run_codes(*x)
            return _ops.linear_of_codes(x.codes, x.scales, self._handle, self.out_features, self.dtype)
        if _ops.is_eager(x):
            return self._ready()(x)
        return _ops.linear(x, self._handle, self.out_features)

    def explain(self, m: int) -> dict[str, Any]:
        """What serves m rows and why."""
        return self._ready().linear.explain(m)

    def prepare(self, max_m: int) -> Linear:
        """Prepares for more rows."""
        self._ready().linear.prepare(max_m)
        self.max_m = max(self.max_m, max_m)
        return self

    def prepare_codes(self, max_m: int | None = None) -> Linear:
        """Prepares for what RmsNorm and SwiGlu make, in the place of x; the packed weight is the same. Default: max_m rows."""
        self._codes_max_m = max(self._codes_max_m, self.max_m if max_m is None else max_m)
        self._ready().prepare_codes(self._codes_max_m)
        return self

    def drop_host_copy(self) -> Linear:
        """Frees the codes in host memory. state_dict, pickle, deepcopy and moves to another device are errors afterwards."""
        self._host = None
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of the packed copy, on the device."""
        return self._ready().linear.weight.nbytes

    @property
    def weight(self) -> torch.Tensor:
        """The codes, in host memory. Writing to them changes no result; load_state_dict does."""
        return self._kept()["weight"]

    @property
    def weight_scale(self) -> torch.Tensor:
        """fp32 [N, 1], in host memory."""
        return self._kept()["weight_scale"]

    @property
    def bias(self) -> torch.Tensor | None:
        """[N] in host memory, or None."""
        return self._kept().get("bias")

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype={self.dtype}, device={self.device}"

    def _ready(self) -> _ops.Packed:
        packed = self._slot.packed
        if packed is None:
            raise RuntimeError("this octile.torch.Linear has no packed weight: an earlier move or load of it failed")
        return packed

    def _kept(self) -> dict[str, torch.Tensor]:
        if self._host is None:
            raise RuntimeError("the host copy of this linear's codes was dropped with drop_host_copy()")
        return self._host

    def _set(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Packs these values, then keeps them."""
        n = self.out_features
        wide = scales.detach().to("cpu", torch.float32)
        if wide.numel() == 1:
            wide = wide.reshape(1, 1).expand(n, 1)
        elif tuple(wide.shape) == (n,):
            wide = wide.reshape(n, 1)
        host = {"weight": codes.detach().cpu().contiguous(), "weight_scale": wide.contiguous()}
        if bias is not None:
            host["bias"] = bias.detach().cpu().contiguous()
        if not self._update(host):
            self._pack(host)
        self._host = host

    def _update(self, host: dict[str, torch.Tensor]) -> bool:
        """Writes the codes and scales in place, so that captured graphs go on with them. False where a new packed weight is
        needed: on a CPU, for another bias, and where a registered baseline keeps a copy of its own."""
        packed = self._slot.packed
        if packed is None or self.device.type != "cuda" or not _same(packed.bias, host.get("bias")):
            return False
        try:
            packed.linear.weight.update(host["weight"], host["weight_scale"])
        except RuntimeError as error:
            if "create a new weight" not in str(error):
                raise
            return False
        return True

    def _pack(self, host: dict[str, torch.Tensor]) -> None:
        if self.dtype not in (torch.bfloat16, torch.float16):
            raise ValueError(f"octile.torch.Linear: want bfloat16 or float16 activations, got {self.dtype}")
        if self._slot.packed is not None and self._slot.packed.captured:
            raise RuntimeError(
                "a CUDA graph has captured this octile.torch.Linear and would go on with what it was: codes and scales are "
                "written in place, but for another bias, type or device make a new module and capture again"
            )
        device = str(self.device)
        weight = Weight(host["weight"], host["weight_scale"], device=device, out_dtype=self.dtype, **self.options)
        packed = PackedLinear(
            weight,
            host.get("bias"),
            activation=self.activation,
            static_scale=self.static_scale,
            x_dtype=self.dtype,
            quantize=self.quantize,
            max_m=self.max_m,
            max_sms=self.max_sms,
        )
        made = _ops.Packed(packed, self.dtype, self.device, host.get("bias"), self.max_sms)
        if self._codes_max_m:
            made.prepare_codes(self._codes_max_m)
        self._slot.packed = made

    def _apply(self, fn: Any, recurse: bool = True) -> Linear:
        # What .to(), .cuda(), .half() and the like do to a tensor like x says where to go.
        super()._apply(fn, recurse)
        probe = fn(torch.empty(0, dtype=self.dtype, device=self.device))
        moved = (probe.dtype, _with_index(probe.device))
        if moved == (self.dtype, self.device):
            return self
        kept = self._kept()
        before = (self.dtype, self.device)
        self.dtype, self.device = moved
        try:
            self._pack(kept)
        except Exception:
            self.dtype, self.device = before
            raise
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in self._kept().items():
            destination[prefix + name] = tensor

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        has_bias = self._ready().bias is not None
        names = ["weight", "weight_scale"] + ["bias"] * has_bias
        missing = [prefix + name for name in names if prefix + name not in state_dict]
        known = {prefix + name for name in names}
        if strict:
            missing_keys += missing
            unexpected_keys += [key for key in state_dict if key.startswith(prefix) and key not in known]
        if missing:
            return
        # Copies: load_state_dict leaves the caller's tensors alone.
        codes, scales = (state_dict[prefix + name].detach().clone() for name in names[:2])
        wanted = (self.out_features, self.in_features)
        if tuple(codes.shape) != wanted or codes.dtype != torch.float8_e4m3fn:
            error_msgs.append(f"{prefix}weight: want float8_e4m3fn {list(wanted)}, got {codes.dtype} {list(codes.shape)}")
            return
        try:
            self._set(codes, scales, state_dict[prefix + "bias"].detach().clone() if has_bias else None)
        except (ValueError, RuntimeError) as error:
            error_msgs.append(f"{prefix}: {error}")

    def __getstate__(self) -> dict[str, Any]:
        self._kept()
        state = self.__dict__.copy()
        del state["_slot"], state["_handle"]
        if isinstance(self.quantize, QuantizeOptions):
            options = self.quantize
            state["quantize"] = {name: getattr(options, name) for name in ("floor", "upper_bound", "division")}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(self.quantize, dict):
            self.quantize = QuantizeOptions(**self.quantize)
        self._slot, self.name = _ops.copied_slot(self.name)
        self._handle = self._slot.handle
        self._pack(self._kept())


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is b if a is None or b is None else a.dtype == b.dtype and torch.equal(a, b)


def _with_index(device: torch.device) -> torch.device:
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def prepare(model: torch.nn.Module, max_m: int) -> None:
    """Prepares every Linear of a model for max_m rows: tokens in flight, batch size times length in a prefill."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.prepare(max_m)
