# SPDX-License-Identifier: Apache-2.0
"""octile.torch.load_checkpoint_: a checkpoint's codes in the place of a model's linears, those of a model on meta as well."""

import ml_dtypes
import numpy as np
import pytest
import support
from checkpoints import FORMATS, HIDDEN, LAYERS, MODULES, Stored

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
import octile.torch  # noqa: E402


class Group(torch.nn.Module):
    def __init__(self, prefix):
        super().__init__()
        for module, (n, k) in MODULES.items():
            group, name = module.split(".")
            if group == prefix:
                self.add_module(name, torch.nn.Linear(k, n, bias=False))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Group("self_attn")
        self.mlp = Group("mlp")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.lm_head = torch.nn.Linear(HIDDEN, 7, bias=False)


@pytest.fixture(params=["compressed-tensors", "fp8"])
def stored(request, rng, tmp_path):
    quantization, *rest = FORMATS[request.param]
    checkpoint = Stored(rng, *rest)
    checkpoint.write(tmp_path, quantization)
    return checkpoint


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_every_linear_computes_what_the_checkpoint_says(stored, tmp_path, rng, device):
    with torch.device(device):
        model = Model().half()
    report = octile.torch.load_checkpoint_(model, tmp_path, max_m=4)
    assert set(report.replaced) == set(stored.codes) and not report.left
    assert type(model.lm_head) is torch.nn.Linear
    for name in report.replaced:
        module = model.get_submodule(name)
        assert isinstance(module, octile.torch.Linear) and module.dtype == torch.float16
        x = rng.standard_normal((3, module.in_features)).astype(np.float16)
        with torch.no_grad():
            y = module(torch.from_numpy(x)).numpy()
        if stored.static:
            scales = np.full((3, 1), stored.static[name], np.float32)
            codes = support.encode(np.clip(x.astype(np.float32) / scales, -448, 448))
        else:
            codes, scales = support.quantize(x.astype(np.float32))
        wanted = support.product(codes, scales, stored.codes[name], stored.scales[name])
        support.assert_close(y, wanted, "fp16", module.in_features)


def test_linears_that_the_checkpoint_left_out_are_left(rng, tmp_path):
    quantization, *rest = FORMATS["compressed-tensors"]
    checkpoint = Stored(rng, *rest)
    name = "model.layers.1.mlp.down_proj"
    shape = checkpoint.codes[name].shape
    checkpoint.tensors[f"{name}.weight"] = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    del checkpoint.tensors[f"{name}.weight_scale"]
    checkpoint.write(tmp_path, quantization)
    model = Model().bfloat16()
    before = model.model.layers[1].mlp.down_proj
    report = octile.torch.load_checkpoint_(model, tmp_path)
    assert report.left == {name: "the checkpoint holds it in bf16"}
    assert model.model.layers[1].mlp.down_proj is before


def test_a_second_checkpoint_takes_the_place_of_the_first(rng, tmp_path):
    quantization, *rest = FORMATS["compressed-tensors"]
    model = Model().half()
    for _ in range(2):
        stored = Stored(rng, *rest)
        stored.write(tmp_path, quantization)
        octile.torch.load_checkpoint_(model, tmp_path, max_m=1)
        for name, codes in stored.codes.items():
            module = model.get_submodule(name)
            assert module.dtype == torch.float16
            np.testing.assert_array_equal(module.weight.view(torch.uint8).numpy(), codes)


def test_nothing_is_replaced_where_something_does_not_fit(stored, tmp_path):
    model = Model().bfloat16()
    model.model.layers[1].mlp.up_proj = torch.nn.Linear(HIDDEN, 5)
    with pytest.raises(ValueError, match=r"model\.layers\.1\.mlp\.up_proj: want a linear"):
        octile.torch.load_checkpoint_(model, tmp_path)
    del model.model.layers[1].mlp.up_proj
    with pytest.raises(ValueError, match="there is none"):
        octile.torch.load_checkpoint_(model, tmp_path)
    assert not any(isinstance(module, octile.torch.Linear) for module in model.modules())
