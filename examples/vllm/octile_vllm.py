# SPDX-License-Identifier: Apache-2.0
"""Octile as the kernel of vLLM's per-token x per-channel FP8 linears. vLLM calls register() in each of its processes."""

from __future__ import annotations

import torch
from vllm.model_executor.kernels import linear as kernels
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
    FP8ScaledMMLinearLayerConfig,
)
from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8DynamicTokenSym, kFp8StaticChannelSym
from vllm.platforms import PlatformEnum

import octile.torch

MAX_ROWS = 8192  # More tokens at once go in chunks.


class OctileFP8ScaledMMLinearKernel(FP8ScaledMMLinearKernel):
    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, c: FP8ScaledMMLinearLayerConfig) -> tuple[bool, str | None]:
        if c.activation_quant_key != kFp8DynamicTokenSym or c.weight_quant_key != kFp8StaticChannelSym:
            return False, "Octile takes dynamic scales of tokens and one scale an output channel"
        if c.out_dtype not in (torch.bfloat16, torch.float16) or c.input_dtype != c.out_dtype:
            return False, "Octile takes bf16 or fp16 in and out"
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        weight, scale, _, _ = self._get_layer_params(layer)  # [K, N], as the products of vLLM read it; [N, 1].
        # vLLM keeps compiled graphs in files: the name is what they know the weight by.
        layer.octile = octile.torch.Linear(
            weight.t(),
            scale,
            device=weight.device,
            dtype=self.config.out_dtype,
            max_m=MAX_ROWS,
            quantize="vllm",
            name=f"vllm.{layer.prefix}",
        ).drop_host_copy()
        weight.data = weight.data.new_empty(0)  # The packed copy is all that is read from here on.

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = layer.octile(x)
        return y if bias is None else y + bias

    def apply_scaled_mm(self, **_: object) -> torch.Tensor:
        raise NotImplementedError("apply_weights quantises and multiplies at once")


def register() -> None:
    # The first that can serve is taken.
    chosen = kernels._POSSIBLE_FP8_KERNELS[PlatformEnum.CUDA]
    if OctileFP8ScaledMMLinearKernel not in chosen:
        chosen.insert(0, OctileFP8ScaledMMLinearKernel)
