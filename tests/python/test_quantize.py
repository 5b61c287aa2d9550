# SPDX-License-Identifier: Apache-2.0
"""quantize_per_token against the oracle, bit for bit."""

import ml_dtypes
import numpy as np
import pytest
import support

import octile


def rows_with_outliers(rng, m, k):
    x = rng.standard_normal((m, k)).astype(np.float32)
    x[rng.random((m, k)) < 1e-3] *= 100
    return x


@pytest.mark.parametrize("k", [1, 4, 20, 257])
def test_codes_and_scales_of_fp32_are_the_oracles(rng, k):
    x = rows_with_outliers(rng, 33, k)
    codes, scales = octile.quantize_per_token(x)
    want_codes, want_scales = support.quantize(x)
    assert codes.dtype == np.uint8 and scales.dtype == np.float32 and scales.shape == (33, 1)
    np.testing.assert_array_equal(scales, want_scales)
    np.testing.assert_array_equal(codes, want_codes)


def test_fp16_and_bf16_in_three_disguises_are_read_for_what_they_are(rng):
    x = rows_with_outliers(rng, 9, 130)
    half = x.astype(np.float16)
    np.testing.assert_array_equal(octile.quantize_per_token(half)[0], support.quantize(half.astype(np.float32))[0])
    np.testing.assert_array_equal(
        octile.quantize_per_token(half.view(np.uint16), dtype="fp16")[0], octile.quantize_per_token(half)[0]
    )
    bits = support.to_bf16(x)
    want = support.quantize(support.from_bf16(bits))[0]
    np.testing.assert_array_equal(octile.quantize_per_token(bits, dtype="bf16")[0], want)
    typed = octile.quantize_per_token(bits.view(ml_dtypes.bfloat16))[0]
    assert typed.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_array_equal(typed.view(np.uint8), want)


def test_conversion_agrees_with_ml_dtypes_up_to_448(rng):
    # Every scale is 1: what is left is the conversion alone.
    x = rng.uniform(-448, 448, (16, 512)).astype(np.float32)
    x[:, 0] = 448
    codes, scales = octile.quantize_per_token(x)
    assert (scales == 1).all()
    np.testing.assert_array_equal(codes, x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_becomes_nan_and_no_other_changes(rng, bad):
    x = rows_with_outliers(rng, 5, 48)
    want_codes, want_scales = octile.quantize_per_token(x)
    x[3, 17] = bad
    codes, scales = octile.quantize_per_token(x)
    assert (codes[3] & 0x7F == support.E4M3_NAN).all() and np.isnan(scales[3, 0])
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(codes[others], want_codes[others])
    np.testing.assert_array_equal(scales[others], want_scales[others])


def test_rows_of_zeros_and_of_tiny_values_have_positive_scales():
    x = np.zeros((3, 16), np.float32)
    x[1] = 1e-38
    x[2] = 1e-40
    codes, scales = octile.quantize_per_token(x)
    assert (codes[0] == 0).all() and (scales > 0).all() and np.isfinite(scales).all()
    np.testing.assert_array_equal(codes, support.quantize(x)[0])


def test_an_upper_bound_saturates_at_448():
    x = np.array([[464.1, 480.0, -1e30, 1.0]], np.float32)
    codes, scales = octile.quantize_per_token(x, quantize=octile.QuantizeOptions(upper_bound=448.0))
    assert scales[0, 0] == 1
    np.testing.assert_array_equal(support.DECODED[codes[0]], [448, 448, -448, 1])


def test_vllms_preset_has_its_floor():
    scales = octile.quantize_per_token(np.zeros((1, 8), np.float32), quantize="vllm")[1]
    assert scales[0, 0] == pytest.approx(1 / (448 * 512), rel=1e-6)


def test_padded_rows_are_read_in_place_and_leading_dimensions_are_kept(rng):
    wide = rows_with_outliers(rng, 12, 64)
    x = wide[:, 8:40]
    np.testing.assert_array_equal(octile.quantize_per_token(x)[0], support.quantize(x.copy())[0])
    codes, scales = octile.quantize_per_token(x.reshape(3, 4, 32))
    assert codes.shape == (3, 4, 32) and scales.shape == (3, 4, 1)


def test_results_go_where_out_says(rng):
    x = rows_with_outliers(rng, 6, 40)
    codes = np.full((6, 40), 0xFF, np.uint8)
    scales = np.full(6, np.nan, np.float32)
    returned = octile.quantize_per_token(x, out=(codes, scales))
    assert returned[0] is codes and returned[1] is scales
    np.testing.assert_array_equal(codes, support.quantize(x)[0])
    np.testing.assert_array_equal(scales, support.quantize(x)[1][:, 0])


def test_an_empty_batch_gives_empty_results():
    codes, scales = octile.quantize_per_token(np.zeros((0, 7), np.float32))
    assert codes.shape == (0, 7) and scales.shape == (0, 1)


def test_bad_arguments_are_refused_in_words(rng):
    x = np.asarray(rows_with_outliers(rng, 4, 6))
    with pytest.raises(ValueError, match=r"strides \(1, 4\)"):
        octile.quantize_per_token(np.asfortranarray(x))
    with pytest.raises(ValueError, match="strides"):
        octile.quantize_per_token(x[:, ::2])
    with pytest.raises(ValueError, match="strides"):
        octile.quantize_per_token(x[::-1])
    with pytest.raises(ValueError, match="float64"):
        octile.quantize_per_token(x.astype(np.float64))
    with pytest.raises(ValueError, match="uint16"):
        octile.quantize_per_token(support.to_bf16(x))
    with pytest.raises(ValueError, match="dtype=bf16 is given.*fp32"):
        octile.quantize_per_token(x, dtype="bf16")
    with pytest.raises(ValueError, match="byte order"):
        octile.quantize_per_token(x.astype(">f4"))
    with pytest.raises(ValueError, match="byte order"):
        octile.quantize_per_token(np.array([[None]]))
    with pytest.raises(ValueError, match="'tensorrt'"):
        octile.quantize_per_token(x, quantize="tensorrt")
    with pytest.raises(ValueError, match="floor"):
        octile.quantize_per_token(x, quantize=octile.QuantizeOptions(floor=0.0))
    with pytest.raises(TypeError, match="want an array.*list"):
        octile.quantize_per_token([[1.0, 2.0]])
    with pytest.raises(ValueError, match="scalar"):
        octile.quantize_per_token(np.float32(1).reshape(()))
    with pytest.raises(ValueError, match=r"out\[0\]: want \[4, 6\], got \[4, 5\]"):
        octile.quantize_per_token(x, out=(np.zeros((4, 5), np.uint8), np.zeros(4, np.float32)))
    with pytest.raises(ValueError, match=r"out\[1\]"):
        octile.quantize_per_token(x, out=(np.zeros((4, 6), np.uint8), np.zeros(4, np.float64)))
    read_only = np.zeros((4, 6), np.uint8)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match=r"out\[0\]: want an array that may be written"):
        octile.quantize_per_token(x, out=(read_only, np.zeros(4, np.float32)))
