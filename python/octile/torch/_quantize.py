# SPDX-License-Identifier: Apache-2.0
"""A model's linears replaced by octile.torch.Linear."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import torch

from octile._core import QuantizeOptions
from octile.torch import _ops
from octile.torch._linear import Linear

ACTIVATIONS = (torch.bfloat16, torch.float16)


@dataclasses.dataclass
class Report:
    """What quantize_ did: the names of modules that were replaced, and why others that hold a weight were left."""

    replaced: list[str] = dataclasses.field(default_factory=list)
    left: dict[str, str] = dataclasses.field(default_factory=dict)


def quantize_(
    model: torch.nn.Module,
    filter: Callable[[str, torch.nn.Module], bool] | None = None,
    *,
    skip: Collection[str] = ("lm_head",),
    max_m: int = 256,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    quantize: str | QuantizeOptions = "octile",
    max_sms: int | None = None,
    name: str | None = None,
    **options: Any,
) -> Report:
    """Replaces, in place, every nn.Linear in bf16 or fp16, and every module that already holds e4m3 weights.

    Weights of nn.Linear are quantised with one scale an output channel; e4m3 weights (`weight` in float8_e4m3fn with
    `weight_scale` [N, 1], [N] or one for all, as compressed-tensors, fbgemm and others have them) are taken over as they
    are, with `input_scale` as a static scale of activations and `input_scale_ub` as an upper bound of dynamic ones.
    Block-scaled weights are refused by name, before anything is changed.

    `filter(name, module)`: which to replace; `skip`: last parts of names that are left in any case. By default that is
    lm_head, which often shares its weight with the embedding and decides the next token by small differences; skip=() takes
    it, too. `max_m`: rows to prepare for. `device`, `dtype`: default, each weight's own (bf16 where e4m3 weights have
    neither a bias nor scales of 16 bits that tell). `max_sms`: multiprocessors of a GPU that each product keeps to, which
    leaves the others to kernels of communication. `name`: of the model; its modules are then known to graphs as
    "name.model.layers.0.mlp.up_proj" in every process, for graphs that are kept in files. `options`: octile.Weight's.
    """
    plan: dict[int, tuple[torch.nn.Module, dict[str, Any]]] = {}
    report = Report()
    places: list[tuple[str, torch.nn.Module, str, int]] = []
    for path, parent, child_name, module in _children(model):
        parts = _parts_of(path, module)
        if parts is None:
            continue
        reason = parts.pop("reason", None)
        if child_name in skip:
            reason = f"skip has {child_name!r}"
        elif filter is not None and not filter(path, module):
            reason = "the filter left it"
        if reason is not None:
            report.left[path] = reason
            continue
        if "error" in parts:
            raise ValueError(f"{path}: {parts['error']}")
        if name is not None and id(module) not in plan:
            parts["name"] = f"{name}.{path}"
            _ops.require_free(parts["name"])
        if id(module) not in plan and not _is_finite(module.weight):
            raise ValueError(f"{path}: its weight has values that are not finite, which have no scale")
        plan.setdefault(id(module), (module, parts))
        places.append((path, parent, child_name, id(module)))
    made: dict[int, Linear] = {}
    for path, parent, child_name, key in places:
        if key not in made:
            module, parts = plan.pop(key)
            try:
                made[key] = _make(
                    module, parts, max_m, device, dtype, {"quantize": quantize, "max_sms": max_sms, "options": options}
                )
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
        setattr(parent, child_name, made[key])
        report.replaced.append(path)
    return report


def _is_finite(weight: torch.Tensor) -> bool:
    """Without a copy of it; of e4m3 codes, whose NaN is a value like others, always."""
    if weight.dtype not in ACTIVATIONS or weight.numel() == 0:
        return True
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(weight.detach()))


def _children(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module, str, torch.nn.Module]]:
    """(name, parent, name in the parent, module) of every module below `model`, shared ones once for each place."""
    if _parts_of("", model) is not None:
        raise ValueError(
            f"model: want a module that holds linears, got a {type(model).__name__}, which cannot be replaced "
            "in place: use octile.torch.Linear.from_float"
        )
    return [
        (f"{prefix}.{child_name}" if prefix else child_name, parent, child_name, child)
        for prefix, parent in model.named_modules()
        for child_name, child in parent._modules.items()
        if child is not None
    ]


def _parts_of(name: str, module: torch.nn.Module) -> dict[str, Any] | None:
    """What a Linear is made of; None for a module that is no linear. "reason": why it is left; "error": why it is refused."""
    if isinstance(module, Linear):
        return None
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
        return None
    if weight.dtype == torch.float8_e4m3fn:
        return _fp8_parts(module, weight)
    if weight.dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz):
        return {"error": f"its weight is {weight.dtype}: only float8_e4m3fn is read"}
    if type(module) is not torch.nn.Linear:
        # A subclass may use its weight elsewhere, as nn.MultiheadAttention does.
        return {"reason": f"a {type(module).__name__} is no plain nn.Linear"} if isinstance(module, torch.nn.Linear) else None
    if type(weight) not in (torch.nn.Parameter, torch.Tensor):
        return {"reason": f"its weight is a {type(weight).__name__}"}
    if weight.is_meta:
        return {"error": "its weight is on the meta device and has no values"}
    if weight.dtype not in ACTIVATIONS:
        return {"error": f"want a model in bfloat16 or float16, got {weight.dtype}: convert it with model.bfloat16()"}
    return without_hooks(module, {})


def _fp8_parts(module: torch.nn.Module, weight: torch.Tensor) -> dict[str, Any]:
    n, k = weight.shape
    scale = getattr(module, "weight_scale", None)
    inverse = getattr(module, "weight_scale_inv", None)
    if scale is None and inverse is not None:
        return {
            "error": f"block-scaled weights (weight_scale_inv {list(inverse.shape)}) are not supported: want one scale an "
            "output channel or one for all"
        }
    if not isinstance(scale, torch.Tensor):
        return {"error": "it holds float8_e4m3fn weights without a weight_scale"}
    if tuple(scale.shape) not in ((n, 1), (n,)) and scale.numel() != 1:
        kind = "block-scaled weights" if scale.dim() == 2 else "weight scales"
        return {
            "error": f"{kind} (weight_scale {list(scale.shape)} of a weight [{n}, {k}]) are not supported: want [{n}, 1], "
            f"[{n}] or one for all"
        }
    bias = getattr(module, "bias", None)
    parts: dict[str, Any] = {"codes": weight, "scales": scale, "bias": bias}
    known = [t.dtype for t in (bias, scale) if isinstance(t, torch.Tensor) and t.dtype in ACTIVATIONS]
    parts["dtype"] = known[0] if known else torch.bfloat16
    input_scale = getattr(module, "input_scale", None)
    if isinstance(input_scale, torch.Tensor):
        if input_scale.numel() != 1:
            return {"error": f"input_scale: want one for all activations, got {list(input_scale.shape)}"}
        parts.update(activation="static_per_tensor", static_scale=float(input_scale))
    bound = getattr(module, "input_scale_ub", None)
    if isinstance(bound, torch.Tensor) and bound.numel() == 1 and float(bound) > 0:
        parts["quantize"] = QuantizeOptions(upper_bound=float(bound))
    return without_hooks(module, parts)


def without_hooks(module: torch.nn.Module, parts: dict[str, Any]) -> dict[str, Any]:
    """Hooks and replaced forwards would be lost in silence."""
    if module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__:
        return {"error": "it has forward hooks, which its replacement would not have: remove them first"}
    return parts


def _make(
    module: torch.nn.Module,
    parts: dict[str, Any],
    max_m: int,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
    others: dict[str, Any],
) -> Linear:
    arguments: dict[str, Any] = {"max_m": max_m, **others, **parts}
    if device is not None:
        arguments["device"] = device
    if dtype is not None:
        arguments["dtype"] = dtype
    if "codes" not in arguments:
        return Linear.from_float(module, **arguments).train(module.training)
    codes, scales, bias = (arguments.pop(part) for part in ("codes", "scales", "bias"))
    arguments.setdefault("device", codes.device)
    return Linear(codes, scales, bias, **arguments).train(module.training)
