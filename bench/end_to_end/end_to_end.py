# SPDX-License-Identifier: Apache-2.0
"""Qwen3-8B end to end: what a decoding step, a generated token and the first one take with each kind of linear.

transformers' model from its config with random weights, static cache, greedy, one CUDA graph of the eager forward a step
(--compile: of what torch.compile makes of it, as mode="reduce-overhead" would capture; prompts run eagerly). All variants share
one model, one cache and all kernels but the linears'; they take turns in rounds, so that every ratio is of pairs (95 %,
bootstrap over rounds).

    pip install . torch transformers
    python bench/end_to_end/end_to_end.py --json end_to_end.json
    python bench/end_to_end/end_to_end.py --tiny --device cpu --concurrency 1,2 --prompt 8 --new 4
"""

from __future__ import annotations

import argparse
import gc
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import decode
import numpy as np
import qwen3
import regions
import timeline
import torch
import transformers
import variants

import octile
import octile.torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "accuracy"))
import metrics
import records

RIVALS = ("bf16", "fp8", "fp8_fused")
MEASURES = ("sum", "busy", "span")
LARGEST_CHUNK = 8192
Made = TypeVar("Made")
START = time.perf_counter()


def say(text: str) -> None:
    print(f"{time.perf_counter() - START:7.1f} s  {text}", file=sys.stderr, flush=True)


def mean_interval(values: list[float]) -> dict[str, float]:
    array = np.asarray(values)
    return metrics.bootstrap_interval(len(array), lambda drawn: float(array[drawn].mean()))


def ratio_interval(values: list[float], others: list[float]) -> dict[str, float]:
    """Of the means, rounds drawn together."""
    above, below = np.asarray(values), np.asarray(others)
    return metrics.bootstrap_interval(len(above), lambda drawn: float(above[drawn].mean() / below[drawn].mean()))


