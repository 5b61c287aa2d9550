# SPDX-License-Identifier: Apache-2.0
"""The same on an NVIDIA GPU, with torch: streams, CUDA graphs, torch.compile with graphs, moves between devices."""

import gc

import pytest
import support

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)
from model_parts import models_norm  # noqa: E402

import octile  # noqa: E402
import octile.torch  # noqa: E402

N, K = 768, 512


def bits(codes):
    return codes.view(torch.uint8).cpu().numpy()


@pytest.fixture(autouse=True)
def _without_gradients(rng):
    torch.manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        yield


def make_module(max_m=64, bias=True):
    return octile.torch.Linear.from_float(torch.nn.Linear(K, N, bias=bias, device="cuda", dtype=torch.bfloat16), max_m=max_m)


def reference_of(module, x):
    codes, scales = support.quantize(x.float().cpu().numpy().reshape(-1, K))
    bias = None if module.bias is None else module.bias.float().numpy()
    return support.product(codes, scales, bits(module.weight), module.weight_scale.numpy(), bias)


def assert_right(module, x, y):
    y = y.float().cpu().numpy().reshape(-1, N)
    want = reference_of(module, x)
    # The tensor core's accumulator keeps fewer bits than fp32: 4e-5 sqrt(K), as the library's own tests allow.
    error = ((y - want) ** 2).sum() ** 0.5 / (want**2).sum() ** 0.5
    assert error <= support.tolerance("bf16", K) + 4e-5 * K**0.5, f"relative error {error}"


@pytest.mark.parametrize("m", [1, 3, 17, 64, 100])
def test_results_are_the_oracles(m):
    module = make_module()
    x = torch.randn(m, K, device="cuda", dtype=torch.bfloat16)
    assert_right(module, x, module(x))
    wide = torch.randn(m, K + 64, device="cuda", dtype=torch.bfloat16)[:, 32 : 32 + K]
    assert_right(module, wide, module(wide))


def test_weights_are_quantised_on_the_gpu_with_the_contracts_bits():
    weight = torch.randn(64, 130, device="cuda").bfloat16()
    codes, scales = octile.torch.quantize_weight(weight)
    want_codes, want_scales = octile.quantize_per_token(weight.cpu())
    assert codes.is_cuda and (bits(codes) == bits(want_codes)).all() and torch.equal(scales.cpu(), want_scales)


def test_calls_run_on_torchs_current_stream():
    module = make_module()
    x = torch.zeros(8, K, device="cuda", dtype=torch.bfloat16)
    value = torch.randn_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # What follows must wait for this and the copy, as the stream orders them.
        x.copy_(value)
        y = module(x)
    torch.cuda.current_stream().wait_stream(stream)
    assert_right(module, value, y)
    linear = octile.Linear(octile.Weight.quantize(torch.randn(N, K, device="cuda")), max_m=8)
    with pytest.raises(ValueError, match="torch's current stream"):
        linear(x, stream=stream)
    with torch.cuda.stream(stream):
        linear(x, stream=stream)


def test_two_streams_at_once():
    module = make_module()
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [torch.randn(64, K, device="cuda", dtype=torch.bfloat16) for _ in streams]
    wanted = [module(x) for x in inputs]
    torch.cuda.synchronize()
    results = [[], []]
    for _ in range(50):
        for stream, x, kept in zip(streams, inputs, results, strict=True):
            with torch.cuda.stream(stream):
                kept.append(module(x))
    torch.cuda.synchronize()
    for kept, want in zip(results, wanted, strict=True):
        assert all(torch.equal(y, want) for y in kept)


@pytest.mark.parametrize("m", [1, 16, 64])
def test_cuda_graphs_capture_and_replay(m):
    module = torch.nn.Sequential(make_module(), torch.nn.SiLU())
    x = torch.randn(m, K, device="cuda", dtype=torch.bfloat16)
    module(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(x)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        want = module(x)
        y.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, want)


def test_a_captured_graph_goes_on_with_weights_that_are_loaded():
    module = make_module().prepare_codes()
    norm = octile.torch.RmsNorm(torch.ones(K, device="cuda", dtype=torch.bfloat16))
    x = torch.randn(4, K, device="cuda", dtype=torch.bfloat16)
    module(x), module(norm(x))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, of_codes = module(x), module(norm(x))
    for _ in range(3):
        other = make_module()
        state = {**other.state_dict(), "bias": module.bias}  # A bias is not written in place.
        module.load_state_dict(state)
        other.load_state_dict(state)
        graph.replay()
        assert torch.equal(y, other(x)) and torch.equal(y, module(x))
        assert torch.equal(of_codes, module(norm(x)))
        assert_right(module, x, y)
    state["bias"] = state["bias"] + 1
    with pytest.raises(RuntimeError, match="a CUDA graph has captured"):
        module.load_state_dict(state)
    with pytest.raises(RuntimeError, match="a CUDA graph has captured"):
        module.half()
    graph.replay()
    assert torch.equal(y, module(x))


