# SPDX-License-Identifier: Apache-2.0
"""octile.torch.quantize_ on a small model: what is replaced, and that everything people do with a model still works."""

import copy
import gc
import io
import subprocess
import sys
import threading

import pytest
import support

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
import octile  # noqa: E402
import octile.torch  # noqa: E402
from octile.torch import _ops  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(96)
        self.up = torch.nn.Linear(96, 160)
        self.down = torch.nn.Linear(160, 96, bias=False)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 96)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.lm_head = torch.nn.Linear(96, 50, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


@pytest.fixture
def torch_rng(rng):
    torch.manual_seed(int(rng.integers(2**31)))
    return rng


@pytest.fixture
def plain(torch_rng):
    return Model().bfloat16().eval()


@pytest.fixture
def model(plain):
    quantised = copy.deepcopy(plain)
    octile.torch.quantize_(quantised, max_m=32)
    return quantised


@pytest.fixture
def tokens(torch_rng):
    return torch.randint(50, (2, 7))


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def codes_of(tensor):
    return tensor.view(torch.uint8).numpy()


def test_linears_are_replaced_but_for_the_head(plain):
    report = octile.torch.quantize_(plain, max_m=8)
    assert report.replaced == ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"]
    assert report.left == {"lm_head": "skip has 'lm_head'"}
    assert isinstance(plain.blocks[0].up, octile.torch.Linear) and type(plain.lm_head) is torch.nn.Linear
    assert octile.torch.quantize_(plain, max_m=8, skip=()).replaced == ["lm_head"]


def test_a_filter_chooses(plain):
    report = octile.torch.quantize_(plain, lambda name, module: name.endswith("up"), max_m=8)
    assert report.replaced == ["blocks.0.up", "blocks.1.up"]
    assert report.left["blocks.0.down"] == "the filter left it"


def test_each_linear_is_the_oracles(plain, torch_rng):
    source = plain.blocks[0].up
    module = octile.torch.Linear.from_float(source, max_m=8)
    x = torch.randn(3, 2, 96).bfloat16()
    reference = support.product(
        *support.quantize(x.float().numpy().reshape(6, 96)),
        *support.quantize(source.weight.float().numpy()),
        source.bias.float().numpy(),
    )
    support.assert_close(module(x).float().numpy().reshape(6, 160), reference, "bf16", 96)


def test_weights_are_quantised_with_the_contracts_bits(torch_rng):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        weight = (torch.randn(64, 130) * torch.logspace(-6, 4, 64)[:, None]).to(dtype)
        weight[5] = 0
        codes, scales = octile.torch.quantize_weight(weight)
        want_codes, want_scales = octile.quantize_per_token(weight)
        assert (codes_of(codes) == codes_of(want_codes)).all() and torch.equal(scales, want_scales)


def test_the_model_is_near_the_one_it_was(plain, model, tokens):
    # Two blocks, each of which quantises weights and activations to 3 bits of mantissa: a few per cent.
    before, after = plain(tokens).float(), model(tokens).float()
    assert (after - before).norm() < 0.15 * before.norm()
    assert not torch.equal(after, before)


def test_strided_and_expanded_activations(model):
    up = model.blocks[0].up
    x = torch.randn(4, 3, 96).bfloat16()
    want = up(x)
    assert torch.equal(up(x.transpose(0, 1)), want.transpose(0, 1))
    assert torch.equal(up(x.transpose(1, 2).contiguous().transpose(1, 2)), want)
    assert torch.equal(up(x[:1].expand(5, 3, 96)), want[:1].expand(5, 3, 160))
    assert torch.equal(up(x[2, 1]), up(x[2:3, 1])[0])
    assert up(x[:0]).shape == (0, 3, 160)


def kernels_while(run, batch):
    """What run(batch) returned, and (N, K, rows, kernel) of every call of a packed linear meanwhile."""
    seen = []
    original = _ops.Packed.__call__

    def recording(self, x):
        rows = x.numel() // self.k
        said = self.linear.explain(rows)
        seen.append((self.n, self.k, rows, said["kernel"], str(said["config"])))
        return original(self, x)

    _ops.Packed.__call__ = recording
    try:
        return run(batch), seen
    finally:
        _ops.Packed.__call__ = original


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_models_run_the_same_kernels_with_the_same_bits(model, tokens, backend):
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    compiled(tokens)
    for batch in (tokens, tokens[:1], torch.cat([tokens] * 3)):
        # Inductor fuses the element-wise operations around the linears and rounds less often than eager mode, so the
        # model's outputs agree closely; the linears themselves are compared bit by bit below.
        (eager_y, eager), (compiled_y, seen) = kernels_while(model, batch), kernels_while(compiled, batch)
        assert seen == eager and len(seen) == 4
        assert (compiled_y.float() - eager_y.float()).norm() <= 0.05 * eager_y.float().norm()


def test_a_compiled_linear_has_the_bits_of_the_eager_one(model):
    up = model.blocks[0].up
    compiled = torch.compile(up, fullgraph=True, dynamic=True, backend="aot_eager")
    for m in (2, 5, 31):
        x = torch.randn(m, 96).bfloat16()
        assert torch.equal(compiled(x), up(x))


def test_a_dynamic_batch_compiles_once(model):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model.blocks[0], fullgraph=True, dynamic=True, backend=backend)
    for m in (2, 3, 9, 30):
        compiled(torch.randn(m, 4, 96).bfloat16())
    assert len(graphs) == 1


