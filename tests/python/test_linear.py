# SPDX-License-Identifier: Apache-2.0
"""octile.Weight and octile.Linear on numpy arrays against the double-precision oracle."""

import copy
import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import support

import octile

# N and K differ and are no multiples of any tile; M around small tiles.
SHAPES = [(1, 1, 4), (2, 17, 12), (5, 130, 257), (16, 96, 640), (33, 1001, 20), (65, 64, 48)]


def make(rng, n, k, out_dtype="fp32", **options):
    codes, scales = support.random_weight(rng, n, k)
    return codes, scales, octile.Weight(codes, scales, out_dtype=out_dtype, **options)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("x_dtype", ["bf16", "fp16"])
def test_the_whole_linear_is_the_oracles(rng, m, n, k, x_dtype):
    codes, scales, weight = make(rng, n, k)
    bias = rng.standard_normal(n).astype(np.float32)
    x = rng.standard_normal((m, k)).astype(np.float32)
    x = support.to_bf16(x) if x_dtype == "bf16" else x.astype(np.float16)
    wide = support.from_bf16(x) if x_dtype == "bf16" else x.astype(np.float32)
    linear = octile.Linear(weight, bias, x_dtype=x_dtype, max_m=64)
    y = linear(x, dtype=x_dtype)
    assert y.dtype == np.float32
    reference = support.product(*support.quantize(wide), codes, scales, bias)
    support.assert_close(y, reference, "fp32", k)


@pytest.mark.parametrize("out_dtype", ["bf16", "fp16", "fp32"])
def test_each_output_type_is_rounded_once(rng, out_dtype):
    codes, scales, weight = make(rng, 70, 300, out_dtype)
    x = rng.standard_normal((9, 300)).astype(np.float16)
    y = octile.Linear(weight, x_dtype="fp16", max_m=16)(x)
    assert y.dtype == {"bf16": np.uint16, "fp16": np.float16, "fp32": np.float32}[out_dtype]
    wide = support.from_bf16(y) if out_dtype == "bf16" else y
    support.assert_close(wide, support.product(*support.quantize(x.astype(np.float32)), codes, scales), out_dtype, 300)


def test_ml_dtypes_come_back_as_ml_dtypes(rng):
    codes, scales, weight = make(rng, 24, 32, "bf16")
    typed = octile.Weight(codes.view(ml_dtypes.float8_e4m3fn), scales.astype(ml_dtypes.bfloat16))
    x = rng.standard_normal((3, 32)).astype(ml_dtypes.bfloat16)
    y = octile.Linear(typed, max_m=4)(x)
    assert y.dtype == ml_dtypes.bfloat16
    reference = support.product(
        *support.quantize(x.astype(np.float32)), codes, scales.astype(ml_dtypes.bfloat16).astype(np.float32)
    )
    support.assert_close(y.astype(np.float32), reference, "bf16", 32)
    # The same bits, said with a dtype.
    np.testing.assert_array_equal(octile.Linear(typed, max_m=4)(x.view(np.uint16), dtype="bf16"), y.view(np.uint16))


def test_codes_with_scales_of_their_own(rng):
    codes, scales, weight = make(rng, 40, 130)
    x_codes, x_scales = support.quantize(rng.standard_normal((7, 130)).astype(np.float32))
    linear = octile.Linear(weight, activation="quantized", max_m=8)
    reference = support.product(x_codes, x_scales, codes, scales)
    support.assert_close(linear(x_codes, x_scales), reference, "fp32", 130)
    support.assert_close(linear(x_codes, x_scales[:, 0]), reference, "fp32", 130)
    support.assert_close(linear(x_codes.view(ml_dtypes.float8_e4m3fn), x_scales), reference, "fp32", 130)
    with pytest.raises(ValueError, match=r"scales: want fp32 \[7\] or \[7, 1\], got fp32 \[1, 7\]"):
        linear(x_codes, x_scales.T)
    with pytest.raises(ValueError, match="want scales of the codes"):
        linear(x_codes)
    with pytest.raises(ValueError, match="x: want e4m3, got fp32"):
        linear(x_codes.astype(np.float32), x_scales)


def test_one_scale_for_all_activations(rng):
    codes, scales, weight = make(rng, 30, 64)
    x = rng.standard_normal((4, 64)).astype(np.float16)
    static = np.float32(0.02)
    linear = octile.Linear(weight, activation="static_per_tensor", static_scale=static, x_dtype="fp16", max_m=4)
    x_codes = support.encode(x.astype(np.float32) / static)
    reference = support.product(x_codes, np.full(4, static), codes, scales)
    support.assert_close(linear(x), reference, "fp32", 64)
    with pytest.raises(ValueError, match="want a finite value > 0"):
        octile.Linear(weight, activation="static_per_tensor")


