# SPDX-License-Identifier: Apache-2.0
"""A model's linears in bf16 by torch against the same model after octile.torch.quantize_, on this CPU.

The model is a stack of Qwen3-8B's decoder layers without attention: norm, qkv, o, norm, gate_up, silu * up, down; `linears` are
its linears alone, one by one. Both run in one process in turn, forward and backward, so that each pass of one is paired
with one of the other; the ratio is torch's time / Octile's, with a 95 % interval of its median (binomial order statistics). The
layers are larger than the last-level cache.

    pip install . torch
    OMP_WAIT_POLICY=passive python bench/cpu_torch.py --tune 60s --out bench/results

writes bench/results/<device_name>/cpu_torch.json. docs/benchmarks.md says how to read it.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import math
import os
import shlex
import statistics
import sys
import time
from pathlib import Path

import torch

import octile
import octile.torch

sys.path += [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent / "accuracy")]
import records
from intervals import median_interval


@dataclasses.dataclass(frozen=True)
class Sizes:
    hidden: int = 4096
    qkv: int = 6144
    intermediate: int = 12288


TINY = Sizes(hidden=64, qkv=96, intermediate=128)


class Layer(torch.nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.hidden = sizes.hidden
        self.norm1 = torch.nn.RMSNorm(sizes.hidden)
        self.qkv = torch.nn.Linear(sizes.hidden, sizes.qkv, bias=False)
        self.o = torch.nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.norm2 = torch.nn.RMSNorm(sizes.hidden)
        self.gate_up = torch.nn.Linear(sizes.hidden, 2 * sizes.intermediate, bias=False)
        self.down = torch.nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Attention's part of the work is the same on both sides and is left out; its output has the queries' width.
        x = x + self.o(self.qkv(self.norm1(x))[:, : self.hidden])
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(torch.nn.functional.silu(gate) * up)


class Linears(torch.nn.Module):
    """The linears of a stack, each on rows that are there already."""

    def __init__(self, stack: torch.nn.Sequential, sizes: Sizes, m: int) -> None:
        super().__init__()
        self.stack = stack
        self.wide = torch.randn(m, sizes.intermediate).bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.stack:
            layer.qkv(x), layer.o(x), layer.gate_up(x)
            y = layer.down(self.wide)
        return y


def pass_seconds(model: torch.nn.Module, x: torch.Tensor, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        model(x)
    return (time.perf_counter() - start) / repeats


def compare(ours: torch.nn.Module, theirs: torch.nn.Module, x: torch.Tensor, seconds: float, least: float) -> dict[str, float]:
    """Pairs of passes for so many seconds; each side of a pair takes `least` seconds or more."""
    ours(x), theirs(x)
    repeats = max(1, int(least / min(pass_seconds(ours, x, 1), pass_seconds(theirs, x, 1))))
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < 6 or time.perf_counter() < end:
        if len(pairs) % 2 == 0:
            bf16, fp8 = pass_seconds(theirs, x, repeats), pass_seconds(ours, x, repeats)
        else:
            fp8, bf16 = pass_seconds(ours, x, repeats), pass_seconds(theirs, x, repeats)
        pairs.append((bf16, fp8))
    ratio, low, high = median_interval([bf16 / fp8 for bf16, fp8 in pairs])
    return {
        "torch_bf16_us": statistics.median(bf16 for bf16, _ in pairs) * 1e6,
        "octile_us": statistics.median(fp8 for _, fp8 in pairs) * 1e6,
        "ratio": ratio,
        "ratio_lo": low,
        "ratio_hi": high,
        "rounds": len(pairs),
    }


def error_of(ours: torch.nn.Module, theirs: torch.nn.Module, x: torch.Tensor) -> float:
    """Relative distance of the results: what FP8 costs these random layers, and a sign that both compute the same."""
    y, want = ours(x).float(), theirs(x).float()
    return float((y - want).norm() / want.norm())


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", default="1,4,16,64,256", help="numbers of tokens")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=10, help="for each number of tokens, and as long for the linears alone"
    )
    parser.add_argument("--tune", metavar="TIME", help="tune the linears first, for so long altogether")
    parser.add_argument("--tables", default="", help="directory of tables to write to and read from")
    parser.add_argument("--tiny", action="store_true", help="small layers, to try the program out")
    parser.add_argument("--out", type=Path, help="the record goes to OUT/<device_name>/cpu_torch.json")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> dict[str, object]:
    arguments = parse(words)
    rows = [int(m) for m in arguments.m.split(",")]
    sizes = TINY if arguments.tiny else Sizes()
    if os.environ.get("OMP_WAIT_POLICY", "").lower() != "passive":
        print(
            "OMP_WAIT_POLICY is not passive: torch's threads spin after its operations and slow Octile's",
            file=sys.stderr,
        )
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(*(Layer(sizes) for _ in range(arguments.layers))).bfloat16().eval()
    if arguments.tune:
        tune(theirs[0], rows, arguments.tune, arguments.tables)
    ours = copy.deepcopy(theirs)
    octile.torch.quantize_(ours, max_m=max(rows), tables=arguments.tables)
    record: dict[str, object] = {
        "device_name": octile.devices()[0]["device_name"],
        "commit": records.commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "octile_version": octile.__version__,
        "torch_version": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", ""),
        "layers": arguments.layers,
        "tuned": arguments.tune or "",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    found: list[dict[str, object]] = []
    with torch.inference_mode():
        for m in rows:
            x = torch.randn(m, sizes.hidden).bfloat16()
            least = 0.02 if not arguments.tiny else 0.0
            alone = compare(Linears(ours, sizes, m), Linears(theirs, sizes, m), x, arguments.seconds, least)
            whole = compare(ours, theirs, x, arguments.seconds, least)
            kernels = {name: ours[0].get_submodule(name).explain(m)["kernel"] for name in ("qkv", "o", "gate_up", "down")}
            found.append({"m": m, "model": whole, "linears": alone, "rel_error": error_of(ours, theirs, x), "kernels": kernels})
            print(line(m, whole, alone, kernels), flush=True)
    record["rows"] = found
    for part in ("linears", "model"):
        ratios = [row[part]["ratio"] for row in found]  # type: ignore[index]
        record[f"{part}_ratio_geomean"] = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
        print(f"{part}: torch bf16 / Octile, geometric mean over M = {arguments.m}: {record[f'{part}_ratio_geomean']:.2f}x")
    if arguments.out:
        path = arguments.out / str(record["device_name"]) / "cpu_torch.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(records.written(records.rounded(record)), encoding="utf-8")
        print(f"wrote {path}")
    return record


def tune(layer: torch.nn.Module, rows: list[int], budget: str, tables: str) -> None:
    """Each of the four shapes for a quarter of the time."""
    if not budget.endswith("s") or not budget[:-1].isdigit():
        raise SystemExit(f"--tune: want whole seconds, such as 60s, got {budget}")
    for linear in (layer.qkv, layer.o, layer.gate_up, layer.down):
        quarter = f"{max(1, int(budget[:-1]) // 4)}s"
        said = octile.tune(n=linear.out_features, k=linear.in_features, m=rows, time_budget=quarter, tables=tables or None)
        print(said.strip().splitlines()[-1], flush=True)


def line(m: int, whole: dict[str, float], alone: dict[str, float], kernels: dict[str, str]) -> str:
    parts = [
        f"{name} {found['torch_bf16_us']:.0f} / {found['octile_us']:.0f} us, "
        f"{found['ratio']:.2f}x [{found['ratio_lo']:.2f}, {found['ratio_hi']:.2f}]"
        for name, found in (("linears", alone), ("model", whole))
    ]
    return f"M = {m}: torch bf16 / Octile: {'; '.join(parts)}; {whole['rounds']:.0f} pairs; {kernels}"


if __name__ == "__main__":
    main()