def test_exported_programs_run_with_other_batches(model, tokens):
    program = torch.export.export(model, (tokens,), dynamic_shapes={"tokens": {0: torch.export.Dim("batch")}})
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert sum("octile.linear" in target for target in targets) == 4
    for batch in (tokens, tokens[:1], torch.cat([tokens] * 3)):
        assert torch.equal(program.module()(batch), model(batch))


def test_a_graph_whose_weight_is_gone_says_so():
    module = octile.torch.Linear.from_float(torch.nn.Linear(32, 16).bfloat16(), max_m=4)
    x = torch.randn(2, 32).bfloat16()
    program = torch.export.export(module, (x,))
    torch.testing.assert_close(program.module()(x), module(x), rtol=0, atol=0)
    run = program.module()
    del module
    gc.collect()
    with pytest.raises(RuntimeError, match="no packed weight has the handle"):
        run(x)


def test_the_operator_passes_torchs_own_checks(model):
    up = model.blocks[0].up
    torch.library.opcheck(
        torch.ops.octile.linear.default,
        (torch.randn(3, 96).bfloat16(), up._handle, up.out_features),
        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
    )


def test_there_is_no_backward(model, tokens):
    with torch.enable_grad():
        y = model(tokens)
        with pytest.raises(RuntimeError, match="no autograd formula"):
            y.float().sum().backward()


def test_state_dicts_bring_the_weights_over(plain, model, tokens):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = Model().bfloat16().eval()
    octile.torch.quantize_(other, max_m=32)
    assert not torch.equal(other(tokens), model(tokens))
    compiled = torch.compile(other, fullgraph=True, dynamic=True, backend="aot_eager")
    compiled(tokens)
    state = torch.load(file, weights_only=True)
    assert state["blocks.0.up.weight"].dtype == torch.float8_e4m3fn
    assert state["blocks.0.up.weight_scale"].shape == (160, 1)
    assert other.load_state_dict(state).missing_keys == []
    assert torch.equal(other(tokens), model(tokens))
    assert torch.equal(compiled(tokens), model(tokens))  # A graph that was made before sees the new weights.
    state["blocks.0.up.weight"].view(torch.uint8).zero_()
    assert torch.equal(other(tokens), model(tokens))  # The values were copied.


def test_wrong_state_dicts_are_refused_and_change_nothing(plain, model, tokens):
    want = model(tokens)
    with pytest.raises(RuntimeError, match="blocks.0.up.weight_scale"):
        model.load_state_dict(plain.state_dict())
    state = model.state_dict()
    state["blocks.1.down.weight"] = state["blocks.1.down.weight"][:5]
    with pytest.raises(RuntimeError, match=r"blocks.1.down.weight: want float8_e4m3fn \[96, 160\]"):
        model.load_state_dict(state)
    state = model.state_dict()
    state["blocks.1.down.weight_scale"] = -state["blocks.1.down.weight_scale"]
    with pytest.raises(RuntimeError, match="want a finite value > 0"):
        model.load_state_dict(state)
    state = model.state_dict()
    state["blocks.0.up.zero_point"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match="zero_point"):
        model.load_state_dict(state)
    assert torch.equal(model(tokens), want)


def test_copies_and_pickles_are_models_of_their_own(model, tokens):
    want = model(tokens)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    copied = copy.deepcopy(model)
    state = model.state_dict()
    state["blocks.0.down.weight"] = torch.zeros(96, 160).to(torch.float8_e4m3fn)
    model.load_state_dict(state)
    assert not torch.equal(model(tokens), want)
    assert torch.equal(copied(tokens), want) and torch.equal(loaded(tokens), want)


