# SPDX-License-Identifier: Apache-2.0
"""bench/end_to_end on the CPU and a tiny model: FP8 variants agree, a run records what it promises, and a GPU's timeline is
read as it should be."""

import functools
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "end_to_end"))
import end_to_end  # noqa: E402
import qwen3  # noqa: E402
import regions  # noqa: E402
import timeline  # noqa: E402
import variants  # noqa: E402


def test_a_tiny_run_records_every_variant(tmp_path, capsys):
    path = tmp_path / "end_to_end.json"
    words = "--tiny --device cpu --concurrency 1,3 --prompt 6 --new 6 --rounds 3 --steps 1 --generations 2"
    end_to_end.main([*words.split(), "--json", str(path)])
    record = json.loads(path.read_text())
    rows = {(row["concurrency"], row["variant"]): row for row in record["rows"]}
    assert set(rows) == {(count, name) for count in (1, 3) for name in variants.VARIANTS}
    for (_, name), row in rows.items():
        assert row["step_us"]["lo"] <= row["step_us"]["value"] <= row["step_us"]["hi"]
        assert set(row["step_share"]) == {"bf16", "fp8", "fp8_fused"} - {name}
        if name != "none":
            assert row["ttft_ms"] > 0 and row["tpot_ms"] > 0 and row["tokens_per_s"] > 0
            assert row["itl_ms"]["p50"] <= row["itl_ms"]["p99"]
            assert set(row["beyond_rest_share"]) == {"bf16", "fp8", "fp8_fused"} - {name}
    assert set(record["kernels"]) == {"octile_off", "octile", "octile_fused"}
    assert record["failed"] == {}
    assert capsys.readouterr().out.count("\n") == 2 + len(rows)


@pytest.fixture
def four_layers(monkeypatch):
    """Variants of a model of four layers, as wide as a trained one's, for up to 3 sequences. What is compiled runs in torch's
    own operations: tracing and what it leaves out are as on a GPU, and no compiler is waited for."""
    torch._dynamo.reset()
    regions._region.cache_clear()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    torch.manual_seed(0)
    with torch.no_grad():
        model = qwen3.make_model(qwen3.TINY, 4, torch.device("cpu"), seed=1)
        for parameter in model.model.layers.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.2)
        yield variants.Builder(model, max_m=32, batch=3, threads=2, compiled=True)
    torch._dynamo.reset()
    regions._region.cache_clear()


def with_a_prompt(model, count):
    sequences = qwen3.Sequences(model.config, count, 7, 4, torch.device("cpu"))
    sequences.prefill(model)
    return sequences


def step_of(its, sequences):
    """Logits of a step, and how many graphs were compiled for it."""
    sequences.set_length(7)
    sequences.token.fill_(5)
    torch._dynamo.utils.counters.clear()
    return sequences.step(its).float(), torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("name", ["bf16", "fp8_fused", "octile_fused", "octile_producers"])
def test_compiled_layers_share_their_code_and_give_the_models_logits(four_layers, name):
    model = four_layers.make(name)
    compiled = regions.compiled(model, "layers")
    for count in (1, 3):
        sequences = with_a_prompt(model, count)
        wanted, _ = step_of(model, sequences)
        found, graphs = step_of(compiled, sequences)
        assert graphs == 2  # All layers', and the last norm's.
        assert (found - wanted).norm() <= 0.02 * wanted.norm()
        assert step_of(compiled, with_a_prompt(model, count))[1] == 0  # Other caches are no other code.


@pytest.mark.parametrize("how", ["layers", "model"])
def test_what_stands_between_linears_stays_when_there_are_none(four_layers, how):
    model = regions.compiled(four_layers.make("none"), how)
    sequences = with_a_prompt(four_layers.model, 3)
    step_of(model, sequences)
    with torch.profiler.profile() as profiler:
        step_of(model, sequences)
    names = [event.name for event in profiler.events()]
    assert sum(name == "octile_end_to_end::read" for name in names) == 4 * 7
    assert (
        sum(name == "aten::scaled_dot_product_attention" or name.startswith("aten::_scaled_dot_product") for name in names) >= 4
    )
    assert sum(name == "aten::silu" for name in names) == 4


def test_a_compiled_run_says_so_and_leaves_out_what_would_come_late(tmp_path):
    path = tmp_path / "end_to_end.json"
    words = (
        "--tiny --device cpu --compile layers --variants bf16,none --concurrency 1,2 --prompt 6 --new 6 --rounds 2 --steps 1"
    )
    end_to_end.main([*words.split(), "--time-limit", "0.02", "--json", str(path)])
    record = json.loads(path.read_text())
    assert record["compiled"] and record["compiled_as"] == "layers"
    assert record["left_out"] == ["concurrency 1", "concurrency 2"]