def against_rivals(name: str, found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """This variant's time as a share of each rival's."""
    return {rival: ratio_interval(found[name], found[rival]) for rival in RIVALS if rival in found and rival != name}


def beyond(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """By variant, what a round has beyond the round of "none"."""
    return {
        name: [value - rest for value, rest in zip(values, found["none"], strict=True)]
        for name, values in found.items()
        if name != "none"
    }


class Run:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.device = torch.empty(0, device=arguments.device).device
        self.record: dict[str, Any] = {}
        self.models: dict[str, torch.nn.Module] = {}
        self.stepped: dict[str, torch.nn.Module] = {}  # What runs a step: the models, or what they are compiled to.
        self.capture_s = 0.0
        self.variants: list[str] = list(arguments.variants)
        self.failed: dict[str, str] = {}
        self.rows: dict[tuple[int, str], dict[str, Any]] = {}

    def row(self, count: int, name: str) -> dict[str, Any]:
        return self.rows.setdefault((count, name), {"concurrency": count, "variant": name})

    def save(self) -> None:
        if self.arguments.json:
            seconds = time.perf_counter() - START
            record = {**self.record, "failed": self.failed, "seconds": seconds, "rows": list(self.rows.values())}
            self.arguments.json.write_text(records.written(records.rounded(record)), encoding="utf-8")

    def is_late(self, share: float, what: str, ahead: float = 0.0) -> bool:
        """Whether, with the seconds that lie ahead, a share of the time limit is over: what comes then is left out."""
        late = time.perf_counter() - START + ahead > self.arguments.time_limit * share
        if late:
            say(f"{what} is left out: it would not end in {share:.0%} of --time-limit {self.arguments.time_limit}")
            self.record.setdefault("left_out", []).append(what)
        return late

    def without_failing(self, what: str, make: Callable[[str], Made]) -> dict[str, Made]:
        """make(name) of every variant that is there. One that fails is left out from here on, and said: the others are worth
        having."""
        made: dict[str, Made] = {}
        for name in list(self.variants):
            try:
                made[name] = make(name)
            except (RuntimeError, ValueError) as error:
                say(f"{name} is left out: {what}: {error}")
                self.failed[name] = f"{what}: {error}"
                self.variants.remove(name)
                self.models.pop(name, None)
        return made

    def load(self) -> None:
        arguments = self.arguments
        most = max(arguments.concurrency)
        say(f"making the model on {self.device}")
        sizes = qwen3.TINY if arguments.tiny else qwen3.QWEN3_8B
        model = qwen3.make_model(sizes, arguments.layers, self.device, arguments.seed)
        self.config = config = model.config
        max_m = min(most * arguments.prompt, arguments.max_m)
        builder = variants.Builder(model, max_m, most, arguments.threads, arguments.compile is not None, arguments.pdl)
        decode.synchronize(self.device)

        def make(name: str) -> torch.nn.Module:
            made = builder.make(name)
            decode.synchronize(self.device)
            say(f"made {name}")
            return made

        self.models = self.without_failing("making it", make)
        self.stepped = dict(self.models)
        if arguments.compile:
            self.stepped = {name: regions.compiled(its, arguments.compile) for name, its in self.models.items()}
        gc.collect()
        gc.freeze()  # Captures collect garbage, and would look at what stays each time.
        device_id = str(self.device)
        self.record = {
            "model": "Qwen3, random weights" if arguments.tiny else "Qwen3-8B, random weights",
            "layers": config.num_hidden_layers,
            "device_name": next(entry["device_name"] for entry in octile.devices() if entry["id"] == device_id),
            "commit": records.commit(),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "octile_version": octile.__version__,
            "torch_version": torch.__version__,
            "transformers_version": transformers.__version__,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "prompt_tokens": arguments.prompt,
            "new_tokens": arguments.new,
            "compiled": arguments.compile is not None,
            "compiled_as": arguments.compile or "",
            "prepared_rows": max_m,
            "pdl": arguments.pdl,
            "variants": {name: variants.VARIANTS[name] for name in arguments.variants},
            "kernels": {
                name: variants.kernels_of(its, [*arguments.concurrency, max_m])
                for name, its in self.models.items()
                if name in ("octile_off", "octile", "octile_fused")
            },
        }

    def sequences(self, count: int) -> qwen3.Sequences:
        arguments = self.arguments
        torch.manual_seed(arguments.seed)
        return qwen3.Sequences(self.config, count, arguments.prompt, arguments.new, self.device)

    @property
    def middle(self) -> int:
        """Tokens in the cache where steps are timed."""
        return self.arguments.prompt + self.arguments.new // 2

    def prefill_all(self, sequences: qwen3.Sequences, count: int) -> None:
        """The first pass of each variant compiles and allocates; its logits are compared."""

        def prefill(name: str) -> torch.Tensor | None:
            if name == "none":
                return None
            found = sequences.prefill(self.models[name]).float()
            if not torch.isfinite(found).all():
                raise RuntimeError("logits that are not finite")
            return found

        found = self.without_failing(f"a prompt at concurrency {count}", prefill)
        logits = {name: its for name, its in found.items() if its is not None}
        for name in found:
            row = self.row(count, name)
            for other in ("bf16", "fp8_fused", "octile_fused"):
                if name in logits and other in logits and other != name:
                    distance = (logits[name] - logits[other]).norm() / logits[other].norm()
                    row.setdefault("logits_apart", {})[other] = float(distance)
        say(f"concurrency {count}: prompts of all variants")

    def steps(self, sequences: qwen3.Sequences) -> dict[str, decode.Step]:
        def capture(name: str) -> decode.Step:
            start = time.perf_counter()
            step = decode.step_of(self.stepped[name], sequences, self.arguments.prompt)
            seconds = time.perf_counter() - start
            say(f"captured {name} for {sequences.count} in {seconds:.1f} s")
            self.row(sequences.count, name).setdefault("capture_s", seconds)
            return step

        start = time.perf_counter()
        made = self.without_failing(f"capturing a step of {sequences.count}", capture)
        self.capture_s = time.perf_counter() - start
        return made

    def time_steps(self, steps: dict[str, decode.Step], sequences: qwen3.Sequences, count: int) -> None:
        arguments = self.arguments
        found = decode.step_rounds(steps, sequences, self.middle, arguments.rounds, arguments.steps)
        for name in found:
            row = self.row(count, name)
            row["step_us"] = mean_interval(found[name])
            row["step_share"] = against_rivals(name, found)
        if "none" in found:
            linears = beyond(found)
            for name in linears:
                self.row(count, name)["beyond_rest_us"] = mean_interval(linears[name])
                self.row(count, name)["beyond_rest_share"] = against_rivals(name, linears)
        say(f"concurrency {count}: {', '.join(f'{name} {np.mean(values):.0f} us' for name, values in found.items())}")
        self.save()

    def generate(self, steps: dict[str, decode.Step], sequences: qwen3.Sequences, count: int) -> None:
        arguments = self.arguments
        names = [name for name in steps if name != "none"]
        firsts: dict[str, list[float]] = {name: [] for name in names}
        gaps: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(arguments.generations):
            for name in decode.rotated(names, turn):
                first, between = decode.generate(self.models[name], steps[name], sequences, arguments.new)
                firsts[name].append(first)
                gaps[name] += between
        for name in names:
            between_ms = np.asarray(gaps[name]) * 1e3
            seconds = sum(firsts[name]) + sum(gaps[name])
            self.row(count, name).update(
                generations=arguments.generations,
                ttft_ms=float(np.median(firsts[name]) * 1e3),
                tpot_ms=float(between_ms.mean()),
                itl_ms={f"p{share}": float(np.percentile(between_ms, share)) for share in (50, 90, 99)},
                tokens_per_s=count * arguments.new * arguments.generations / seconds,
            )
        say(f"concurrency {count}: {arguments.generations} times {arguments.new} tokens of each variant")
        self.save()

    def profile(self, count: int) -> None:
        sequences = self.sequences(count)
        sequences.prefill(self.models["bf16"])
        steps = self.steps(sequences)  # Captured anew: CUPTI sees the kernels of graphs that were made while it was there.
        replays = decode.profile(steps, sequences, self.middle, self.arguments.profile_rounds)
        classes = {name: [timeline.attribute(replay) for replay in found] for name, found in replays.items()}
        for name, found in classes.items():
            row = self.row(count, name)
            row["classes"] = {
                kind: {
                    key: float(np.mean([entry[kind][key] for entry in found if kind in entry]))
                    for key in ("sum_us", "busy_us", "gap_us", "kernels")
                }
                for kind in sorted({kind for entry in found for kind in entry})
            }
            row["kernel_times"] = [
                {"class": kind, "name": kernel[:160], "count": times, "us": us}
                for kind, kernel, times, us in timeline.by_name(replays[name][-1])[:12]
            ]
        for measure in MEASURES:
            found = {name: [timeline.linears_us(entry, measure) for entry in its] for name, its in classes.items()}
            linears = beyond(found) if "none" in found else found  # lm_head and RoPE's product are in all variants.
            for name in linears:
                entry = self.row(count, name).setdefault("linears", {})
                entry[f"{measure}_us"] = mean_interval(linears[name])
                entry[f"{measure}_share"] = against_rivals(name, linears)
        say(f"concurrency {count}: kernels of {self.arguments.profile_rounds} replays of each variant")
        self.save()

    def all(self) -> None:
        arguments = self.arguments
        self.load()
        for count in arguments.concurrency:
            # The code of one number of sequences takes about as long to compile as that of another.
            if self.is_late(0.8, f"concurrency {count}", self.capture_s):
                continue
            sequences = self.sequences(count)
            self.prefill_all(sequences, count)
            steps = self.steps(sequences)
            self.time_steps(steps, sequences, count)
            if arguments.generations and not self.is_late(0.7, f"generation at concurrency {count}"):
                self.generate(steps, sequences, count)
            del steps, sequences
        if self.device.type == "cuda" and arguments.profile_rounds:
            with torch.profiler.profile():  # CUPTI is started here, so that the graphs that follow are seen.
                torch.cuda._sleep(1)
                torch.cuda.synchronize()
            for count in arguments.concurrency:
                if not self.is_late(1.0, f"profile at concurrency {count}"):
                    self.profile(count)
        self.save()

    def table(self) -> str:
        def shown(entry: dict[str, float] | None, digits: int) -> str:
            return "" if entry is None else f"{entry['value']:.{digits}f} [{entry['lo']:.{digits}f}, {entry['hi']:.{digits}f}]"

        def cells(row: dict[str, Any]) -> list[str]:
            step, linears = row.get("step_share", {}), row.get("linears", {})
            share = linears.get("span_share", {})
            return [
                str(row["concurrency"]),
                row["variant"],
                f"{row['step_us']['value']:.0f}" if "step_us" in row else "",
                shown(step.get("fp8_fused"), 3),
                shown(step.get("bf16"), 3),
                f"{linears['span_us']['value']:.0f}" if "span_us" in linears else "",
                shown(share.get("fp8_fused"), 3),
                shown(share.get("bf16"), 3),
                f"{row['ttft_ms']:.1f}" if "ttft_ms" in row else "",
                f"{row['itl_ms']['p50']:.2f} / {row['itl_ms']['p99']:.2f}" if "itl_ms" in row else "",
                f"{row['tokens_per_s']:.0f}" if "tokens_per_s" in row else "",
            ]

        head = [
            "sequences",
            "variant",
            "step us",
            "/ fp8_fused",
            "/ bf16",
            "linears us",
            "/ fp8_fused",
            "/ bf16",
            "first ms",
            "ITL p50 / p99 ms",
            "tokens/s",
        ]
        lines = [head, ["---"] * len(head), *(cells(row) for row in self.rows.values())]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def names_of(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in variants.VARIANTS]
    if unknown or "bf16" not in names:
        raise argparse.ArgumentTypeError(f"want bf16 and others of {', '.join(variants.VARIANTS)}, got {text}")
    return names


def counts_of(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"want numbers from 1 up, got {text}")
    return counts


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu to try the program out")
    parser.add_argument("--tiny", action="store_true", help="a model of two small layers")
    parser.add_argument("--layers", type=int, help="this many in the place of the model's own")
    parser.add_argument("--variants", type=names_of, default=list(variants.VARIANTS), help=", ".join(variants.VARIANTS))
    parser.add_argument("--concurrency", type=counts_of, default=[1, 8, 32], help="numbers of sequences")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt")
    parser.add_argument("--new", type=int, default=128, help="tokens that are generated")
    parser.add_argument("--rounds", type=int, default=8, help="of timed steps")
    parser.add_argument("--steps", type=int, default=4, help="of each variant a round")
    parser.add_argument("--generations", type=int, default=1, help="of each variant; 0: none")
    parser.add_argument("--profile-rounds", type=int, default=6, help="of one replay of each variant; 0: none")
    parser.add_argument(
        "--compile",
        nargs="?",
        const="model",
        choices=["model", "layers"],
        help="torch.compile the step before it is captured: as a whole (minutes for each variant and number of sequences), or "
        "each layer, all by the same code",
    )
    parser.add_argument("--max-m", type=int, default=LARGEST_CHUNK, help="rows that Octile prepares for, chunks of a prompt")
    parser.add_argument("--pdl", choices=["full", "off"], default="full", help="launch mode of Octile's kernels")
    parser.add_argument("--threads", type=int, default=8, help="that pack weights")
    parser.add_argument("--time-limit", type=float, default=600, metavar="S", help="later parts are left out behind it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record here, after each part")
    arguments = parser.parse_args(words)
    if arguments.rounds < 2 or arguments.profile_rounds == 1:
        parser.error("want 2 rounds or more, for intervals")
    if arguments.new // 2 + arguments.steps + 1 > arguments.new:
        parser.error(f"--new {arguments.new}: want room for --steps {arguments.steps} and one more in its second half")
    return arguments


def main(words: list[str] | None = None) -> Run:
    run = Run(parse(words))
    with torch.no_grad():
        run.all()
    print(run.table())
    return run


if __name__ == "__main__":
    main()
