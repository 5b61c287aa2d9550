# SPDX-License-Identifier: Apache-2.0
"""RMSNorm and SwiGLU as modules that hand codes and scales to the octile.torch.Linear behind them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from octile import _producers
from octile._core import QuantizeOptions
from octile.torch import _ops


class Quantized(NamedTuple):
    """What a producer made: float8_e4m3fn [..., K] and fp32 [..., 1]. octile.torch.Linear takes it in the place of x."""

    codes: torch.Tensor
    scales: torch.Tensor


class _Producer(torch.nn.Module):
    """The options of both, which the packed producer is made of anew after a move."""

    def __init__(
        self,
        device: torch.device | str,
        dtype: torch.dtype,
        quantize: str | QuantizeOptions,
        static_scale: float,
        pdl: str,
        name: str | None,
    ) -> None:
        super().__init__()
        if dtype not in (torch.bfloat16, torch.float16):
            raise ValueError(f"{type(self).__name__}: want bfloat16 or float16 activations, got {dtype}")
        self.device = torch.empty(0, device=device).device  # With its index.
        self.dtype = dtype
        self.quantize = quantize
        self.static_scale = static_scale
        self.pdl = pdl
        self.name = name
        self._slot = _ops.Slot(name)
        self._handle = self._slot.handle

    def _make(self) -> Any:
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        return {
            "device": str(self.device),
            "dtype": self.dtype,
            "quantize": self.quantize,
            "static_scale": self.static_scale,
            "pdl": self.pdl,
        }

    def _pack(self) -> None:
        if self._slot.packed is not None and self._slot.packed.captured:
            raise RuntimeError(
                f"a CUDA graph has captured this octile.torch.{type(self).__name__} and would go on with what it was: make a "
                "new module and capture again"
            )
        self._slot.packed = _ops.PackedProducer(self._make())

    def _apply(self, fn: Any, recurse: bool = True) -> _Producer:
        super()._apply(fn, recurse)
        probe = fn(torch.empty(0, dtype=self.dtype, device=self.device))
        if (probe.dtype, probe.device) != (self.dtype, self.device):
            self.dtype, self.device = probe.dtype, probe.device
            self._pack()
        return self

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self.quantize, QuantizeOptions):
            raise TypeError("QuantizeOptions are not pickled or copied: name an engine's preset")
        state = self.__dict__.copy()
        del state["_slot"], state["_handle"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._slot, self.name = _ops.copied_slot(self.name)
        self._handle = self._slot.handle
        self._pack()


class RmsNorm(_Producer):
    """Quantised RMSNorm of x or, with a residual, of x + residual, as transformers' and vLLM's models round it.

    `weight`: [K], as the model's norm has it; `epsilon`: its variance_epsilon. Returns a Quantized; with a residual
    (Quantized, sum). The Linears behind it need prepare_codes(). `name`: as Linear's. The other options are octile.RmsNorm's.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        epsilon: float = 1e-6,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        quantize: str | QuantizeOptions = "octile",
        static_scale: float = 0.0,
        pdl: str = "full",
        name: str | None = None,
    ) -> None:
        super().__init__(
            weight.device if device is None else device,
            weight.dtype if dtype is None else dtype,
            quantize,
            static_scale,
            pdl,
            name,
        )
        self.epsilon = epsilon
        self.features = weight.numel()
        self.register_buffer("weight", weight.detach().clone().to(self.device))
        self._pack()

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Quantized | tuple[Quantized, torch.Tensor]:
        if residual is None:
            made = self._slot.packed(x) if _ops.is_eager(x) else _ops.rms_norm(x, self._handle, self.features)
            return Quantized(*made)
        if _ops.is_eager(x, residual):
            codes, scales, total = self._slot.packed(x, residual)
        else:
            codes, scales, total = _ops.add_rms_norm(x, residual, self._handle, self.features)
        return Quantized(codes, scales), total

    def extra_repr(self) -> str:
        return f"{self.features}, epsilon={self.epsilon}, dtype={self.dtype}, device={self.device}"

    def _make(self) -> _producers.RmsNorm:
        with torch.no_grad():
            return _producers.RmsNorm(self.weight, self.epsilon, **self._options())

    def _load_from_state_dict(self, *arguments: Any) -> None:
        before = self.weight.clone()
        super()._load_from_state_dict(*arguments)
        if not torch.equal(self.weight, before):
            try:
                self._pack()
            except RuntimeError as error:
                self.weight.copy_(before)
                arguments[-1].append(f"{arguments[1]}: {error}")


class SwiGlu(_Producer):
    """Quantised silu(gate) * up of a fused gate_up linear's result [..., 2 K]. Returns a Quantized [..., K]."""

    def __init__(
        self,
        features: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.bfloat16,
        quantize: str | QuantizeOptions = "octile",
        static_scale: float = 0.0,
        pdl: str = "full",
        name: str | None = None,
    ) -> None:
        super().__init__(device, dtype, quantize, static_scale, pdl, name)
        self.features = features
        self._pack()

    def forward(self, gate_up: torch.Tensor) -> Quantized:
        if _ops.is_eager(gate_up):
            return Quantized(*self._slot.packed(gate_up))
        return Quantized(*_ops.swiglu(gate_up, self._handle, self.features))

    def extra_repr(self) -> str:
        return f"{self.features}, dtype={self.dtype}, device={self.device}"

    def _make(self) -> _producers.SwiGlu:
        return _producers.SwiGlu(self.features, **self._options())
