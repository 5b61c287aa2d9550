# SPDX-License-Identifier: Apache-2.0
"""RmsNorm and SwiGlu as modules: a model's own norm and activation in front of its linears, in every way modules are used."""

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")

from model_parts import models_norm  # noqa: E402

import octile.torch  # noqa: E402

K, N = 96, 64


@pytest.fixture(autouse=True)
def _without_gradients(rng):
    torch.manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        yield


class Block(torch.nn.Module):
    """x + down(silu(gate) * up) of the norm of x + residual, and the sum."""

    def __init__(self):
        super().__init__()
        weight = (1 + 0.1 * torch.randn(K)).bfloat16()
        self.norm = octile.torch.RmsNorm(weight)
        self.swiglu = octile.torch.SwiGlu(N)
        self.gate_up = octile.torch.Linear.from_float(torch.nn.Linear(K, 2 * N).bfloat16(), max_m=32).prepare_codes()
        self.down = octile.torch.Linear.from_float(torch.nn.Linear(N, K, bias=False).bfloat16(), max_m=32).prepare_codes(64)

    def forward(self, x, residual):
        rows, total = self.norm(x, residual)
        return self.down(self.swiglu(self.gate_up(rows))), total

    def unfused(self, x, residual):
        total = x + residual
        gate, up = self.gate_up(models_norm(total, self.norm.weight)).chunk(2, dim=-1)
        return self.down(torch.nn.functional.silu(gate) * up), total


def inputs(*lead):
    return torch.randn(*lead, K).bfloat16(), torch.randn(*lead, K).bfloat16()


def near(y, want):
    return (y.float() - want.float()).norm() <= 0.01 * want.float().norm()


@pytest.mark.parametrize("lead", [(1,), (5,), (2, 3)])
def test_a_block_is_what_it_is_unfused(lead):
    block = Block()
    x, residual = inputs(*lead)
    y, total = block(x, residual)
    want, want_total = block.unfused(x, residual)
    assert y.shape == x.shape and torch.equal(total, want_total) and near(y, want)


def test_a_norm_without_a_residual_and_rows_that_are_apart():
    block = Block()
    x, _ = inputs(3, 8)
    rows = block.norm(x)
    assert isinstance(rows, octile.torch.Quantized) and rows.codes.shape == x.shape and rows.scales.shape == (3, 8, 1)
    apart = block.norm(x[:, ::2])
    assert torch.equal(apart.codes.view(torch.uint8), rows.codes[:, ::2].view(torch.uint8))
    assert torch.equal(apart.scales, rows.scales[:, ::2])


def test_compiled_it_has_the_bits_of_eager_for_every_batch():
    block = Block()
    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    for m in (3, 4, 19):
        x, residual = inputs(m)
        for y, want in zip(compiled(x, residual), block(x, residual), strict=True):
            assert torch.equal(y, want)


def test_the_operators_say_what_they_return():
    block = Block()
    x, residual = inputs(4)
    for op, arguments in (
        (torch.ops.octile.rms_norm, (x, block.norm._handle, K)),
        (torch.ops.octile.add_rms_norm, (x, residual, block.norm._handle, K)),
        (torch.ops.octile.swiglu, (torch.randn(4, 2 * N).bfloat16(), block.swiglu._handle, N)),
        (torch.ops.octile.linear_of_codes, (*block.norm(x), block.gate_up._handle, 2 * N, torch.bfloat16)),
    ):
        torch.library.opcheck(op.default, arguments, test_utils="test_faketensor")


def test_copies_and_files_and_state_dicts():
    block = Block()
    x, residual = inputs(4)
    want, _ = block(x, residual)
    assert torch.equal(copy.deepcopy(block)(x, residual)[0], want)
    file = io.BytesIO()
    torch.save(block, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x, residual)[0], want)
    other = Block()
    assert not torch.equal(other(x, residual)[0], want)
    other.load_state_dict(block.state_dict())
    assert torch.equal(other(x, residual)[0], want)


def test_a_move_to_fp16_makes_them_anew():
    block = Block().half()
    x, residual = (tensor.half() for tensor in inputs(4))
    y, total = block(x, residual)
    want, _ = block.unfused(x, residual)
    assert y.dtype == total.dtype == torch.float16 and near(y, want)


def test_a_linear_that_is_not_prepared_for_codes_says_so():
    block = Block()
    plain = octile.torch.Linear.from_float(torch.nn.Linear(K, N).bfloat16())
    rows = block.norm(inputs(2)[0])
    with pytest.raises(RuntimeError, match="prepare_codes"):
        plain(rows)
    with pytest.raises(ValueError, match=r"codes: want float8_e4m3fn \[..., 64\]"):
        block.down(rows)
    with pytest.raises(ValueError, match=r"scales: want float32 \[2, 1\]"):
        block.gate_up(octile.torch.Quantized(rows.codes, rows.scales[:1]))
