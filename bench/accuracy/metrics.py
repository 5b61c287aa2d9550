# SPDX-License-Identifier: Apache-2.0
"""What a changed model is measured by, in numpy and double precision: no torch, no model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms of probabilities along the last axis."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def negative_log_likelihood(log_probabilities: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Of each token [T] under log probabilities [T, V], in nats."""
    return -np.take_along_axis(log_probabilities, tokens[:, None], axis=-1)[:, 0]


def perplexity(nll: np.ndarray) -> float:
    return float(np.exp(np.mean(nll)))


def kl_divergence(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """KL(p || q) of each row of log probabilities, in nats."""
    return (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """The Frobenius norm of the error as a share of the norm of what was wanted."""
    error = np.linalg.norm(got.astype(np.float64) - want.astype(np.float64))
    norm = np.linalg.norm(want.astype(np.float64))
    return float(error / norm) if norm > 0 else float(error)


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse.reshape(-1)]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of two samples; NaN where all values of one are equal."""
    if a.shape != b.shape or a.ndim != 1 or a.size < 2:
        raise ValueError(f"spearman: want two samples of one size from 2 up, got {a.shape} and {b.shape}")
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm > 0 else float("nan")


def bootstrap_interval(
    units: int, statistic: Callable[[np.ndarray], float], resamples: int = 2000, seed: int = 0
) -> dict[str, float]:
    """statistic(indices) over all units, and its 95 % percentile interval over units drawn again with replacement.

    Units are what is independent: a block of text and not a token of it.
    """
    if units < 2:
        raise ValueError(f"bootstrap: want 2 units or more, got {units}")
    generator = np.random.default_rng(seed)
    drawn = [statistic(generator.integers(units, size=units)) for _ in range(resamples)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"value": float(statistic(np.arange(units))), "lo": float(low), "hi": float(high)}