def test_a_variant_that_fails_is_left_out_and_said(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("no row-wise product here")

    monkeypatch.setattr(variants.TorchFp8Linear, "forward", fail)
    path = tmp_path / "end_to_end.json"
    words = "--tiny --device cpu --variants bf16,fp8_fused,octile --concurrency 2 --prompt 4 --new 6 --rounds 2 --steps 1"
    end_to_end.main([*words.split(), "--json", str(path)])
    record = json.loads(path.read_text())
    assert [row["variant"] for row in record["rows"]] == ["bf16", "octile"]
    assert record["failed"] == {"fp8_fused": "a prompt at concurrency 2: no row-wise product here"}
    assert "fp8_fused is left out" in capsys.readouterr().err


def test_every_fp8_variant_gives_the_same_logits_but_for_their_sums():
    torch.manual_seed(0)
    with torch.no_grad():
        model = qwen3.make_model(qwen3.TINY, None, torch.device("cpu"), seed=1)
        for parameter in model.model.layers.parameters():  # As wide as a trained model's, so that linears matter.
            if parameter.dim() == 2:
                parameter.normal_(std=0.2)
        builder = variants.Builder(model, max_m=16, batch=2, threads=2)
        sequences = qwen3.Sequences(model.config, 2, 7, 4, torch.device("cpu"))

        def logits(name):
            its = builder.make(name)
            first = sequences.prefill(its)
            sequences.token.fill_(5)
            return torch.stack([first, sequences.step(its)]).float()

        wanted = logits("fp8_fused")
        bf16 = (logits("bf16") - wanted).norm() / wanted.norm()
        assert 0.005 < bf16 < 0.3
        for name in ("fp8", "octile_off", "octile", "octile_fused", "octile_producers"):
            assert (logits(name) - wanted).norm() <= 0.5 * bf16 * wanted.norm(), name


def test_a_step_goes_on_where_the_prompt_ended():
    with torch.no_grad():
        model = qwen3.make_model(qwen3.TINY, None, torch.device("cpu"), seed=2)
        sequences = qwen3.Sequences(model.config, 2, 7, 4, torch.device("cpu"))
        sequences.prefill(model)
        token = sequences.token.clone()
        stepped = sequences.step(model).float()
        whole = model(input_ids=torch.cat([sequences.prompt, token], dim=1)).logits[:, -1].float()
    torch.testing.assert_close(stepped, whole, rtol=0.02, atol=0.02)


def test_kernels_are_told_apart_by_their_names():
    kinds = {
        "octile_rms_norm": "producer",
        "octile_quantise": "quantise",
        "torch_quantise_rows": "quantise",
        "octile_hopper_decode": "linear",
        "nvjet_sm90_qqtst_64x8_64x16_4x1_v_bz_TNT": "linear",
        "void cublasLt::splitKreduce_kernel<32, 16, int>": "linear",
        "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::": "linear",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel": "attention",
        "void pytorch_flash::flash_fwd_splitkv_kernel": "attention",
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda": "other",
    }
    assert {name: timeline.class_of(name) for name in kinds} == kinds


def test_a_timeline_counts_what_overlaps_once_and_what_is_idle_apart():
    spin = "void at::cuda::(anonymous namespace)::spin_kernel(long)"
    kernels = [
        timeline.Kernel("before", 0, 50),
        timeline.Kernel(spin, 100, 100),
        timeline.Kernel("octile_quantise", 1000, 2000),
        timeline.Kernel("octile_hopper_decode", 2000, 4000),  # Starts 1000 ns before the quantiser has ended.
        timeline.Kernel("elementwise", 6500, 1000),  # 500 ns after.
        timeline.Kernel("Context Sync", 6500, 5000),  # No kernel.
        timeline.Kernel(spin, 8000, 100),
        timeline.Kernel("octile_hopper_decode", 9000, 1000),
    ]
    first, second = timeline.split_at_markers(reversed(kernels))
    found = timeline.attribute(first)
    assert found["quantise"] == {"sum_us": 2, "busy_us": 2, "gap_us": 0, "kernels": 1}
    assert found["linear"] == {"sum_us": 4, "busy_us": 3, "gap_us": 0, "kernels": 1}
    assert found["other"] == {"sum_us": 1, "busy_us": 1, "gap_us": 0.5, "kernels": 1}
    assert timeline.linears_us(found, "sum") == 6 and timeline.linears_us(found, "busy") == 5
    assert timeline.linears_us(timeline.attribute(second), "span") == 1
    assert timeline.by_name(first)[0] == ("linear", "octile_hopper_decode", 1, 4)
