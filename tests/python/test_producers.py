# SPDX-License-Identifier: Apache-2.0
"""RmsNorm and SwiGlu: the numerics contract's steps in numpy, bit for bit, and what they refuse."""

import copy

import ml_dtypes
import numpy as np
import pytest
import support

import octile

DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}


def rounded(values, dtype):
    """To the activations' type and back."""
    return values.astype(DTYPES[dtype]).astype(np.float32)


def of_norm(x, weight, dtype, epsilon):
    """Each operation in fp32 but the sum of squares, whose order is the library's own: in double."""
    mean = (x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True)
    factor = (1 / np.sqrt(mean + epsilon)).astype(np.float32)
    return rounded(rounded(x * factor, dtype) * rounded(weight, dtype), dtype)


def assert_codes_of(codes, scales, y):
    """Those of the quantiser on y; the sum's rounding may move a value of y, and a code, by one place here and there."""
    want_codes, want_scales = support.quantize(y.reshape(-1, y.shape[-1]))
    got = support.DECODED[codes.view(np.uint8).reshape(want_codes.shape)] * scales.reshape(-1, 1)
    want = support.DECODED[want_codes] * want_scales
    assert np.abs(scales.reshape(-1, 1) / want_scales - 1).max() <= 2.0**-7
    assert np.linalg.norm(got - want) <= 2e-3 * np.linalg.norm(want)
    assert (codes.view(np.uint8).reshape(want_codes.shape) == want_codes).mean() >= 0.99


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("k", [16, 200, 1000])
def test_a_norm_gives_the_codes_of_what_a_models_norm_gives(rng, dtype, k):
    x = (rng.standard_normal((3, 7, k)) * 3).astype(DTYPES[dtype])
    weight = rng.uniform(0.5, 2, k).astype(np.float32)
    codes, scales = octile.RmsNorm(weight, 1e-5, dtype=dtype)(x)
    assert codes.shape == (3, 7, k) and scales.shape == (3, 7, 1) and scales.dtype == np.float32
    assert_codes_of(np.ascontiguousarray(codes), scales, of_norm(x.astype(np.float32), weight, dtype, 1e-5))


def test_a_residual_is_added_before_the_norm_and_comes_back(rng):
    x, residual = (rng.standard_normal((5, 48)).astype(ml_dtypes.bfloat16) for _ in range(2))
    norm = octile.RmsNorm(rng.uniform(0.5, 2, 48).astype(np.float32))
    codes, scales, total = norm(x, residual)
    want = (x.astype(np.float32) + residual.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(total.view(np.uint16), want.view(np.uint16))
    alone_codes, alone_scales = norm(want)
    np.testing.assert_array_equal(codes.view(np.uint8), alone_codes.view(np.uint8))
    np.testing.assert_array_equal(scales, alone_scales)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_swiglu_gives_the_codes_of_silu_gate_times_up(rng, dtype):
    gate_up = rng.standard_normal((6, 2 * 144)).astype(DTYPES[dtype])
    codes, scales = octile.SwiGlu(144, dtype=dtype)(gate_up)
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=-1)
    y = rounded(rounded((gate / (1 + np.exp(-gate))).astype(np.float32), dtype) * up.astype(np.float32), dtype)
    assert_codes_of(codes, scales, y)


def test_a_linear_of_codes_has_the_bits_of_the_linear_that_quantises(rng):
    k = 72  # No multiple of 16: rows of codes are padded.
    x = rng.standard_normal((9, k)).astype(ml_dtypes.bfloat16)
    weight = octile.Weight.quantize(rng.standard_normal((40, k)).astype(np.float32))
    norm = octile.RmsNorm(np.ones(k, np.float32))
    codes, scales = norm(x)
    assert codes.strides == (80, 1)
    y = octile.Linear(weight, activation="quantized", max_m=16)(codes, scales)
    unfused = of_norm(x.astype(np.float32), np.ones(k, np.float32), "bf16", 1e-6)
    want = octile.Linear(weight, max_m=16)(unfused.astype(ml_dtypes.bfloat16))
    error = np.linalg.norm(y.astype(np.float32) - want.astype(np.float32)) / np.linalg.norm(want.astype(np.float32))
    assert error <= 5e-3


def test_a_static_scale_is_every_rows_scale(rng):
    x = rng.standard_normal((4, 32)).astype(ml_dtypes.bfloat16)
    _, scales = octile.RmsNorm(np.ones(32, np.float32), static_scale=0.25)(x)
    np.testing.assert_array_equal(scales, np.full((4, 1), 0.25, np.float32))


def test_a_row_that_is_not_finite_becomes_nan_and_no_other_changes(rng):
    x = rng.standard_normal((3, 64)).astype(ml_dtypes.bfloat16)
    norm = octile.RmsNorm(np.ones(64, np.float32))
    want, _ = norm(x)
    x[1, 5] = np.nan
    codes, scales = norm(x)
    assert np.isnan(scales[1, 0]) and (codes.view(np.uint8)[1] & 0x7F == support.E4M3_NAN).all()
    np.testing.assert_array_equal(codes.view(np.uint8)[[0, 2]], want.view(np.uint8)[[0, 2]])


def test_an_empty_batch_gives_empty_results():
    codes, scales = octile.SwiGlu(32)(np.zeros((0, 64), ml_dtypes.bfloat16))
    assert codes.shape == (0, 32) and scales.shape == (0, 1)


def test_what_is_wrong_is_said():
    ones = np.ones(32, np.float32)
    norm = octile.RmsNorm(ones)
    x = np.zeros((2, 32), ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match=r"x: want \[..., 32\], got \[2, 31\]"):
        norm(x[:, 1:])
    with pytest.raises(ValueError, match="dtype=bf16 is given, but the array's elements are fp16"):
        norm(x.astype(np.float16))
    with pytest.raises(ValueError, match=r"residual: want \[2, 32\] as x has, got \[1, 32\]"):
        norm(x, x[:1])
    with pytest.raises(ValueError, match=r"weight: want bf16, fp16 or fp32 \[k\], got fp32 \[1, 32\]"):
        octile.RmsNorm(ones[None])
    with pytest.raises(ValueError, match="epsilon"):
        octile.RmsNorm(ones, 0.0)
    with pytest.raises(ValueError, match="fp32"):
        octile.SwiGlu(32, dtype="fp32")
    with pytest.raises(RuntimeError, match="cuda:99"):
        octile.SwiGlu(32, device="cuda:99")
    with pytest.raises(TypeError, match="is not pickled or copied"):
        copy.deepcopy(norm)