def test_a_float_weight_is_quantised_by_its_rows(rng):
    w = rng.standard_normal((50, 72)).astype(np.float32)
    x = rng.standard_normal((3, 72)).astype(np.float16)
    weight = octile.Weight.quantize(w, out_dtype="fp32")
    y = octile.Linear(weight, x_dtype="fp16", max_m=4)(x)
    reference = support.product(*support.quantize(x.astype(np.float32)), *support.quantize(w))
    support.assert_close(y, reference, "fp32", 72)


def test_one_scale_for_a_whole_weight(rng):
    codes, _ = support.random_weight(rng, 12, 40)
    x = rng.standard_normal((2, 40)).astype(np.float16)
    results = [
        octile.Linear(octile.Weight(codes, scale, out_dtype="fp32"), x_dtype="fp16", max_m=2)(x)
        for scale in (0.5, np.float32([0.5]), np.full((12, 1), 0.5, np.float32))
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_a_row_that_is_not_finite_poisons_itself_alone(rng):
    _, _, weight = make(rng, 33, 64)
    linear = octile.Linear(weight, x_dtype="fp16", max_m=8)
    x = rng.standard_normal((5, 64)).astype(np.float16)
    good = linear(x)
    x[2, 9] = np.inf
    bad = linear(x)
    assert np.isnan(bad[2]).all()
    np.testing.assert_array_equal(bad[[0, 1, 3, 4]], good[[0, 1, 3, 4]])


def test_zero_rows_give_the_bias(rng):
    _, _, weight = make(rng, 33, 64)
    bias = rng.standard_normal(33).astype(np.float32)
    y = octile.Linear(weight, bias, x_dtype="fp16", max_m=2)(np.zeros((2, 64), np.float16))
    np.testing.assert_array_equal(y, np.stack([bias, bias]))


def test_padded_rows_leading_dimensions_and_single_rows(rng):
    _, _, weight = make(rng, 20, 48)
    linear = octile.Linear(weight, x_dtype="fp16", max_m=16)
    wide = rng.standard_normal((12, 100)).astype(np.float16)
    x = wide[:, 4:52]
    want = linear(x.copy())
    np.testing.assert_array_equal(linear(x), want)
    np.testing.assert_array_equal(linear(x.reshape(3, 4, 48)), want.reshape(3, 4, 20))
    np.testing.assert_array_equal(linear(np.ascontiguousarray(x)[5]), linear(x.copy()[5:6])[0])


def test_out_is_written_whole_and_nothing_beside_it(rng):
    _, _, weight = make(rng, 20, 48)
    linear = octile.Linear(weight, x_dtype="fp16", max_m=16)
    x = rng.standard_normal((6, 48)).astype(np.float16)
    guarded = np.full((8, 26), np.nan, np.float32)
    returned = linear(x, out=guarded[1:7, 3:23])
    assert returned.base is guarded
    np.testing.assert_array_equal(guarded[1:7, 3:23], linear(x))
    guarded[1:7, 3:23] = np.nan
    assert np.isnan(guarded).all()


def test_out_of_bits_takes_its_dtype_from_the_weight(rng):
    codes, scales, weight = make(rng, 20, 48, "bf16")
    linear = octile.Linear(weight, x_dtype="fp16", max_m=4)
    x = rng.standard_normal((2, 48)).astype(np.float16)
    out = np.full((2, 20), 0xFFFF, np.uint16)
    assert linear(x, out=out) is out
    np.testing.assert_array_equal(out, linear(x))
    typed = np.zeros((2, 20), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(linear(x, out=typed).view(np.uint16), out)


def test_an_empty_batch_gives_an_empty_result(rng):
    _, _, weight = make(rng, 20, 48)
    linear = octile.Linear(weight, x_dtype="fp16", max_m=4)
    assert linear(np.zeros((0, 48), np.float16)).shape == (0, 20)
    assert linear(np.zeros((3, 0, 48), np.float16)).shape == (3, 0, 20)


def test_more_rows_than_prepared_run_in_chunks(rng):
    codes, scales, weight = make(rng, 20, 48)
    linear = octile.Linear(weight, x_dtype="fp16", max_m=4)
    x = rng.standard_normal((31, 48)).astype(np.float16)
    reference = support.product(*support.quantize(x.astype(np.float32)), codes, scales)
    support.assert_close(linear(x), reference, "fp32", 48)
    assert "chunks of 4" in linear.explain(31)["reason"]
    linear.prepare(31)
    assert "chunks" not in linear.explain(31)["reason"]
    support.assert_close(linear(x), reference, "fp32", 48)


def test_a_call_before_prepare_is_an_error(rng):
    _, _, weight = make(rng, 20, 48)
    with pytest.raises(RuntimeError, match="prepare"):
        octile.Linear(weight, x_dtype="fp16")(np.zeros((1, 48), np.float16))
    with pytest.raises(ValueError, match="max_m >= 1"):
        octile.Linear(weight, max_m=0)


def test_the_sources_may_be_overwritten_and_freed(rng):
    codes, scales, _ = make(rng, 40, 64)
    bias = rng.standard_normal(40).astype(np.float32)
    reference_of = (codes.copy(), scales.copy(), bias.copy())
    weight = octile.Weight(codes, scales, out_dtype="fp32")
    linear = octile.Linear(weight, bias, x_dtype="fp16", max_m=4)
    codes[:] = 0
    scales[:] = np.nan
    bias[:] = np.nan
    del codes, scales, bias, weight
    x = rng.standard_normal((4, 64)).astype(np.float16)
    support.assert_close(linear(x), support.product(*support.quantize(x.astype(np.float32)), *reference_of), "fp32", 64)


def test_a_weight_on_the_cpu_is_not_written_in_place(rng):
    codes, scales = support.random_weight(rng, 32, 48)
    weight = octile.Weight(codes, scales)
    with pytest.raises(RuntimeError, match="create a new one"):
        weight.update(codes, scales)
    with pytest.raises(ValueError, match=r"want the weight's shape \[32, 48\], got \[31, 48\]"):
        weight.update(codes[1:], scales[1:])
    with pytest.raises(ValueError, match="scales: want fp32 or bf16 or fp16, got uint8"):
        weight.update(codes, codes[:, 0])


def test_results_own_their_memory(rng):
    _, _, weight = make(rng, 40, 64)
    linear = octile.Linear(weight, x_dtype="fp16", max_m=4)
    x = rng.standard_normal((4, 64)).astype(np.float16)
    first = linear(x)
    kept = first.copy()
    linear(rng.standard_normal((4, 64)).astype(np.float16))
    del linear, weight
    np.testing.assert_array_equal(first, kept)
    assert first.flags.owndata


def test_codes_that_are_nan_make_their_column_nan(rng):
    codes, scales, _ = make(rng, 10, 32)
    codes[7, 3] = support.E4M3_NAN
    weight = octile.Weight(codes, scales, out_dtype="fp32")
    y = octile.Linear(weight, x_dtype="fp16", max_m=2)(np.ones((2, 32), np.float16))
    assert np.isnan(y[:, 7]).all() and np.isfinite(np.delete(y, 7, axis=1)).all()


def test_explain_is_of_this_linear(rng):
    _, _, weight = make(rng, 24, 40)
    linear = octile.Linear(weight, max_m=8)
    said = linear.explain(8)
    assert (said["n"], said["k"], said["m"]) == (24, 40, 8)
    assert said["device_name"] == octile.devices()[0]["device_name"]
    assert said["bytes"] == weight.nbytes > 24 * 40
    assert said["choice"] in ("tile", "vendor", "baseline", "heuristic") and said["kernel"] and said["reason"]


def test_bad_weights_are_refused_in_words(rng):
    codes, scales, _ = make(rng, 8, 16)
    with pytest.raises(ValueError, match=r"scales: want \[8\] or \[8, 1\].*got \[1, 8\]"):
        octile.Weight(codes, scales.T)
    with pytest.raises(ValueError, match=r"got \[7, 1\]"):
        octile.Weight(codes, scales[:7])
    with pytest.raises(ValueError, match="finite value > 0, got -1"):
        octile.Weight(codes, -np.ones(8, np.float32))
    with pytest.raises(ValueError, match="want e4m3 or e4m3fnuz, got fp32"):
        octile.Weight(codes.astype(np.float32), scales)
    with pytest.raises(ValueError, match="want codes in e4m3, got e4m3fnuz"):
        octile.Weight(codes.view(ml_dtypes.float8_e4m3fnuz), scales)
    with pytest.raises(ValueError, match="got dtype float8_e5m2"):
        octile.Weight(codes.view(ml_dtypes.float8_e5m2), scales)
    with pytest.raises(ValueError, match=r"want column stride 1.*got strides \(1, 8\)"):
        octile.Weight(np.asfortranarray(codes), scales)
    with pytest.raises(ValueError, match=r"want \[N, K\], got \[2, 8, 16\]"):
        octile.Weight(np.stack([codes, codes]), scales)
    with pytest.raises(ValueError, match="out_dtype: want one of bf16, fp16, fp32.*'float64'"):
        octile.Weight(codes, scales, out_dtype=np.float64)
    with pytest.raises(ValueError, match="out_dtype: want one of bf16, fp16, fp32.*'None'"):
        octile.Weight(codes, scales, out_dtype=None)
    with pytest.raises(ValueError, match="accumulate: want one of default, fast, precise, got 'slow'"):
        octile.Weight(codes, scales, accumulate="slow")
    with pytest.raises(ValueError, match="numerics: want one of"):
        octile.Weight(codes, scales, numerics="none")
    with pytest.raises(ValueError, match="pdl: want one of"):
        octile.Weight(codes, scales, pdl="on")
    with pytest.raises(RuntimeError, match="'tpu:0'|tpu:0"):
        octile.Weight(codes, scales, device="tpu:0")


def test_tables_may_be_a_path_and_one_that_is_not_there_is_said(rng, tmp_path, capfd):
    codes, scales, _ = make(rng, 8, 16)
    octile.Weight(codes, scales, tables=tmp_path)
    assert str(tmp_path) not in capfd.readouterr().err
    octile.Weight(codes, scales, tables=tmp_path / "missing")
    assert f"{tmp_path / 'missing'} for tables: No such file or directory" in capfd.readouterr().err


def test_a_misspelt_switch_is_said_with_the_name_that_was_meant():
    code = """
import numpy as np
import octile

for _ in range(2):
    octile.Linear(octile.Weight(np.zeros((8, 16), np.uint8), 1.0))
"""
    environment = {**os.environ, "OCTILE_ENABLE_FP8_GEMM_CONFIG_TUN": "off"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.count("did you mean OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE?") == 1


def test_a_static_scale_that_would_be_dropped_is_refused(rng):
    _, _, weight = make(rng, 8, 16)
    for activation in ("dynamic_per_token", "quantized"):
        with pytest.raises(ValueError, match="want 0 unless activation is static_per_tensor, got 0.5"):
            octile.Linear(weight, activation=activation, static_scale=0.5)


def test_bad_calls_are_refused_in_words(rng):
    _, _, weight = make(rng, 8, 16)
    linear = octile.Linear(weight, x_dtype="fp16", max_m=4)
    x = np.zeros((3, 16), np.float16)
    with pytest.raises(ValueError, match=r"x: want \[\.\.\., 16\], got \[3, 8\]"):
        linear(x[:, :8])
    with pytest.raises(ValueError, match="x: want fp16, got fp32"):
        linear(x.astype(np.float32))
    with pytest.raises(ValueError, match=r"x: want fp16, got uint16 \(say what the bits are with dtype=\)"):
        linear(x.view(np.uint16))
    with pytest.raises(ValueError, match=r"strides \(1, 3\)"):
        linear(np.asfortranarray(x))
    with pytest.raises(ValueError, match="want rows at one stride"):
        linear(np.zeros((4, 5, 16), np.float16)[:, :3])
    with pytest.raises(ValueError, match=r"out: want \[3, 8\], got \[3, 7\]"):
        linear(x, out=np.zeros((3, 7), np.float32))
    with pytest.raises(ValueError, match="out: dtype=fp32 is given, but the array's elements are fp16"):
        linear(x, out=np.zeros((3, 8), np.float16))
    with pytest.raises(ValueError, match="no scales"):
        linear(x, np.ones(3, np.float32))
    with pytest.raises(ValueError, match="stream: a linear on the CPU has none"):
        linear(x, stream=7)
    with pytest.raises(ValueError, match=r"workspace: want \d+ bytes, 64-byte aligned"):
        linear(x, workspace=np.zeros(1, np.uint8))
    with pytest.raises(TypeError, match="want an array"):
        linear("x")
    with pytest.raises(ValueError, match=r"bias: want fp32, bf16 or fp16 \[8\], got fp32 \[9\]"):
        octile.Linear(weight, np.zeros(9, np.float32))
    with pytest.raises(ValueError, match="activation: want one of"):
        octile.Linear(weight, activation="int8")
    with pytest.raises(TypeError, match="want an octile.Weight"):
        octile.Linear(x)
    misaligned = np.zeros(3 * 32 + 1, np.uint8)[1:].view(np.float16).reshape(3, 16)
    with pytest.raises(ValueError, match="aligned"):
        linear(misaligned)


def test_weights_and_linears_are_neither_pickled_nor_copied(rng):
    _, _, weight = make(rng, 8, 16)
    for thing in (weight, octile.Linear(weight, max_m=1)):
        for operation in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="keep its codes and scales"):
                operation(thing)


def test_a_limit_of_multiprocessors_is_a_gpus(rng):
    _, _, weight = make(rng, 16, 32)
    with pytest.raises(ValueError, match="want 0 on a CPU, which has no multiprocessors"):
        octile.Linear(weight, max_sms=8)
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"max_sms: want at least 1, or None for no limit, got {count}"):
            octile.Linear(weight, max_sms=count)
