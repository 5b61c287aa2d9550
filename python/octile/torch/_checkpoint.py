# SPDX-License-Identifier: Apache-2.0
"""The linears of an FP8 checkpoint put in the place of a model's."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from octile import _checkpoint
from octile.torch._linear import Linear
from octile.torch._quantize import ACTIVATIONS, Report, without_hooks


def load_checkpoint_(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    max_m: int = 256,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    name: str | None = None,
    **options: Any,
) -> Report:
    """Replaces, in place, the linears of a model's layers by the e4m3 ones of the checkpoint in directory `path`.

    Modules are found by the checkpoint's own names, "model.layers.0.self_attn.q_proj": the model may be on the meta device,
    since their weights are not read. Linears that the checkpoint holds in bf16 or fp16 are left as they are, and so is all
    else: embeddings, norms, lm_head. Nothing is replaced before every weight was read and packed. `device`, `dtype`: by
    default each module's own, the CPU for one on the meta device, bf16 for one that is neither bf16 nor fp16. `max_m`,
    `name`, `options`: as quantize_'s.
    """
    checkpoint = _checkpoint.load_checkpoint(path, fuse=False, mmap=False)
    report = Report()
    made: list[tuple[torch.nn.Module, str, Linear]] = []
    for entry in checkpoint.entries:
        parent, child_name, module = _find(model, entry.name, entry.shape)
        if entry.dtype != "e4m3":
            report.left[entry.name] = f"the checkpoint holds it in {entry.dtype}"
            continue
        known_as = None if name is None else f"{name}.{entry.name}"
        linear = _make(checkpoint[entry.name], module, max_m, device, dtype, known_as, options)
        made.append((parent, child_name, linear))
        report.replaced.append(entry.name)
    for parent, child_name, linear in made:
        setattr(parent, child_name, linear)
    return report


def _find(model: torch.nn.Module, name: str, shape: tuple[int, int]) -> tuple[torch.nn.Module, str, torch.nn.Module]:
    """(parent, name in the parent, module) of the linear `name`."""
    parent_name, _, child_name = name.rpartition(".")
    try:
        parent = model.get_submodule(parent_name)
        module = parent.get_submodule(child_name)
    except AttributeError:
        raise ValueError(f"model: want a module {name}, as the checkpoint names it, and there is none") from None
    got = (getattr(module, "out_features", None), getattr(module, "in_features", None))
    if got != shape:
        raise ValueError(f"{name}: want a linear {list(shape)}, got a {type(module).__name__} {list(got)}")
    hooks = without_hooks(module, {})
    if "error" in hooks:
        raise ValueError(f"{name}: {hooks['error']}")
    return parent, child_name, module


def _make(
    stored: _checkpoint.CheckpointLinear,
    module: torch.nn.Module,
    max_m: int,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
    name: str | None,
    options: dict[str, Any],
) -> Linear:
    # An octile.Linear's weight is codes in host memory, if it is kept at all.
    own = module if isinstance(module, Linear) else module.weight
    if device is None:
        device = "cpu" if own.device.type == "meta" else own.device
    if dtype is None:
        dtype = own.dtype if own.dtype in ACTIVATIONS else torch.bfloat16
    bias = None if stored.bias is None else torch.from_numpy(np.array(stored.bias))
    linear = Linear(
        torch.from_numpy(np.array(stored.codes)).view(torch.float8_e4m3fn),
        torch.from_numpy(np.array(stored.scales)),
        bias,
        device=device,
        dtype=dtype,
        max_m=max_m,
        activation=stored.activation,
        static_scale=stored.static_scale,
        quantize=stored.quantize,
        options=options,
        name=name,
    )
    return linear.train(module.training)
