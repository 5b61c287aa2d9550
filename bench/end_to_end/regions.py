# SPDX-License-Identifier: Apache-2.0
"""What torch.compile makes of a model: of all of it, or of its decoder layers, all by the same code.

Compiled as a whole, 36 layers take torch.compile about 36 times as long as one, for each variant and number of sequences. By
layers, one function is compiled, and what differs between layers (weights, caches, handles of packed weights) comes in as its
arguments. It starts with the addition that ends the layer before, which is fused with the norm as in a graph of the whole
model. Embedding, mask, RoPE's tables and lm_head are not compiled then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import variants

Positions = tuple[torch.Tensor, torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]
# More than variants, layers and numbers of sequences together, each of which may have code of its own.
_RECOMPILE_LIMIT = 4096
# Numbers that packed weights go by: as an argument of the code, not a constant of it. (dynamic=False holds for all else.)
_HANDLES = r".*\._handle$"


def _compiled(what: Any) -> Any:
    torch._dynamo.config.recompile_limit = _RECOMPILE_LIMIT
    torch._dynamo.config.accumulated_recompile_limit = _RECOMPILE_LIMIT
    return torch.compile(what, dynamic=False, fullgraph=True)


@functools.cache
def _region(function: Callable[..., Any]) -> Callable[..., Any]:
    torch.compiler.config.dynamic_sources = _HANDLES
    return _compiled(function)


class _LayerCache:
    """The cache of one layer, for an attention that asks the whole one for it by its number: numbers would be constants of
    the code."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> Pair:
        return self.layer.update(keys, values)


def _run_layer(
    layer: torch.nn.Module, x: torch.Tensor, residual: torch.Tensor, mask: torch.Tensor | None, positions: Positions, cache: Any
) -> Pair:
    """transformers' Qwen3DecoderLayer of x + residual. What it returns, (result of the MLP, residual), is still to be added."""
    residual = x + residual
    y, _ = layer.self_attn(
        layer.input_layernorm(residual), position_embeddings=positions, attention_mask=mask, past_key_values=cache
    )
    residual = y + residual
    return layer.mlp(layer.post_attention_layernorm(residual)), residual


def _run_producer_layer(
    layer: torch.nn.Module, x: torch.Tensor, residual: torch.Tensor, mask: torch.Tensor | None, positions: Positions, cache: Any
) -> Pair:
    return layer((x, residual), position_embeddings=positions, attention_mask=mask, past_key_values=cache)


class _Region(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module, index: int, run: Callable[..., Pair]) -> None:
        super().__init__()
        self.layer = layer
        self.index = index
        self.run = run

    def forward(
        self,
        hidden_states: torch.Tensor | Pair,
        attention_mask: torch.Tensor | None,
        position_embeddings: Positions,
        past_key_values: Any,
        **_: Any,
    ) -> Pair:
        if not isinstance(hidden_states, tuple):
            hidden_states = (hidden_states, torch.zeros_like(hidden_states))
        cache = _LayerCache(past_key_values.layers[self.index])
        return self.run(self.layer, *hidden_states, attention_mask, position_embeddings, cache)


class _LastNorm(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, hidden_states: Pair) -> torch.Tensor:
        return _region(variants.add_and_norm)(self.norm, *hidden_states)


def _by_layers(model: torch.nn.Module) -> torch.nn.Module:
    made, inner = variants.shallow_copy(model)
    regions = []
    for index, layer in enumerate(inner.layers):
        run = _run_producer_layer if isinstance(layer, variants.ProducerLayer) else _run_layer
        regions.append(_Region(layer, index, _region(run)))
    inner.layers = torch.nn.ModuleList(regions)
    inner.norm = _LastNorm(inner.norm.norm if isinstance(inner.norm, variants.LastNorm) else inner.norm)
    return made


def compiled(model: torch.nn.Module, how: str) -> torch.nn.Module:
    """The same model, compiled for steps: "model" as a whole, "layers" layer by layer. The compiling is done by the first step
    of each number of sequences."""
    return _by_layers(model) if how == "layers" else _compiled(model)
