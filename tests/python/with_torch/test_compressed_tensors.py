# SPDX-License-Identifier: Apache-2.0
"""A file that compressed-tensors itself writes, against what compressed-tensors reads in it."""

import json

import pytest
import support
from checkpoints import CONFIG, LAYERS, MODULES

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed: pip install compressed-tensors")
import safetensors.torch  # noqa: E402
from compressed_tensors.compressors import ModelCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme  # noqa: E402
from test_checkpoint import Model  # noqa: E402

import octile.torch  # noqa: E402


def write(model, path):
    """What llm-compressor's save_pretrained leaves of a model quantised with its scheme FP8_DYNAMIC."""
    scheme = preset_name_to_scheme("FP8_DYNAMIC", ["Linear"])
    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"]))
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data.copy_(module.weight.detach().float().abs().amax(dim=1, keepdim=True) / 448.0)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    safetensors.torch.save_file(model.state_dict(), path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(CONFIG))
    compressor.update_config(str(path))
    return compressor


def test_a_file_of_compressed_tensors_computes_what_it_reads_in_it(rng, tmp_path):
    torch.manual_seed(int(rng.integers(2**31)))
    source = Model().bfloat16()
    compressor = write(source, tmp_path)
    stored = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    model = Model().bfloat16()
    report = octile.torch.load_checkpoint_(model, tmp_path, max_m=4)
    names = {f"model.layers.{layer}.{module}" for layer in range(LAYERS) for module in MODULES}
    assert set(report.replaced) == names and not report.left
    compressor.decompress_model(source)
    for name in sorted(names):
        module, decompressed = model.get_submodule(name), source.get_submodule(name).weight.detach()
        assert torch.equal(module.weight.view(torch.uint8), stored[f"{name}.weight"].view(torch.uint8))
        assert torch.equal(module.weight_scale, stored[f"{name}.weight_scale"].float())
        # Decompressed weights are rounded to the scales' bf16 once more.
        read = module.weight.float() * module.weight_scale
        assert (read - decompressed.float()).abs().max() <= 2.0**-8 * decompressed.float().abs().max()
        x = torch.randn(3, module.in_features).bfloat16()
        with torch.no_grad():
            y = module(x).float().numpy()
        reference = support.product(
            *support.quantize(x.float().numpy()), module.weight.view(torch.uint8).numpy(), module.weight_scale.numpy()
        )
        support.assert_close(y, reference, "bf16", module.in_features)
