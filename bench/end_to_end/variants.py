# SPDX-License-Identifier: Apache-2.0
"""The same model with other linears. All FP8 variants hold the same codes and scales."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.qwen3 import modeling_qwen3

import octile.torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "accuracy"))
from linears import kill_switch

VARIANTS = {
    "bf16": "torch, bf16, as transformers has it",
    "fp8": "torch's row-wise FP8, a quantise kernel and torch._scaled_mm for each nn.Linear",
    "fp8_fused": "the same with q/k/v and gate/up fused",
    "octile_off": "Octile with q/k/v and gate/up fused and the kill switch off: the vendor's own choice",
    "octile": "Octile, each nn.Linear for itself, as quantize_ makes it",
    "octile_fused": "Octile with q/k/v and gate/up fused",
    "octile_producers": "the same, with (add +) norm and SwiGLU fused with the quantisation",
    "none": "no linears but lm_head: the rest of a step",
}
FUSED = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}

Codes = tuple[torch.Tensor, torch.Tensor]  # float8_e4m3fn [N, K] and fp32 [N, 1].
MakeLinear = Callable[[torch.Tensor, torch.Tensor], torch.nn.Module]


def quantise_in_torch(x: torch.Tensor) -> Codes:
    """Of rows, in operations that torch.compile fuses."""
    wide = x.float()
    scales = wide.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 448.0
    return (wide / scales).to(torch.float8_e4m3fn), scales


class TorchFp8Linear(torch.nn.Module):
    """torch's row-wise FP8 product behind a per-token quantiser."""

    def __init__(self, codes: torch.Tensor, scales: torch.Tensor, quantise: Callable[[torch.Tensor], Codes]) -> None:
        super().__init__()
        self.codes = codes
        self.scales = scales.reshape(1, -1).contiguous()
        self.quantise = quantise

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes, scales = self.quantise(x.reshape(-1, x.shape[-1]))
        if x.device.type == "cpu":  # torch has no row-wise product there.
            y = ((codes.float() @ self.codes.float().t()) * self.scales * scales).bfloat16()
        else:
            y = torch._scaled_mm(
                codes, self.codes.t(), scale_a=scales, scale_b=self.scales, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        return y.view(*x.shape[:-1], -1)


@torch.library.custom_op("octile_end_to_end::read", mutates_args=("rows",))
def read(x: torch.Tensor, rows: torch.Tensor) -> None:
    """Nothing, but a compiler has to make x for it, before rows may be read."""


@read.register_fake
def _read_fake(x: torch.Tensor, rows: torch.Tensor) -> None:
    """As read."""


class NoLinear(torch.nn.Module):
    """Rows that are there already, in the place of a product."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lead = x.shape[:-1]
        if torch.compiler.is_compiling():
            read(x, self.rows)  # Else all that makes x would be left out, as nothing uses it.
        return self.rows[: lead.numel()].view(*lead, -1)


class FusedAttention(torch.nn.Module):
    """transformers' Qwen3Attention with one linear for q, k and v."""

    def __init__(self, attention: torch.nn.Module, qkv: torch.nn.Module, o_proj: torch.nn.Module) -> None:
        super().__init__()
        self.attention = attention  # Its norms, and what attention functions read of it.
        for name in FUSED["qkv"] + ("o_proj",):
            delattr(attention, name)
        self.qkv = qkv
        self.o_proj = o_proj
        config = attention.config
        self.widths = [
            heads * attention.head_dim
            for heads in (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        ]

    def forward(
        self,
        hidden_states: torch.Tensor | octile.torch.Quantized,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None,
        past_key_values: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        its = self.attention
        qkv = self.qkv(hidden_states)
        lead = qkv.shape[:-1]
        q, k, v = (part.view(*lead, -1, its.head_dim) for part in qkv.split(self.widths, dim=-1))
        q, k, v = its.q_norm(q).transpose(1, 2), its.k_norm(k).transpose(1, 2), v.transpose(1, 2)
        q, k = modeling_qwen3.apply_rotary_pos_emb(q, k, *position_embeddings)
        k, v = past_key_values.update(k, v, its.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(its.config._attn_implementation, modeling_qwen3.eager_attention_forward)
        y, _ = attend(
            its, q, k, v, attention_mask, dropout=0.0, scaling=its.scaling, sliding_window=its.sliding_window, **kwargs
        )
        return self.o_proj(y.reshape(*lead, -1).contiguous()), None


class FusedMlp(torch.nn.Module):
    def __init__(self, gate_up: torch.nn.Module, down_proj: torch.nn.Module) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down_proj = down_proj

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down_proj(torch.nn.functional.silu(gate) * up)


class ProducerLayer(torch.nn.Module):
    """A decoder layer whose norms and SwiGLU hand codes to the linears. What it returns, (result of down, residual), is
    added by the next layer's norm."""

    def __init__(
        self, layer: torch.nn.Module, attention: FusedAttention, mlp: FusedMlp, device: torch.device, pdl: str
    ) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = mlp
        self.norm1, self.norm2 = (
            octile.torch.RmsNorm(norm.weight, norm.variance_epsilon, pdl=pdl)
            for norm in (layer.input_layernorm, layer.post_attention_layernorm)
        )
        self.swiglu = octile.torch.SwiGlu(mlp.down_proj.in_features, device=device, pdl=pdl)

    def forward(
        self, hidden_states: torch.Tensor | tuple[torch.Tensor, torch.Tensor], **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if isinstance(hidden_states, tuple):
            x, residual = self.norm1(*hidden_states)
        else:
            x, residual = self.norm1(hidden_states), hidden_states
        y, _ = self.attention(x, **kwargs)
        x, residual = self.norm2(y, residual)
        return self.mlp.down_proj(self.swiglu(self.mlp.gate_up(x))), residual


class LastNorm(torch.nn.Module):
    """The norm behind the last ProducerLayer."""

    def __init__(self, norm: torch.nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, hidden_states: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return add_and_norm(self.norm, *hidden_states)


def add_and_norm(norm: torch.nn.Module, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return norm(residual + x)


@dataclasses.dataclass
class LayerCodes:
    """Of the four weights of a layer, q/k/v and gate/up fused; `rows` of the parts of a fused one."""

    fused: dict[str, Codes]
    rows: dict[str, list[int]]

    @classmethod
    def of(cls, layer: torch.nn.Module) -> LayerCodes:
        parts = {
            "qkv": [layer.self_attn.get_submodule(part).weight for part in FUSED["qkv"]],
            "o": [layer.self_attn.o_proj.weight],
            "gate_up": [layer.mlp.get_submodule(part).weight for part in FUSED["gate_up"]],
            "down": [layer.mlp.down_proj.weight],
        }
        fused: dict[str, Codes] = {}
        for name, weights in parts.items():
            made = [octile.torch.quantize_weight(weight) for weight in weights]
            codes = torch.cat([codes.view(torch.uint8) for codes, _ in made]).view(torch.float8_e4m3fn)
            fused[name] = (codes, torch.cat([scales for _, scales in made]))
        return cls(fused, {name: [weight.shape[0] for weight in weights] for name, weights in parts.items()})

    def cpu(self) -> LayerCodes:
        return LayerCodes({name: (codes.cpu(), scales.cpu()) for name, (codes, scales) in self.fused.items()}, self.rows)

    def unfused(self, name: str) -> list[Codes]:
        codes, scales = self.fused[name]
        return list(zip(codes.split(self.rows[name]), scales.split(self.rows[name]), strict=True))


def copy_of(model: torch.nn.Module) -> torch.nn.Module:
    """The same modules anew, with the same tensors."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def shallow_copy(model: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A causal LM with the same modules, and its inner model: what is put in their place there leaves the first as it is."""
    made = copy.copy(model)
    made._modules = dict(model._modules)
    inner = made.model = copy.copy(model.model)
    inner._modules = dict(model.model._modules)
    return made, inner


def replace_linears(layer: torch.nn.Module, codes: LayerCodes, make: MakeLinear) -> None:
    attention, mlp = layer.self_attn, layer.mlp
    for parent, name in ((attention, "qkv"), (mlp, "gate_up")):
        for part, its in zip(FUSED[name], codes.unfused(name), strict=True):
            setattr(parent, part, make(*its))
    attention.o_proj = make(*codes.fused["o"])
    mlp.down_proj = make(*codes.fused["down"])


def fuse_linears(layer: torch.nn.Module, codes: LayerCodes, make: MakeLinear) -> None:
    made = {name: make(*its) for name, its in codes.fused.items()}
    layer.self_attn = FusedAttention(layer.self_attn, made["qkv"], made["o"])
    layer.mlp = FusedMlp(made["gate_up"], made["down"])


class Builder:
    """Makes variants of one model. FP8 codes are made once."""

    def __init__(
        self, model: torch.nn.Module, max_m: int, batch: int, threads: int = 1, compiled: bool = False, pdl: str = "full"
    ) -> None:
        self.model = model
        self.pdl = pdl
        self.device = model.lm_head.weight.device
        self.max_m = max_m
        self.batch = batch
        self.threads = threads
        self.quantise = quantise_in_torch
        if self.device.type == "cuda" and not compiled:
            import quantise_triton  # Not everywhere that torch is.

            self.quantise = quantise_triton.quantise_rows
        self.codes = [LayerCodes.of(layer) for layer in model.model.layers]
        self._fused: torch.nn.Module | None = None

    def make(self, variant: str) -> torch.nn.Module:
        if variant == "bf16":
            return self.model
        if variant == "none":
            return self._without_linears()
        if variant in ("fp8", "fp8_fused"):
            change = replace_linears if variant == "fp8" else fuse_linears
            return self._changed(change, lambda codes, scales: TorchFp8Linear(codes, scales, self.quantise), False)
        if variant == "octile_off":
            with kill_switch("off"):
                return self._changed(fuse_linears, self._octile_linear, True)
        with kill_switch("on"):
            if variant == "octile":
                return self._changed(replace_linears, self._octile_linear, True)
            if self._fused is None:
                self._fused = self._changed(fuse_linears, self._octile_linear, True)
            return self._fused if variant == "octile_fused" else self._with_producers(self._fused)

    def _octile_linear(self, codes: torch.Tensor, scales: torch.Tensor) -> torch.nn.Module:
        options = {"pdl": self.pdl}
        return octile.torch.Linear(codes, scales, device=self.device, dtype=torch.bfloat16, max_m=self.max_m, options=options)

    def _changed(self, change: Callable[..., None], make: MakeLinear, from_host: bool) -> torch.nn.Module:
        made = copy_of(self.model)

        @torch.no_grad()
        def one(index: int) -> None:
            codes = self.codes[index]
            layer = made.model.layers[index]
            change(layer, codes.cpu() if from_host else codes, make)
            for module in layer.modules():
                if isinstance(module, octile.torch.Linear):
                    module.drop_host_copy()

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(one, range(len(self.codes))))
        return made

    def _with_producers(self, fused: torch.nn.Module) -> torch.nn.Module:
        made, inner = shallow_copy(fused)
        layers = []
        for layer in fused.model.layers:
            for linear in (layer.self_attn.qkv, layer.mlp.gate_up, layer.mlp.down_proj):
                linear.prepare_codes()
            layers.append(ProducerLayer(layer, layer.self_attn, layer.mlp, self.device, self.pdl))
        inner.layers = torch.nn.ModuleList(layers)
        inner.norm = LastNorm(fused.model.norm)
        return made

    def _without_linears(self) -> torch.nn.Module:
        made = copy_of(self.model)
        rows: dict[tuple[str, int], torch.Tensor] = {}
        for layer in made.model.layers:
            for parent in (layer.self_attn, layer.mlp):
                for name, linear in list(parent.named_children()):
                    if isinstance(linear, torch.nn.Linear):
                        n = linear.out_features
                        if (name, n) not in rows:
                            rows[name, n] = torch.randn((self.batch, n), device=self.device).bfloat16()
                        setattr(parent, name, NoLinear(rows[name, n]))
        return made


def kernels_of(model: torch.nn.Module, rows: list[int]) -> dict[str, dict[str, str]]:
    """What serves each of Octile's shapes, by number of rows."""
    found: dict[str, dict[str, str]] = {}
    for module in model.modules():
        if isinstance(module, octile.torch.Linear):
            shape = f"{module.out_features}x{module.in_features}"
            if shape not in found:
                found[shape] = {str(m): module.explain(m)["kernel"] for m in rows}
    return found
