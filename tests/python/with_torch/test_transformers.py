# SPDX-License-Identifier: Apache-2.0
"""transformers' own models: quantize_ takes them, and bench/accuracy's decoder and encoder compute what they compute."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "accuracy"))
import decoder  # noqa: E402
import encoder  # noqa: E402

import octile.torch  # noqa: E402

SIZES = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
KV_HEADS, HEAD_DIM = 2, 16


@pytest.fixture(autouse=True)
def _without_gradients(rng):
    torch.manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        yield


def llama(**arguments):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=KV_HEADS, **arguments)).eval()


def qwen3():
    config = transformers.Qwen3Config(**SIZES, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM)
    return transformers.Qwen3ForCausalLM(config).eval()


@pytest.mark.parametrize("make", [llama, qwen3])
def test_quantize_takes_a_model_of_transformers_which_still_generates(make):
    model = make().bfloat16()
    tokens = torch.randint(100, (2, 9))
    before = model(tokens).logits.float()
    report = octile.torch.quantize_(model, max_m=32)
    assert len(report.replaced) == 14 and report.left == {"lm_head": "skip has 'lm_head'"}
    after = model(tokens).logits.float()
    assert 0 < (after - before).norm() < 0.15 * before.norm()
    mask = torch.ones_like(tokens)
    continued = model.generate(tokens, attention_mask=mask, pad_token_id=0, min_new_tokens=3, max_new_tokens=3, do_sample=False)
    assert continued.shape == (2, 12) and torch.equal(continued[:, :9], tokens)


def interleaved(weight, heads):
    """q or k of transformers, whose RoPE pairs the halves of a head, with the rows in the order of GGUF files."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def test_the_decoder_is_transformers_llama():
    theirs = llama(rope_parameters={"rope_type": "default", "rope_theta": 5e4}, rms_norm_eps=1e-5, tie_word_embeddings=True)
    for module in theirs.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.1)
    ours = decoder.Decoder(decoder.Config(100, 64, 128, layers=2, heads=4, kv_heads=KV_HEADS, rope_base=5e4)).eval()
    names = {
        "self_attn.q_proj": "attention.q",
        "self_attn.k_proj": "attention.k",
        "self_attn.v_proj": "attention.v",
        "self_attn.o_proj": "attention.o",
        "mlp.gate_proj": "gate",
        "mlp.up_proj": "up",
        "mlp.down_proj": "down",
        "input_layernorm": "norm1",
        "post_attention_layernorm": "norm2",
    }
    ours.embedding.weight.copy_(theirs.model.embed_tokens.weight)
    ours.norm.weight.copy_(theirs.model.norm.weight)
    for mine, other in zip(ours.layers, theirs.model.layers, strict=True):
        for their_name, name in names.items():
            weight = other.get_submodule(their_name).weight
            if name.endswith((".q", ".k")):
                weight = interleaved(weight, weight.shape[0] // HEAD_DIM)
            mine.get_submodule(name).weight.copy_(weight)
    tokens = torch.randint(100, (21,))
    torch.testing.assert_close(ours(tokens), theirs(tokens[None]).logits[0], rtol=1e-4, atol=1e-4)


def test_the_encoder_is_transformers_bert_with_mean_pooling():
    config = transformers.BertConfig(**SIZES, max_position_embeddings=40)
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ours = encoder.Encoder(config.to_dict()).eval()
    encoder.load_state(ours, theirs.state_dict())
    tokens = torch.randint(100, (17,))
    wanted = theirs(tokens[None]).last_hidden_state[0].mean(dim=0)
    torch.testing.assert_close(ours(tokens), wanted / wanted.norm(), rtol=1e-4, atol=1e-5)
