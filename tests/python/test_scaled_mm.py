# SPDX-License-Identifier: Apache-2.0
"""octile.scaled_mm with the arguments of engines' functions."""

import ml_dtypes
import numpy as np
import pytest
import support

import octile


@pytest.fixture
def operands(rng):
    a, scale_a = support.quantize(rng.standard_normal((5, 72)).astype(np.float32))
    w, scale_w = support.random_weight(rng, 33, 72)
    return a, w.T, scale_a, scale_w.T, support.product(a, scale_a, w, scale_w)


def test_a_raw_b_is_column_major_k_by_n(operands):
    a, b, scale_a, scale_b, reference = operands
    assert b.shape == (72, 33) and b.strides == (1, 72)
    y = octile.scaled_mm(a, b, scale_a, scale_b, "fp32")
    support.assert_close(y, reference, "fp32", 72)
    with pytest.raises(ValueError, match=r"column-major.*got strides \(33, 1\)"):
        octile.scaled_mm(a, np.ascontiguousarray(b), scale_a, scale_b)


def test_the_arguments_stand_in_the_order_of_engines(operands, rng):
    a, b, scale_a, scale_b, reference = operands
    bias = rng.standard_normal(33).astype(np.float32)
    y = octile.scaled_mm(a, b, scale_a, scale_b, np.float16, bias)
    assert y.dtype == np.float16
    support.assert_close(y, reference + bias, "fp16", 72)
    assert octile.scaled_mm(a, b, scale_a, scale_b).dtype == np.uint16  # bf16 where nothing is said.
    typed = octile.scaled_mm(a.view(ml_dtypes.float8_e4m3fn), b.view(ml_dtypes.float8_e4m3fn), scale_a, scale_b)
    assert typed.dtype == ml_dtypes.bfloat16


def test_each_scale_has_one_meaning(operands):
    a, b, scale_a, scale_b, reference = operands
    for sa in (scale_a, scale_a[:, 0]):
        for sb in (scale_b, scale_b.T, scale_b[0]):
            support.assert_close(octile.scaled_mm(a, b, sa, sb, "fp32"), reference, "fp32", 72)
    one = octile.scaled_mm(a, b, np.full((5, 1), 0.25, np.float32), np.full((1, 33), 0.5, np.float32), "fp32")
    for sa in (np.float32(0.25), np.float32([0.25]), np.float32([[0.25]])):
        for sb in (0.5, np.float32([0.5]), np.float32([[0.5]])):
            np.testing.assert_array_equal(octile.scaled_mm(a, b, sa, sb, "fp32"), one)
    with pytest.raises(ValueError, match=r"scale_a: want fp32 \[5, 1\] or \[5\].*got \[1, 5\]"):
        octile.scaled_mm(a, b, scale_a.T, scale_b)
    with pytest.raises(ValueError, match=r"scales: want"):
        octile.scaled_mm(a, b, scale_a, scale_b[:, :5])


def test_a_raw_b_is_never_remembered(operands):
    a, b, scale_a, scale_b, reference = operands
    b = b.T.copy().T
    support.assert_close(octile.scaled_mm(a, b, scale_a, scale_b, "fp32"), reference, "fp32", 72)
    b[:] = 0  # The same memory, other codes.
    assert (octile.scaled_mm(a, b, scale_a, scale_b, "fp32") == 0).all()


def test_a_packed_b_is_what_was_packed(operands):
    a, b, scale_a, scale_b, reference = operands
    b, scale_b = b.T.copy().T, scale_b.copy()
    packed = octile.pack_b(b, scale_b, "fp32", max_m=8)
    b[:] = 0
    scale_b[:] = 7
    out = np.full((5, 33), np.nan, np.float32)
    assert octile.scaled_mm(a, packed, scale_a, out=out) is out
    support.assert_close(out, reference, "fp32", 72)
    with pytest.raises(ValueError, match="has its own"):
        octile.scaled_mm(a, packed, scale_a, scale_b)
    with pytest.raises(ValueError, match="packed for fp32, got bf16"):
        octile.scaled_mm(a, packed, scale_a, out_dtype="bf16")


def test_powers_of_two_as_scales_are_exact_in_every_row_and_column():
    m, n, k = 37, 70, 64
    ones = support.encode(np.float32([1]))[0]
    scale_a = (2.0 ** (np.arange(m) % 11 - 5)).astype(np.float32)[:, None]
    scale_b = (2.0 ** (np.arange(n) % 13 - 6)).astype(np.float32)[None]
    y = octile.scaled_mm(np.full((m, k), ones, np.uint8), np.full((n, k), ones, np.uint8).T, scale_a, scale_b, "fp32")
    np.testing.assert_array_equal(y, k * scale_a * scale_b)


def test_bad_operands_are_refused_in_words(operands):
    a, b, scale_a, scale_b, _ = operands
    with pytest.raises(ValueError, match=r"want \[\.\.\., 72\], got \[5, 70\]"):
        octile.scaled_mm(a[:, :70], b, scale_a, scale_b)
    with pytest.raises(ValueError, match=r"a: want \[M, K\], got \[72\]"):
        octile.scaled_mm(a[0], b, scale_a, scale_b)
    with pytest.raises(ValueError, match=r"b: want \[K, N\], got \[72\]"):
        octile.scaled_mm(a, b[:, 0], scale_a, scale_b)
    with pytest.raises(ValueError, match="scale_b: want the scales of b, got None"):
        octile.scaled_mm(a, b, scale_a)
