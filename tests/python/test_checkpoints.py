# SPDX-License-Identifier: Apache-2.0
"""Checkpoints written with the package safetensors, read by name and by rank."""

import gc
import json
import os
import threading
import time

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import support
from checkpoints import CONFIG, FORMATS, FUSED, HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE, KV_HEADS, LAYERS, MODULES, Stored

import octile


@pytest.fixture(params=FORMATS)
def stored(request, rng, tmp_path):
    quantization, *rest = FORMATS[request.param]
    checkpoint = Stored(rng, *rest)
    checkpoint.write(tmp_path, quantization, shards=int(rng.integers(1, 4)))
    return checkpoint


@pytest.fixture
def per_channel(rng, tmp_path):
    quantization, *rest = FORMATS["compressed-tensors"]
    checkpoint = Stored(rng, *rest)
    checkpoint.write(tmp_path, quantization)
    return checkpoint


def bf16_checkpoint(rng, path):
    tensors = {
        f"model.layers.{layer}.{module}.weight": rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for layer in range(LAYERS)
        for module, shape in MODULES.items()
    }
    (path / "config.json").write_text(json.dumps(CONFIG))
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    return tensors


@pytest.mark.parametrize("mmap", [True, False])
def test_codes_and_scales_of_every_format_arrive_fused_and_unchanged(stored, tmp_path, mmap):
    checkpoint = octile.load_checkpoint(tmp_path, mmap=mmap)
    assert len(checkpoint) == LAYERS * len(FUSED)
    for layer in range(LAYERS):
        for module in FUSED:
            linear = checkpoint[f"model.layers.{layer}.{module}"]
            assert linear.codes.dtype == np.uint8
            assert linear.scales.dtype == np.float32
            assert linear.values is None and linear.bias is None
            np.testing.assert_array_equal(linear.codes, stored.fused(stored.codes, layer, module))
            np.testing.assert_array_equal(linear.scales, stored.fused(stored.scales, layer, module))
            if stored.static:
                parts = [stored.static[f"model.layers.{layer}.{part}"] for part in FUSED[module]]
                assert linear.activation == "static_per_tensor"
                assert linear.static_scale == max(parts)
            else:
                assert linear.activation == "dynamic_per_token"


def test_linears_compute_what_the_stored_weights_say(stored, tmp_path, rng):
    for name, linear in octile.load_checkpoint(tmp_path).items():
        x = rng.standard_normal((3, linear.shape[1])).astype(np.float16)
        if linear.activation == "static_per_tensor":
            scales = np.full((3, 1), linear.static_scale, np.float32)
            codes = support.encode(np.clip(x.astype(np.float32) / scales, -448, 448))
        else:
            codes, scales = support.quantize(x.astype(np.float32))
        y = linear.linear(x_dtype="fp16", max_m=4, out_dtype="fp32")(x)
        layer, module = name.removeprefix("model.layers.").split(".", 1)
        weight = stored.fused(stored.codes, layer, module)
        wanted = support.product(codes, scales, weight, stored.fused(stored.scales, layer, module))
        support.assert_close(y, wanted, "fp32", linear.shape[1])


def test_ranks_together_are_the_whole(per_channel, tmp_path, rng):
    whole = octile.load_checkpoint(tmp_path)
    for tp in (2, 4):
        ranks = [octile.load_checkpoint(tmp_path, tp=tp, rank=rank) for rank in range(tp)]
        for name in whole:
            parts = [rank[name] for rank in ranks]
            if parts[0].entry.row_parallel:
                np.testing.assert_array_equal(np.concatenate([part.codes for part in parts], axis=1), whole[name].codes)
                for part in parts:
                    np.testing.assert_array_equal(part.scales, whole[name].scales)
        for layer in range(LAYERS):
            gate_up = f"model.layers.{layer}.mlp.gate_up_proj"
            halves = [np.split(rank[gate_up].codes, 2) for rank in ranks]
            joined = np.concatenate([gate for gate, _ in halves] + [up for _, up in halves])
            np.testing.assert_array_equal(joined, whole[gate_up].codes)
            # Each rank: its query heads, then the key and value heads that they meet.
            for rank, checkpoint in enumerate(ranks):
                heads, kv = HEADS // tp, max(1, KV_HEADS // tp)
                first_kv = rank * kv if tp <= KV_HEADS else rank * KV_HEADS // tp
                sections = [("q", rank * heads, heads), ("k", first_kv, kv), ("v", first_kv, kv)]
                wanted = np.concatenate(
                    [
                        per_channel.codes[f"model.layers.{layer}.self_attn.{part}_proj"][
                            first * HEAD_DIM : (first + count) * HEAD_DIM
                        ]
                        for part, first, count in sections
                    ]
                )
                np.testing.assert_array_equal(checkpoint[f"model.layers.{layer}.self_attn.qkv_proj"].codes, wanted)


