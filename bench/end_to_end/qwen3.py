# SPDX-License-Identifier: Apache-2.0
"""transformers' Qwen3 with random weights, made where it will run, and its static cache."""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache

# Qwen/Qwen3-8B's config.json.
QWEN3_8B = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
    "tie_word_embeddings": False,
}
TINY = {
    **QWEN3_8B,
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def make_model(sizes: dict[str, object], layers: int | None, device: torch.device, seed: int) -> Qwen3ForCausalLM:
    """In bf16, with the random weights that transformers initialises it with."""
    if layers is not None:
        sizes = {**sizes, "num_hidden_layers": layers}
    config = Qwen3Config(**sizes)
    config._attn_implementation = "sdpa"
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval().requires_grad_(False)


class Sequences:
    """`count` sequences with the same number of tokens, and what a step reads and writes in place."""

    def __init__(self, config: Qwen3Config, count: int, prompt: int, new: int, device: torch.device) -> None:
        self.count = count
        self.prompt = torch.randint(config.vocab_size, (count, prompt), device=device)
        self.token = torch.zeros((count, 1), dtype=torch.int64, device=device)
        self.cache = StaticCache(config=config, max_cache_len=prompt + new)

    def prefill(self, model: torch.nn.Module) -> torch.Tensor:
        """Logits [count, vocabulary] behind the prompt; the token that they give is the next step's."""
        self.cache.reset()
        logits = self._run(model, self.prompt)
        for layer in self.cache.layers:
            for tensor in (layer.keys, layer.values, layer.cumulative_length):
                # transformers has compiled code for these very tensors alone: it would be compiled anew for each cache.
                torch._dynamo.mark_static_address(tensor, guard=False)
        return logits

    def step(self, model: torch.nn.Module) -> torch.Tensor:
        return self._run(model, self.token)

    def set_length(self, tokens: int) -> None:
        """Goes on behind so many tokens of the cache."""
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(tokens)

    def _run(self, model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits[:, -1]
        self.token.copy_(logits.argmax(dim=-1, keepdim=True))
        return logits
