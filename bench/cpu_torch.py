# SPDX-License-Identifier: Apache-2.0
"""A model's linears in bf16 by torch against the same model after octile.torch.quantize_, on this CPU.

The model is a stack of Qwen3-8B's decoder layers without attention: norm, qkv, o, norm, gate_up, silu * up, down. Both run in
one process in turn, forward and backward, so that each pass of one is paired with one of the other; the ratio is torch's time /
Octile's, with a 95 % interval of its median (binomial order statistics). The layers are larger than the last-level cache.

    python bench/cpu_torch.py --tune 60s --json report.json
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import statistics
import time
from pathlib import Path

import torch

import octile
import octile.torch

HIDDEN, QKV, INTERMEDIATE = 4096, 6144, 12288


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = torch.nn.RMSNorm(HIDDEN)
        self.qkv = torch.nn.Linear(HIDDEN, QKV, bias=False)
        self.o = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.norm2 = torch.nn.RMSNorm(HIDDEN)
        self.gate_up = torch.nn.Linear(HIDDEN, 2 * INTERMEDIATE, bias=False)
        self.down = torch.nn.Linear(INTERMEDIATE, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Attention's part of the work is the same on both sides and is left out; its output has the queries' width.
        x = x + self.o(self.qkv(self.norm1(x))[:, :HIDDEN])
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(torch.nn.functional.silu(gate) * up)


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Median and the widest 95 % interval that order statistics give for it."""
    ordered = sorted(values)
    count = len(ordered)
    cut, tail = 0, 0.5**count
    while tail <= 0.025 and cut < count // 2:
        cut += 1
        tail += math.comb(count, cut) * 0.5**count
    low = max(cut - 1, 0)
    return statistics.median(ordered), ordered[low], ordered[count - 1 - low]


def pass_seconds(model: torch.nn.Module, x: torch.Tensor, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        model(x)
    return (time.perf_counter() - start) / repeats


def compare(ours: torch.nn.Module, theirs: torch.nn.Module, m: int, seconds: float) -> dict[str, object]:
    x = torch.randn(m, HIDDEN).bfloat16()
    ours(x), theirs(x)
    repeats = max(1, int(0.02 / min(pass_seconds(ours, x, 1), pass_seconds(theirs, x, 1))))
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
        "m": m,
        "torch_bf16_us": statistics.median(bf16 for bf16, _ in pairs) * 1e6,
        "octile_us": statistics.median(fp8 for _, fp8 in pairs) * 1e6,
        "ratio": ratio,
        "ratio_lo": low,
        "ratio_hi": high,
        "rounds": len(pairs),
        "kernels": {name: ours[0].get_submodule(name).explain(m)["kernel"] for name in ("qkv", "o", "gate_up", "down")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", default="1,4,16,64", help="numbers of tokens")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10, help="for each number of tokens")
    parser.add_argument("--tune", metavar="TIME", help="tune Qwen3-8B's linears first, for so long")
    parser.add_argument("--tables", default="", help="directory of tables to write to and read from")
    parser.add_argument("--json", type=Path, help="write the report here, too")
    arguments = parser.parse_args()
    rows = [int(m) for m in arguments.m.split(",")]
    if arguments.tune:
        print(octile.tune("qwen3-8b", m=rows, time_budget=arguments.tune, tables=arguments.tables or None))
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(*(Layer() for _ in range(arguments.layers))).bfloat16().eval()
    ours = copy.deepcopy(theirs)
    octile.torch.quantize_(ours, max_m=max(rows), tables=arguments.tables)
    report: dict[str, object] = {
        "device_name": octile.devices()[0]["device_name"],
        "octile_version": octile.__version__,
        "torch_version": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", ""),
        "layers": arguments.layers,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rows": [],
    }
    with torch.inference_mode():
        for m in rows:
            row = compare(ours, theirs, m, arguments.seconds)
            report["rows"].append(row)
            print(
                f"M = {m}: torch bf16 {row['torch_bf16_us']:.0f} us, Octile {row['octile_us']:.0f} us, "
                f"{row['ratio']:.2f}x [{row['ratio_lo']:.2f}, {row['ratio_hi']:.2f}], {row['rounds']} pairs, {row['kernels']}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