def test_row_parallel_results_add_up(per_channel, tmp_path, rng):
    name = "model.layers.1.mlp.down_proj"
    x = rng.standard_normal((2, INTERMEDIATE)).astype(np.float16)
    codes, scales = support.quantize(x.astype(np.float32))
    wanted = support.product(codes, scales, per_channel.codes[name], per_channel.scales[name])
    total = np.zeros_like(wanted)
    for rank in range(2):
        columns = slice(rank * INTERMEDIATE // 2, (rank + 1) * INTERMEDIATE // 2)
        part = octile.load_checkpoint(tmp_path, tp=2, rank=rank)[name]
        weight = part.weight(out_dtype="fp32")
        linear = octile.Linear(weight, activation="quantized", max_m=2)
        total += linear(np.ascontiguousarray(codes[:, columns]), scales)
    support.assert_close(total, wanted, "fp32", INTERMEDIATE)


def test_without_fusing_names_are_the_stored_modules(per_channel, tmp_path):
    checkpoint = octile.load_checkpoint(tmp_path, fuse=False)
    assert set(checkpoint) == set(per_channel.codes)
    for name, linear in checkpoint.items():
        np.testing.assert_array_equal(linear.codes, per_channel.codes[name])
        np.testing.assert_array_equal(linear.scales, per_channel.scales[name])


def test_what_lies_in_one_piece_is_not_copied_and_outlives_the_checkpoint(per_channel, tmp_path):
    name = "model.layers.0.self_attn.o_proj"
    checkpoint = octile.load_checkpoint(tmp_path)
    first, second = checkpoint[name], checkpoint[name]
    assert first.codes.ctypes.data == second.codes.ctypes.data
    assert not first.codes.flags.writeable and not first.scales.flags.writeable
    with pytest.raises(ValueError):
        first.codes[0, 0] = 0
    copied = octile.load_checkpoint(tmp_path, mmap=False)
    assert copied[name].codes.ctypes.data != first.codes.ctypes.data
    codes, scales = first.codes, first.scales
    del checkpoint, first, second
    gc.collect()
    os.unlink(tmp_path / "model.safetensors")  # The mapping stays.
    np.testing.assert_array_equal(codes, per_channel.codes[name])
    np.testing.assert_array_equal(scales, per_channel.scales[name])


def test_a_rank_of_row_parallel_columns_is_a_view_with_the_stored_stride(per_channel, tmp_path):
    linear = octile.load_checkpoint(tmp_path, tp=2, rank=1)["model.layers.0.mlp.down_proj"]
    assert linear.codes.shape == (HIDDEN, INTERMEDIATE // 2)
    assert linear.codes.strides == (INTERMEDIATE, 1)


def test_weights_that_are_not_quantised_are_given_as_they_are_and_quantised_on_request(rng, tmp_path):
    tensors = bf16_checkpoint(rng, tmp_path)
    checkpoint = octile.load_checkpoint(tmp_path)
    assert checkpoint.quantization == "none"
    linear = checkpoint["model.layers.1.mlp.gate_up_proj"]
    assert linear.dtype == "bf16" and linear.codes is None and linear.scales is None
    stored = np.concatenate([tensors[f"model.layers.1.mlp.{part}_proj.weight"] for part in ("gate", "up")])
    np.testing.assert_array_equal(linear.values, stored.view(np.uint16))
    x = rng.standard_normal((2, HIDDEN)).astype(np.float16)
    codes, scales = support.quantize(stored.astype(np.float32))
    wanted = support.product(*support.quantize(x.astype(np.float32)), codes, scales)
    y = linear.linear(x_dtype="fp16", max_m=2, out_dtype="fp32")(x)
    support.assert_close(y, wanted, "fp32", HIDDEN)


def test_biases_are_fused_in_fp32(rng, tmp_path):
    quantization, *rest = FORMATS["compressed-tensors"]
    checkpoint = Stored(rng, *rest)
    biases = []
    for part in ("q", "k", "v"):
        n = MODULES[f"self_attn.{part}_proj"][0]
        for layer in range(LAYERS):
            bias = rng.standard_normal(n).astype(ml_dtypes.bfloat16)
            checkpoint.tensors[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = bias
        biases.append(bias)
    checkpoint.write(tmp_path, quantization)
    linear = octile.load_checkpoint(tmp_path)[f"model.layers.{LAYERS - 1}.self_attn.qkv_proj"]
    wanted = np.concatenate(biases).astype(np.float32)
    np.testing.assert_array_equal(linear.bias, wanted)
    x = np.zeros((1, HIDDEN), np.float16)
    np.testing.assert_array_equal(linear.linear(x_dtype="fp16", max_m=1, out_dtype="fp32")(x)[0], wanted)


def test_fbgemms_upper_bound_reaches_the_quantiser(rng, tmp_path):
    quantization, *rest = FORMATS["fbgemm_fp8"]
    Stored(rng, *rest).write(tmp_path, quantization)
    linear = octile.load_checkpoint(tmp_path)["model.layers.0.mlp.down_proj"]
    assert linear.quantize.upper_bound == 1200.0


def test_entries_tell_of_linears_that_are_not_read(per_channel, tmp_path):
    checkpoint = octile.load_checkpoint(tmp_path, tp=2, rank=1)
    assert [entry.name for entry in checkpoint.entries] == list(checkpoint)
    entry = checkpoint.entries[2]
    assert (entry.kind, entry.layer, entry.shape, entry.dtype) == ("gate_up", 0, (INTERMEDIATE, HIDDEN), "e4m3")
    assert not entry.row_parallel and not entry.bias and entry.activation == "dynamic_per_token"
    assert "gate_up_proj" in repr(entry)
    assert "model.layers.0.mlp.gate_proj" not in checkpoint
    with pytest.raises(KeyError):
        checkpoint["model.layers.0.mlp.gate_proj"]
    assert checkpoint == checkpoint and checkpoint != octile.load_checkpoint(tmp_path)
    assert len({checkpoint, checkpoint}) == 1


def test_errors_are_values_or_files(per_channel, tmp_path, rng):
    for path in (tmp_path / "missing", tmp_path / "config.json", f"{tmp_path}\0/x", ""):
        with pytest.raises(ValueError, match="which is no directory"):
            octile.load_checkpoint(path)
    with pytest.raises(ValueError, match="4 attention heads do not divide by 3 ranks"):
        octile.load_checkpoint(tmp_path, tp=3)
    with pytest.raises(ValueError, match="rank: wanted an integer from 0 to 1, got 2"):
        octile.load_checkpoint(tmp_path, tp=2, rank=2)
    block = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    per_channel.write(tmp_path, block)
    with pytest.raises(ValueError, match="block-scaled weights"):
        octile.load_checkpoint(tmp_path)
    per_channel.tensors["model.layers.1.mlp.up_proj.weight"].view(np.uint8)[5, 6] = 0x7F
    per_channel.write(tmp_path, FORMATS["compressed-tensors"][0])
    checkpoint = octile.load_checkpoint(tmp_path)
    with pytest.raises(RuntimeError, match=r"layers\.1\.mlp\.up_proj\.weight.*NaN \(code 7F\) in row 5, column 6"):
        checkpoint["model.layers.1.mlp.gate_up_proj"]
    assert checkpoint["model.layers.0.mlp.gate_up_proj"].shape == (2 * INTERMEDIATE, HIDDEN)
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(RuntimeError, match="has changed since it was opened"):
        checkpoint["model.layers.0.mlp.gate_up_proj"]
    with pytest.raises(RuntimeError, match="the header's length says"):
        octile.load_checkpoint(tmp_path)


def sparse_checkpoint(path, size):
    """Weights of zeros, in a file of holes: one layer whose MLP is [size, size]."""
    config = {**CONFIG, "num_hidden_layers": 1, "hidden_size": size, "intermediate_size": size}
    config |= {"num_attention_heads": 1, "num_key_value_heads": 1, "quantization_config": FORMATS["modelopt"][0]}
    (path / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for module in MODULES:
        n = HEAD_DIM if module[-6] in "qkv" and "attn" in module else size
        k = HEAD_DIM if "o_proj" in module else size
        for name, dtype, shape, nbytes in (("weight", "F8_E4M3", [n, k], n * k), ("weight_scale", "F32", [n], 4 * n)):
            entry = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + nbytes]}
            header[f"model.layers.0.{module}.{name}"] = entry
            end += nbytes
    text = json.dumps(header).encode()
    with open(path / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def test_the_gil_is_released_while_a_weight_is_read(tmp_path):
    # 256 MiB are copied and looked through, which takes a tenth of a second or more; with the GIL held this thread would not
    # wake between `started` and `ended`.
    sparse_checkpoint(tmp_path, 16384)
    checkpoint = octile.load_checkpoint(tmp_path, mmap=False)
    started, ended = threading.Event(), threading.Event()
    loaded = []

    def work():
        started.set()
        loaded.append(checkpoint["model.layers.0.mlp.down_proj"])
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    wakes = 0
    while not ended.is_set() and thread.is_alive():
        time.sleep(0.001)
        wakes += 1
    thread.join()
    assert loaded and loaded[0].shape == (16384, 16384)
    assert wakes >= 5, f"this thread woke {wakes} times while another was in the library"


def test_looking_weights_up_leaves_no_memory_behind(per_channel, tmp_path):
    checkpoint = octile.load_checkpoint(tmp_path)
    name = "model.layers.0.self_attn.qkv_proj"
    for _ in range(3):
        checkpoint[name]
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        before = int(file.read().split()[1]) * 4096
    for _ in range(20_000):
        checkpoint[name]
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        grown = int(file.read().split()[1]) * 4096 - before
    # Each holds 2 KiB of codes and 256 bytes of scales: kept, they would be 45 MB.
    assert grown < 15 << 20, f"resident memory grew by {grown} bytes"
