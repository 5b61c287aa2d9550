# SPDX-License-Identifier: Apache-2.0
"""The linears that are compared, each in the place of a model's own, and what each of them does to its outputs.

A model keeps its embeddings, norms, attention, residuals and lm_head in fp32 in every variant and calls its linears through
call(), so that variants differ in their linears alone.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import octile.torch

SWITCH = "OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE"
# The first is what all are compared with.
OF_OCTILE = ("baseline", "octile_fast", "octile_precise")
VARIANTS = ("fp32", "bf16", "ideal_fp8", *OF_OCTILE)


def call(linear: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """linear(x) in the linear's own type, back in fp32."""
    dtype = linear.weight.dtype if type(linear) is torch.nn.Linear else linear.dtype
    return linear(x.to(dtype)).float()


def linear_names(model: torch.nn.Module) -> list[str]:
    """Every linear but lm_head, which quantize_ leaves, too."""
    return [
        name
        for name, module in model.named_modules()
        if type(module) is torch.nn.Linear and name.rpartition(".")[2] != "lm_head"
    ]


class IdealLinear(torch.nn.Module):
    """The numerics contract with nothing lost but what e4m3 loses: exact products summed in fp64, one rounding to bf16."""

    dtype = torch.bfloat16

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.codes, self.scales = octile.torch.quantize_weight(linear.weight)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        codes, scales = octile.torch.quantize_weight(rows)  # One scale a row: a token here, a channel there.
        y = (codes.double() @ self.codes.double().T) * self.scales.double().T * scales.double()
        if self.bias is not None:
            y = y + self.bias.double()
        return y.to(self.dtype).reshape(*x.shape[:-1], -1)


@contextlib.contextmanager
def kill_switch(state: str) -> Iterator[None]:
    """Linears that are packed inside have the kill switch in this state for all their life."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = state
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def with_bf16_weights(model: torch.nn.Module) -> torch.nn.Module:
    """The fp32 model whose linears hold values of bf16, as a checkpoint in bf16 has them."""
    with torch.no_grad():
        for name in linear_names(model):
            for parameter in model.get_submodule(name).parameters():
                parameter.copy_(parameter.bfloat16().float())
    return model


def tables_for(tables: str, accumulate: str) -> str:
    """The folder of tables of one kind of sums."""
    return str(Path(tables) / accumulate) if tables else ""


def make(variant: str, reference: torch.nn.Module, max_m: int, tables: str = "") -> torch.nn.Module:
    """A model that shares all but its linears with the reference."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*reference.parameters(), *reference.buffers())}
    model = copy.deepcopy(reference, shared)
    if variant == "fp32":
        return model
    for name in linear_names(model):
        parent, _, child = name.rpartition(".")
        source = reference.get_submodule(name)
        if variant == "ideal_fp8":
            made: torch.nn.Module = IdealLinear(source)
        else:
            made = torch.nn.Linear(source.in_features, source.out_features, source.bias is not None, device="meta")
            made.weight = torch.nn.Parameter(source.weight.detach().bfloat16(), requires_grad=False)
            if source.bias is not None:
                made.bias = torch.nn.Parameter(source.bias.detach().bfloat16(), requires_grad=False)
        setattr(model.get_submodule(parent), child, made)
    if variant in ("bf16", "ideal_fp8"):
        return model
    options = {"baseline": {}, "octile_fast": {"accumulate": "fast"}, "octile_precise": {"accumulate": "precise"}}[variant]
    if options and tables:
        folder = tables_for(tables, options["accumulate"])
        if not Path(folder).is_dir():  # On a CPU both kinds are one.
            folder = tables_for(tables, "fast")
        options["tables"] = folder
    with kill_switch("off" if variant == "baseline" else "on"):
        octile.torch.quantize_(model, max_m=max_m, **options)
    for module in model.modules():
        if isinstance(module, octile.torch.Linear):
            module.drop_host_copy()
    return model


@contextlib.contextmanager
def recorded(model: torch.nn.Module, names: list[str]) -> Iterator[dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """(x, y) of the last call of each linear."""
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(name: str) -> Any:
        return lambda _, inputs, output: seen.__setitem__(name, (inputs[0], output))

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float(torch.linalg.norm(got.double() - want.double()) / torch.linalg.norm(want.double()))


def layer_errors(
    reference: torch.nn.Module, model: torch.nn.Module, inputs: Any, names: list[str]
) -> dict[str, dict[str, float]]:
    """Relative Frobenius errors of each linear's outputs: `local` on the reference's activations, `accumulated` on its own."""
    with recorded(reference, names) as wanted:
        reference(inputs)
    with recorded(model, names) as got:
        model(inputs)
    return {
        name: {
            "local": _error(call(model.get_submodule(name), wanted[name][0]), wanted[name][1]),
            "accumulated": _error(got[name][1], wanted[name][1]),
        }
        for name in names
    }
