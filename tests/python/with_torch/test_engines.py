# SPDX-License-Identifier: Apache-2.0
"""The plugins of examples/vllm and examples/sglang against the engines' own classes, where these are installed."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import support

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")

EXAMPLES = Path(__file__).parents[3] / "examples"
N, K = 48, 80


@pytest.fixture(autouse=True)
def _without_gradients(rng):
    torch.manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        yield


def loaded_layer():
    """A linear as the engines leave it once a checkpoint is loaded: codes [K, N], scales [N, 1]."""
    layer = torch.nn.Module()
    codes = (torch.randn(N, K) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    layer.weight = torch.nn.Parameter(codes.t(), requires_grad=False)
    layer.weight_scale = torch.nn.Parameter(torch.rand(N, 1) + 0.01, requires_grad=False)
    layer.prefix = "model.layers.0.mlp.up_proj"
    layer.orig_dtype = torch.bfloat16
    return layer, codes, layer.weight_scale.clone()


def assert_right(y, x, codes, scales, bias):
    codes_x, scales_x = support.quantize(x.float().numpy(), floor=1 / 512)
    want = support.product(codes_x, scales_x, codes.view(torch.uint8).numpy(), scales.numpy())
    want = torch.from_numpy(want) + bias.double()
    assert (y.double() - want).norm() <= 0.01 * want.norm()


def test_vllm_chooses_octiles_kernel_and_it_computes_the_linear():
    config = pytest.importorskip("vllm.config", reason="vllm is not installed")
    sys.path.insert(0, str(EXAMPLES / "vllm"))
    import octile_vllm
    from vllm.model_executor.kernels import linear as kernels
    from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8StaticTensorSym
    from vllm.platforms import PlatformEnum

    octile_vllm.register()
    octile_vllm.register()
    assert kernels._POSSIBLE_FP8_KERNELS[PlatformEnum.CUDA].count(octile_vllm.OctileFP8ScaledMMLinearKernel) == 1
    described = {"weight_shape": (N, K), "input_dtype": torch.bfloat16, "out_dtype": torch.bfloat16}
    with config.set_current_vllm_config(config.VllmConfig(device_config=config.DeviceConfig(device="cpu"))):
        kernel = kernels.init_fp8_linear_kernel(
            activation_quant_key=octile_vllm.kFp8DynamicTokenSym,
            weight_quant_key=octile_vllm.kFp8StaticChannelSym,
            force_kernel=octile_vllm.OctileFP8ScaledMMLinearKernel,
            **described,
        )
        static = octile_vllm.FP8ScaledMMLinearLayerConfig(
            weight_quant_key=kFp8StaticTensorSym, activation_quant_key=kFp8StaticTensorSym, **described
        )
    assert isinstance(kernel, octile_vllm.OctileFP8ScaledMMLinearKernel)
    assert not kernel.can_implement(static)[0]
    layer, codes, scales = loaded_layer()
    kernel.process_weights_after_loading(layer)
    assert layer.octile.name == "vllm.model.layers.0.mlp.up_proj" and layer.weight.numel() == 0
    x, bias = torch.randn(5, K).bfloat16(), torch.randn(N).bfloat16()
    assert_right(kernel.apply_weights(layer, x, bias), x, codes, scales, bias)


def test_sglang_hooks_the_scheme():
    registry = pytest.importorskip("sglang.srt.plugins.hook_registry", reason="sglang is not installed")
    sys.path.insert(0, str(EXAMPLES / "sglang"))
    import octile_sglang

    octile_sglang.register()
    hooks = registry.HookRegistry._hooks
    assert [kind for kind, *_ in hooks[f"{octile_sglang.SCHEME}.apply_weights"]] == [registry.HookType.AROUND]
    layer, codes, scales = loaded_layer()
    scheme = SimpleNamespace(strategy=octile_sglang.QuantizationStrategy.CHANNEL, is_static_input_scheme=False)
    octile_sglang.pack(None, scheme, layer)
    x, bias = torch.randn(5, K).bfloat16(), torch.randn(N).bfloat16()
    assert_right(octile_sglang.apply(None, scheme, layer, x, bias), x, codes, scales, bias)
    untouched = loaded_layer()[0]
    octile_sglang.pack(None, SimpleNamespace(strategy=octile_sglang.QuantizationStrategy.TENSOR), untouched)
    assert octile_sglang.apply(lambda *_: "the engine's", scheme, untouched, x) == "the engine's"