IN_ANOTHER_PROCESS = """
import sys, torch, octile.torch
module, program, inputs = (sys.argv[i] for i in (1, 2, 3))
with torch.no_grad():
    linear = torch.load(module, weights_only=False)
    x, want = torch.load(inputs)
    assert torch.equal(torch.export.load(program).module()(x), want)
    del linear
    try:
        torch.export.load(program).module()(x)
    except RuntimeError as error:
        assert "no packed weight has the handle" in str(error)
    else:
        raise AssertionError("a program ran without its weight")
"""


def test_a_graph_in_a_file_finds_a_module_by_its_name_in_another_process(tmp_path):
    linear = octile.torch.Linear.from_float(torch.nn.Linear(32, 16).bfloat16(), max_m=4, name="here.up")
    x = torch.randn(3, 32).bfloat16()
    files = [str(tmp_path / name) for name in ("module.pt", "program.pt2", "inputs.pt")]
    torch.save(linear, files[0])
    torch.export.save(torch.export.export(linear, (x,)), files[1])
    torch.save((x, linear(x)), files[2])
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, *files], check=True)


def test_two_modules_of_a_process_have_not_the_same_name(plain, tokens):
    first = copy.deepcopy(plain)
    octile.torch.quantize_(first, max_m=32, name="model")
    assert first.blocks[0].up.name == "model.blocks.0.up"
    assert copy.deepcopy(first).blocks[0].up.name is None
    second = copy.deepcopy(plain)
    with pytest.raises(ValueError, match="another module of this process is called 'model.blocks.0.up'"):
        octile.torch.quantize_(second, max_m=32, name="model")
    handle = first.blocks[0].up._handle
    want = first(tokens)
    del first
    octile.torch.quantize_(second, max_m=32, name="model")
    assert second.blocks[0].up._handle == handle and torch.equal(second(tokens), want)


def test_a_limit_of_multiprocessors_reaches_every_linear_and_is_a_gpus(plain):
    linear = octile.torch.Linear.from_float(torch.nn.Linear(96, 64).bfloat16())
    assert linear.max_sms is None
    for make in (
        lambda: octile.torch.Linear.from_float(torch.nn.Linear(96, 64).bfloat16(), max_sms=100),
        lambda: octile.torch.quantize_(copy.deepcopy(plain), max_sms=100),
    ):
        with pytest.raises(ValueError, match="want 0 on a CPU, which has no multiprocessors"):
            make()


def test_options_of_the_quantiser_survive_a_copy():
    source = torch.nn.Linear(32, 16).bfloat16()
    bounded = octile.torch.Linear.from_float(source, max_m=4, quantize=octile.QuantizeOptions(upper_bound=0.5))
    x = torch.randn(2, 32).bfloat16()
    assert torch.equal(copy.deepcopy(bounded)(x), bounded(x))
    assert not torch.equal(octile.torch.Linear.from_float(source, max_m=4)(x), bounded(x))


def test_a_cast_to_another_activation_type_packs_again(model):
    up = copy.deepcopy(model.blocks[0].up)
    scales = up.weight_scale.clone()
    up.half()
    assert up.dtype == torch.float16 and torch.equal(up.weight_scale, scales)
    assert up(torch.randn(2, 96).half()).dtype == torch.float16
    with pytest.raises(ValueError, match="want bfloat16 or float16"):
        up.float()
    assert up(torch.randn(2, 96).half()).dtype == torch.float16  # As it was.
    with pytest.raises(ValueError, match=r"want torch.float16 \[..., 96\] on cpu, got torch.bfloat16"):
        up(torch.randn(2, 96).bfloat16())


def test_the_host_copy_may_be_dropped(model):
    up = model.blocks[0].up
    x = torch.randn(2, 96).bfloat16()
    want = up(x)
    up.drop_host_copy()
    assert torch.equal(up(x), want)
    for use in (up.state_dict, up.half, lambda: copy.deepcopy(up), lambda: up.weight):
        with pytest.raises(RuntimeError, match="drop_host_copy"):
            use()


def test_threads_share_a_model(model, tokens):
    want = model(tokens)
    wrong = []

    def work():
        with torch.no_grad():
            wrong.extend(1 for _ in range(20) if not torch.equal(model(tokens), want))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_prepare_raises_the_rows_of_every_linear(model):
    up = model.blocks[0].up
    assert "chunks of 32" in up.explain(100)["reason"]
    octile.torch.prepare(model, 128)
    assert "chunks" not in up.explain(100)["reason"]
    assert "chunks" not in copy.deepcopy(up).explain(100)["reason"]


