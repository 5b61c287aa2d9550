# SPDX-License-Identifier: Apache-2.0
"""The numerics contract once more, in numpy and double precision, written apart from the library: the oracle of the tests."""

from __future__ import annotations

import numpy as np

E4M3_NAN = 0x7F
MAX = 448.0
# One rounding to the output type errs by at most this share of a value.
OUTPUT_ERROR = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-23}


def _decode_one(code: int) -> float:
    exponent, mantissa = (code >> 3) & 15, code & 7
    sign = -1.0 if code & 0x80 else 1.0
    if code & 0x7F == E4M3_NAN:
        return np.nan
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (8 + mantissa) * 2.0 ** (exponent - 10)


DECODED = np.array([_decode_one(code) for code in range(256)])
_MAGNITUDES = DECODED[:E4M3_NAN]
_MIDPOINTS = (_MAGNITUDES[1:] + _MAGNITUDES[:-1]) / 2


def encode(values: np.ndarray) -> np.ndarray:
    """e4m3 codes, round to nearest even, saturated. Finite values only."""
    magnitude = np.abs(values.astype(np.float64))
    lower = np.searchsorted(_MIDPOINTS, magnitude, side="left")
    tie = (lower < _MIDPOINTS.size) & (magnitude == _MIDPOINTS[np.minimum(lower, _MIDPOINTS.size - 1)])
    codes = lower + (tie & (lower % 2 == 1))
    return (codes | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def quantize(x: np.ndarray, floor: float = 448.0 * 2.0**-126) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales [M, 1] of x [M, K] fp32."""
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(x).all(axis=1)
        safe = np.where(finite[:, None], x, np.float32(0))
        amax = np.maximum(np.abs(safe).max(axis=1), np.float32(floor))
        scales = (amax / np.float32(MAX)).astype(np.float32)
        codes = encode((safe / scales[:, None]).astype(np.float32))
    codes[~finite] = E4M3_NAN
    scales[~finite] = np.nan
    return codes, scales[:, None]


def product(
    codes_x: np.ndarray,
    scales_x: np.ndarray,
    codes_w: np.ndarray,
    scales_w: np.ndarray,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """The linear in double precision, before the rounding of the output."""
    y = (DECODED[codes_x] @ DECODED[codes_w].T) * scales_w.reshape(1, -1).astype(np.float64)
    y = y * scales_x.reshape(-1, 1).astype(np.float64)
    return y if bias is None else y + bias.astype(np.float64)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """The bits of fp32 values rounded to bf16, nearest even; NaN stays NaN."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def tolerance(out_dtype: str, k: int) -> float:
    """Relative Frobenius error that rounding explains: one rounding of the output, and fp32 accumulation over K, which errs
    by about 2^-24 sqrt(K) of a sum of magnitudes that is itself about sqrt(K) times the result."""
    return OUTPUT_ERROR[out_dtype] + 2.0**-24 * k + 2.0**-22


def assert_close(y: np.ndarray, reference: np.ndarray, out_dtype: str, k: int) -> None:
    y = y.astype(np.float64)
    assert y.shape == reference.shape, f"shape: want {reference.shape}, got {y.shape}"
    nan = np.isnan(y) != np.isnan(reference)
    assert not nan.any(), f"NaN on one side only, first at {np.argwhere(nan)[0].tolist()}"
    valid = ~np.isnan(reference)
    error = np.where(valid, y - np.where(valid, reference, 0), 0)
    norm = np.linalg.norm(reference[valid])
    relative = np.linalg.norm(error) / norm if norm > 0 else np.abs(error).max(initial=0)
    worst = np.unravel_index(np.abs(error).argmax(), error.shape) if error.size else ()
    assert relative <= tolerance(out_dtype, k), (
        f"relative error {relative:.3e} beyond {tolerance(out_dtype, k):.3e}; worst at {worst}: "
        f"want {reference[worst]}, got {y[worst]}"
    )


def random_weight(rng: np.random.Generator, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes [N, K] and scales [N, 1] that differ by channel."""
    return quantize((rng.standard_normal((n, k)) * rng.uniform(0.1, 4, (n, 1))).astype(np.float32))
