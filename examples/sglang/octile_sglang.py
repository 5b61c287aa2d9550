# SPDX-License-Identifier: Apache-2.0
"""Octile as the kernel of SGLang's per-token x per-channel FP8 linears (compressed-tensors). SGLang calls register() in each of
its processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from compressed_tensors.quantization import QuantizationStrategy
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

import octile.torch

SCHEME = "sglang.srt.layers.quantization.compressed_tensors.schemes.compressed_tensors_w8a8_fp8.CompressedTensorsW8A8Fp8"
MAX_ROWS = 8192  # More tokens at once go in chunks.


def pack(result: Any, scheme: Any, layer: torch.nn.Module) -> None:
    """After process_weights_after_loading(), which leaves the weight [K, N] and its scales [N, 1]."""
    if scheme.strategy != QuantizationStrategy.CHANNEL or scheme.is_static_input_scheme:
        return
    layer.octile = octile.torch.Linear(
        layer.weight.t(),
        layer.weight_scale,
        device=layer.weight.device,
        dtype=layer.orig_dtype,
        max_m=MAX_ROWS,
        quantize="sglang",
    ).drop_host_copy()
    layer.weight.data = layer.weight.data.new_empty(0)  # The packed copy is all that is read from here on.


def apply(
    original: Callable[..., torch.Tensor], scheme: Any, layer: torch.nn.Module, x: Any, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Around apply_weights()."""
    if not hasattr(layer, "octile"):
        return original(scheme, layer, x, bias)
    y = layer.octile(x)
    return y if bias is None else y + bias


def register() -> None:
    HookRegistry.register(f"{SCHEME}.process_weights_after_loading", pack, HookType.AFTER)
    HookRegistry.register(f"{SCHEME}.apply_weights", apply, HookType.AROUND)
