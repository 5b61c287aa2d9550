# SPDX-License-Identifier: Apache-2.0
"""Parts of models in torch's own operations, which fused ones are compared with."""

import torch


def models_norm(x, weight, epsilon=1e-6):
    """As transformers' Llama and Qwen have it."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype)
