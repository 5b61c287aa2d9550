# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch in the functions of octile itself."""

import numpy as np
import pytest
import support

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
import octile  # noqa: E402


def bits(tensor):
    return (
        tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.int16)
        .numpy()
        .view(np.uint8 if tensor.element_size() == 1 else np.uint16)
    )


@pytest.fixture
def weight(rng):
    return torch.from_numpy(rng.standard_normal((33, 72)).astype(np.float32))


def test_codes_are_float8_tensors_with_the_oracles_bits(rng):
    x = torch.from_numpy(rng.standard_normal((4, 3, 50)).astype(np.float32)).bfloat16()
    codes, scales = octile.quantize_per_token(x)
    assert codes.dtype == torch.float8_e4m3fn and codes.shape == x.shape and scales.shape == (4, 3, 1)
    want_codes, want_scales = support.quantize(x.float().numpy().reshape(12, 50))
    np.testing.assert_array_equal(bits(codes).reshape(12, 50), want_codes)
    np.testing.assert_array_equal(scales.numpy().reshape(12, 1), want_scales)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_linear_of_tensors_is_the_oracles(rng, weight, dtype):
    x = torch.from_numpy(rng.standard_normal((2, 5, 72)).astype(np.float32)).to(dtype)
    bias = torch.from_numpy(rng.standard_normal(33).astype(np.float32))
    linear = octile.Linear(octile.Weight.quantize(weight, out_dtype=dtype), bias, x_dtype=dtype, max_m=16)
    y = linear(x)
    assert y.dtype == dtype and y.shape == (2, 5, 33)
    reference = support.product(
        *support.quantize(x.float().numpy().reshape(10, 72)), *support.quantize(weight.numpy()), bias.numpy()
    )
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    support.assert_close(y.float().numpy().reshape(10, 33), reference, name, 72)
    out = torch.full_like(y, torch.nan)
    assert linear(x, out=out) is out and torch.equal(out, y)


def test_views_are_read_in_place_and_others_refused(weight):
    linear = octile.Linear(octile.Weight.quantize(weight), max_m=8)
    wide = torch.randn(6, 100).bfloat16()
    assert torch.equal(linear(wide[:, 5:77]), linear(wide[:, 5:77].contiguous()))
    with pytest.raises(ValueError, match=r"strides \(1, 6\)"):
        linear(torch.randn(72, 6).bfloat16().t())


def test_float8_tensors_need_no_dlpack(weight):
    codes, scales = octile.quantize_per_token(weight)
    linear = octile.Linear(octile.Weight(codes, scales.bfloat16()), max_m=4)
    again = octile.Linear(octile.Weight(codes.view(torch.uint8), scales.bfloat16()), max_m=4)
    x = torch.randn(3, 72).bfloat16()
    assert torch.equal(linear(x), again(x))


def test_scaled_mm_replaces_torchs(rng, weight):
    a, scale_a = octile.quantize_per_token(torch.from_numpy(rng.standard_normal((7, 72)).astype(np.float32)))
    w, scale_w = octile.quantize_per_token(weight)
    arguments = (a, w.t(), scale_a, scale_w.t())
    y = octile.scaled_mm(*arguments, torch.bfloat16)
    reference = support.product(bits(a), scale_a.numpy(), bits(w), scale_w.numpy())
    support.assert_close(y.float().numpy(), reference, "bf16", 72)
    packed = octile.pack_b(w.t(), scale_w.t(), torch.bfloat16, max_m=8)
    assert torch.equal(octile.scaled_mm(a, packed, scale_a), y)
    w.view(torch.uint8).zero_()  # In place, as a weight update: the raw weight is read anew, the packed one is not.
    assert (octile.scaled_mm(*arguments) == 0).all()
    assert torch.equal(octile.scaled_mm(a, packed, scale_a), y)


def test_torch_and_numpy_give_the_same_bits(rng, weight):
    linear = octile.Linear(octile.Weight.quantize(weight), max_m=8)
    x = torch.from_numpy(rng.standard_normal((5, 72)).astype(np.float32)).bfloat16()
    np.testing.assert_array_equal(bits(linear(x)), linear(bits(x), dtype="bf16"))


def test_tensors_that_cannot_be_read_are_refused_in_words(weight):
    linear = octile.Linear(octile.Weight.quantize(weight), max_m=8)
    x = torch.randn(2, 72).bfloat16()
    with pytest.raises(ValueError, match="no_grad"):
        linear(x.requires_grad_())
    with torch.no_grad():
        linear(x)
    with pytest.raises(ValueError, match="want bf16, got fp32"):
        linear(torch.randn(2, 72))
    with pytest.raises(ValueError, match="meta"):
        linear(torch.empty(2, 72, dtype=torch.bfloat16, device="meta"))
    with pytest.raises(ValueError, match="sparse"):
        linear(torch.randn(2, 72).to_sparse())


def test_stale_dtypes_of_results_are_refused(weight):
    linear = octile.Linear(octile.Weight.quantize(weight), max_m=8)
    x = torch.randn(2, 72).bfloat16()
    with pytest.raises(ValueError, match=r"out: want \[2, 33\], got \[2, 34\]"):
        linear(x, out=torch.empty(2, 34, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="out: dtype=bf16 is given, but the array's elements are fp16"):
        linear(x, out=torch.empty(2, 33, dtype=torch.float16))