class Fp8(torch.nn.Module):
    """As checkpoints' loaders leave a linear: codes and scales by name."""

    def __init__(self, n, k, scale_shape, dtype=torch.float32, **others):
        super().__init__()
        codes, scales = octile.torch.quantize_weight(torch.randn(n, k))
        self.weight = torch.nn.Parameter(codes, requires_grad=False)
        scales = scales if scale_shape != () else scales.max()
        self.weight_scale = torch.nn.Parameter(scales.reshape(scale_shape).to(dtype), requires_grad=False)
        for name, value in others.items():
            setattr(self, name, value)


@pytest.mark.parametrize("scale_shape", [(48, 1), (48,), ()])
def test_modules_with_fp8_weights_are_taken_over_as_they_are(torch_rng, scale_shape):
    holder = torch.nn.Sequential(Fp8(48, 64, scale_shape, torch.bfloat16))
    source = holder[0]
    assert octile.torch.quantize_(holder, max_m=4).replaced == ["0"]
    scales = source.weight_scale.float().reshape(-1, 1).expand(48, 1).numpy()
    x = torch.randn(3, 64).bfloat16()
    reference = support.product(*support.quantize(x.float().numpy()), codes_of(source.weight), scales)
    support.assert_close(holder(x).float().numpy(), reference, "bf16", 64)


def test_scales_of_activations_come_along(torch_rng):
    holder = torch.nn.Sequential(
        Fp8(48, 64, (48, 1), input_scale=torch.tensor(0.02)), Fp8(48, 48, (48,), input_scale_ub=torch.tensor([1.5]))
    )
    octile.torch.quantize_(holder, max_m=4)
    assert holder[0].activation == "static_per_tensor" and holder[0].static_scale == pytest.approx(0.02)
    assert holder[1].quantize.upper_bound == 1.5


def refusal(module):
    holder = torch.nn.Sequential(torch.nn.Linear(64, 64).bfloat16(), module)
    with pytest.raises(ValueError) as raised:
        octile.torch.quantize_(holder, max_m=4)
    assert type(holder[0]) is torch.nn.Linear, "something was replaced before the refusal"
    return str(raised.value)


def test_what_cannot_be_replaced_rightly_is_refused_by_name(torch_rng):
    block = Fp8(256, 128, (256, 1))
    block.weight_scale = torch.nn.Parameter(torch.ones(2, 1), requires_grad=False)
    assert "block-scaled weights (weight_scale [2, 1]" in refusal(block)
    block = Fp8(256, 128, (256, 1), weight_scale_inv=torch.ones(2, 1))
    del block.weight_scale
    assert "1: block-scaled weights (weight_scale_inv [2, 1])" in refusal(block)
    bare = Fp8(64, 64, (64, 1))
    del bare.weight_scale
    assert "without a weight_scale" in refusal(bare)
    assert "got torch.float32: convert it" in refusal(torch.nn.Linear(64, 64))
    assert "meta" in refusal(torch.nn.Linear(64, 64, device="meta", dtype=torch.bfloat16))
    for value in (float("nan"), float("inf"), -float("inf")):
        spoilt = torch.nn.Linear(64, 64).bfloat16()
        spoilt.weight.data[5, 7] = value
        assert "1: its weight has values that are not finite" in refusal(spoilt)
    hooked = torch.nn.Linear(64, 64).bfloat16()
    hooked.register_forward_hook(lambda *_: None)
    assert "hooks" in refusal(hooked)
    fnuz = torch.nn.Module()
    fnuz.weight = torch.zeros(64, 64).to(torch.float8_e4m3fnuz)
    assert "float8_e4m3fnuz" in refusal(fnuz)
    with pytest.raises(ValueError, match="Linear.from_float"):
        octile.torch.quantize_(torch.nn.Linear(64, 64).bfloat16())


def test_subclasses_that_use_their_weight_elsewhere_are_left(torch_rng):
    attention = torch.nn.MultiheadAttention(64, 4).bfloat16()
    report = octile.torch.quantize_(torch.nn.Sequential(attention), max_m=4)
    assert report.replaced == [] and "NonDynamicallyQuantizableLinear" in report.left["0.out_proj"]


def test_a_module_in_two_places_is_replaced_by_one(torch_rng):
    shared = torch.nn.Linear(64, 64).bfloat16()
    holder = torch.nn.Sequential(shared, torch.nn.ReLU(), shared)
    assert octile.torch.quantize_(holder, max_m=4).replaced == ["0", "2"]
    assert holder[0] is holder[2]


def test_importing_octile_does_not_import_torch():
    script = "import octile, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