def test_weights_on_the_gpu_are_written_in_place_in_the_order_of_the_stream():
    weights = [octile.torch.quantize_weight(torch.randn(N, K, device="cuda")) for _ in range(2)]
    weight = octile.Weight(*weights[0])
    linear = octile.Linear(weight, max_m=8)
    x = torch.randn(8, K, device="cuda", dtype=torch.bfloat16)
    want = octile.Linear(octile.Weight(*weights[1]), max_m=8)(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        before = linear(x)
        torch.cuda._sleep(100_000_000)
        weight.update(*weights[1])
        after = linear(x)
    torch.cuda.synchronize()
    assert torch.equal(after, want) and not torch.equal(before, want)
    with pytest.raises(ValueError, match=r"want the weight's shape \[768, 512\], got \[767, 512\]"):
        weight.update(weights[0][0][1:], weights[0][1][1:])
    with pytest.raises(ValueError, match="fp32 scales"):
        weight.update(weights[0][0], weights[0][1].bfloat16())


def test_compiled_with_cuda_graphs():
    model = torch.nn.Sequential(make_module(), torch.nn.SiLU(), torch.nn.Linear(N, 32, device="cuda").bfloat16())
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    x = torch.randn(16, K, device="cuda", dtype=torch.bfloat16)
    want = model(x).float()
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x).float()
        assert (y - want).norm() <= 0.02 * want.norm()


def test_compiled_with_a_dynamic_batch_runs_the_eager_kernels():
    module = make_module()
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    for m in (2, 5, 33, 64):
        x = torch.randn(m, K, device="cuda", dtype=torch.bfloat16)
        assert torch.equal(compiled(x), module(x))


class Mlp(torch.nn.Module):
    """down(silu(gate) * up) of the norm of x + residual, and the sum: with producers, and without."""

    def __init__(self):
        super().__init__()
        self.norm = octile.torch.RmsNorm((1 + 0.1 * torch.randn(K, device="cuda")).bfloat16())
        self.swiglu = octile.torch.SwiGlu(N // 2, device="cuda")
        self.gate_up = make_module().prepare_codes()
        down = torch.nn.Linear(N // 2, K, bias=False, device="cuda", dtype=torch.bfloat16)
        self.down = octile.torch.Linear.from_float(down, max_m=64).prepare_codes()

    def forward(self, x, residual):
        rows, total = self.norm(x, residual)
        return self.down(self.swiglu(self.gate_up(rows))), total

    def unfused(self, x, residual):
        total = x + residual
        gate, up = self.gate_up(models_norm(total, self.norm.weight)).chunk(2, dim=-1)
        return self.down(torch.nn.functional.silu(gate) * up), total


def rows_and_residual(m):
    return (torch.randn(m, K, device="cuda", dtype=torch.bfloat16) for _ in range(2))


@pytest.mark.parametrize("m", [1, 8, 33, 100])
def test_producers_are_a_models_norm_and_activation(m):
    mlp = Mlp()
    x, residual = rows_and_residual(m)
    y, total = mlp(x, residual)
    want, want_total = mlp.unfused(x, residual)
    assert torch.equal(total, want_total) and (y.float() - want.float()).norm() <= 0.01 * want.float().norm()


def test_producers_in_a_captured_graph_and_on_another_stream():
    mlp = Mlp()
    x, residual = rows_and_residual(8)
    want, _ = mlp(x, residual)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, total = mlp(x, residual)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        want, want_total = mlp(x, residual)
        y.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, want) and torch.equal(total, want_total)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.copy_(torch.randn_like(x))
        y, _ = mlp(x, residual)
    torch.cuda.synchronize()
    assert torch.equal(y, mlp(x, residual)[0])


def test_producers_compiled():
    mlp = Mlp()
    compiled = torch.compile(mlp, fullgraph=True, dynamic=True)
    for m in (3, 8, 40):
        x, residual = rows_and_residual(m)
        assert torch.equal(compiled(x, residual)[0], mlp(x, residual)[0])


def test_models_move_between_devices():
    module = make_module().cpu()
    x = torch.randn(3, K, dtype=torch.bfloat16)
    assert module.device.type == "cpu" and module(x).device.type == "cpu"
    module.cuda()
    assert_right(module, x, module(x.cuda()))
    with pytest.raises(ValueError, match="on cuda:0, got .* on cpu"):
        module(x)


def test_engines_arguments_on_the_gpu():
    a, scale_a = octile.torch.quantize_weight(torch.randn(20, K, device="cuda"))
    w, scale_w = octile.torch.quantize_weight(torch.randn(N, K, device="cuda"))
    packed = octile.pack_b(w.t(), scale_w.t(), torch.bfloat16, max_m=32)
    y = octile.scaled_mm(a, packed, scale_a)
    want = support.product(bits(a), scale_a.cpu().numpy(), bits(w), scale_w.cpu().numpy())
    error = ((y.float().cpu().numpy() - want) ** 2).sum() ** 0.5 / (want**2).sum() ** 0.5
    assert error <= support.tolerance("bf16", K) + 4e-5 * K**0.5
    torchs = torch._scaled_mm(a, w.t(), scale_a, scale_w.t(), out_dtype=torch.bfloat16)
    assert (y.float() - torchs.float()).norm() <= 0.01 * torchs.float().norm()
    with pytest.raises(ValueError, match="pack it once"):
        octile.scaled_mm(a, w.t(), scale_a, scale_w.t())


def test_modules_leave_no_device_memory_behind():
    def cycle():
        module = make_module()
        module(torch.randn(4, K, device="cuda", dtype=torch.bfloat16))

    for _ in range(5):
        cycle()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(60):
        cycle()
    gc.collect()
    torch.cuda.empty_cache()
    # 60 weights that stayed would be 23 MiB and more.
    assert before - torch.cuda.mem_get_info()[0] < 16 << 20
