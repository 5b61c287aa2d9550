# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints, written with the package safetensors as the tools write theirs.

compressed-tensors, modelopt and quark need torch to run. The files here hold what they would: names, dtypes and shapes of
tensors, and the parts of config.json that say how the weights are quantised.
"""

import json

import ml_dtypes
import numpy as np
import safetensors.numpy
import support

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 32, 48, 4, 2, 8
MODULES = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj": ("self_attn.o_proj",),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": ("mlp.down_proj",),
}
LAYERS = 2
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": LAYERS,
}


def compressed_tensors(weights, activations, dynamic):
    numbers = {"num_bits": 8, "type": "float", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**numbers, "strategy": weights, "dynamic": False},
        "input_activations": {**numbers, "strategy": activations, "dynamic": dynamic},
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


# quant_method: quantization_config, shape of weight_scale for [N, K], its dtype, whether input_scale is stored.
FORMATS = {
    "compressed-tensors": (compressed_tensors("channel", "token", True), lambda n: (n, 1), ml_dtypes.bfloat16, False),
    "compressed-tensors static": (compressed_tensors("tensor", "tensor", False), lambda n: (1,), ml_dtypes.bfloat16, True),
    "fbgemm_fp8": (
        {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
        lambda n: (n, 1),
        np.float32,
        False,
    ),
    "modelopt": (
        {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": ["lm_head"]},
        lambda n: (n,),
        np.float32,
        False,
    ),
    "modelopt per tensor": ({"quant_method": "modelopt", "quant_algo": "FP8"}, lambda n: (), np.float32, True),
    "quark": (
        {
            "quant_method": "quark",
            "export": {"kv_cache_group": [], "pack_method": "reorder"},
            "exclude": ["lm_head"],
            "layer_quant_config": {},
            "global_quant_config": {
                "weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": False},
                "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 1, "is_dynamic": True},
            },
        },
        lambda n: (n,),
        np.float32,
        False,
    ),
    "fp8": ({"quant_method": "fp8", "activation_scheme": "static"}, lambda n: (), np.float32, True),
}


class Stored:
    """What a checkpoint holds, by module: codes (uint8), scales fp32 [N], static scales of activations."""

    def __init__(self, rng, scale_shape, scale_dtype, static):
        self.tensors = {"model.embed_tokens.weight": rng.standard_normal((7, HIDDEN)).astype(ml_dtypes.bfloat16)}
        self.codes, self.scales, self.static = {}, {}, {}
        for layer in range(LAYERS):
            for module, (n, k) in MODULES.items():
                name = f"model.layers.{layer}.{module}"
                codes, _ = support.random_weight(rng, n, k)
                scale = rng.uniform(0.001, 0.01, scale_shape(n)).astype(scale_dtype)
                self.tensors[f"{name}.weight"] = codes.view(ml_dtypes.float8_e4m3fn)
                self.tensors[f"{name}.weight_scale"] = np.asarray(scale)
                self.codes[name] = codes
                self.scales[name] = np.broadcast_to(np.asarray(scale, np.float32).reshape(-1), (n,)).copy()
                if static:
                    self.static[name] = np.float32(rng.uniform(0.01, 0.02))
                    self.tensors[f"{name}.input_scale"] = np.asarray(self.static[name])

    def write(self, path, quantization, shards=1):
        (path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": quantization}))
        if shards == 1:
            safetensors.numpy.save_file(self.tensors, path / "model.safetensors", metadata={"format": "pt"})
            return
        weight_map = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            held = dict(list(self.tensors.items())[shard::shards])
            safetensors.numpy.save_file(held, path / file, metadata={"format": "pt"})
            weight_map.update(dict.fromkeys(held, file))
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    def fused(self, values, layer, module):
        return np.concatenate([values[f"model.layers.{layer}.{part}"] for part in FUSED[module]])
