# SPDX-License-Identifier: Apache-2.0
"""Octile's CPU kernels against this machine's limits and against oneDNN, all interleaved.

    cmake --build --preset release --target cpu_kernel_worker
    python bench/cpu/compare.py --worker build/release/bench/cpu_kernel_worker --out bench/results

Each pass measures the limits (reading memory, multiply-adds in registers) and then every lane once, forward and backward in
turn; a share of a limit and a ratio of two lanes are medians over the passes of what one pass gave, with 95 % intervals.
Octile's lanes are the families' heuristics, the whole linear from bf16 with its quantisation; oneDNN's are the bare matmul,
weights decoded and packed beforehand.

    --spaces         also every config that a tuner would try of each family: what the heuristic leaves
    --onednn3 CMD    a oneDNN of version 3 in a process of its own, built from onednn3_worker.cpp against the wheel
                     `onednn-devel`, whose runtime wants OCL_ICD_FILENAMES and LD_LIBRARY_PATH:
                       g++ -O2 -std=c++20 -I$V/include bench/cpu/onednn3_worker.cpp -o onednn3_worker -L$V/lib -ldnnl
                       OCL_ICD_FILENAMES=$V/lib/libintelocl.so LD_LIBRARY_PATH=$V/lib ONEDNN_VERBOSE=none ./onednn3_worker

    --curve A:B      the fastest family at every M from A to B, and t(M+1) / t(M)

writes bench/results/<device_name>/cpu_kernels.json, cpu_spaces.json or cpu_curve.json. docs/benchmarks.md shows them:
bench/cpu/tables.py writes its tables.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "accuracy")]
import records
from intervals import median_interval

SHAPES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "down": (4096, 12288),
    "gate_up": (24576, 4096),
    "minilm_up": (1536, 384),
    "minilm_down": (384, 1536),
    "smollm2_up": (1536, 576),
    "smollm2_down": (576, 1536),
}
# The instruction whose peak bounds a lane.
PEAKS = {"avx2": "avx2_fma", "avx512_fma": "avx512_fma", "avx512_dot": "avx512_dot", "amx": "amx"}
THEIRS = ("onednn3:bf16", "onednn3:bf16xf8", "onednn3:int8")
BF16_RIVALS = ("onednn_bare", "onednn3:bf16", "onednn3:bf16xf8")


class Worker:
    """A process that answers each line with one line."""

    def __init__(self, command: str) -> None:
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise SystemExit(f"a worker ended when asked '{line}': exit status {self.process.wait()}")
        return answer

    def number(self, line: str) -> float:
        answer = self.ask(line)
        if answer.startswith("error"):
            raise SystemExit(f"'{line}': {answer}")
        return float(answer.split()[1])


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.ours = Worker(arguments.worker)
        self.theirs = Worker(arguments.onednn3) if arguments.onednn3 else None
        self.onednn3 = self.theirs.process.stdout.readline().strip() if self.theirs else ""  # type: ignore[union-attr]
        self.machine = json.loads(self.ours.ask("machine"))
        self.rows: list[dict[str, Any]] = []
        self.limits: dict[str, list[float]] = {}

    def worker_of(self, lane: str) -> tuple[Worker, str]:
        if lane.startswith("onednn3:"):
            assert self.theirs is not None
            return self.theirs, lane.removeprefix("onednn3:")
        return self.ours, lane

    def prepared(self, lanes: Iterable[str], m: int, n: int, k: int) -> dict[str, str]:
        """The lanes that can run here, with what each says it runs."""
        found = {}
        for lane in lanes:
            worker, name = self.worker_of(lane)
            answer = worker.ask(f"prepare {name} {m} {n} {k} {self.arguments.cold_mb * 10**6}")
            if answer.startswith("ok"):
                found[lane] = answer.removeprefix("ok").strip()
        return found

    def calls_for(self, lane: str) -> int:
        """As many calls as last `least` seconds."""
        worker, name = self.worker_of(lane)
        us = worker.number(f"time {name} 2")
        return max(1, math.ceil(self.arguments.least * 1e6 / us))

    def measure_limits(self) -> dict[str, float]:
        threads = self.machine["threads"]
        found = {"read_gbps": self.ours.number(f"read {threads}")}
        for peak in self.machine["peaks"]:
            found[f"{peak}_gflops"] = self.ours.number(f"peak {peak} {threads}")
        for name, value in found.items():
            self.limits.setdefault(name, []).append(value)
        return found

    def passes(self, lanes: list[str]) -> list[tuple[dict[str, float], dict[str, float]]]:
        """For each pass: the limits and the microseconds of each lane."""
        calls = {lane: self.calls_for(lane) for lane in lanes}
        found = []
        for index in range(self.arguments.passes):
            limits = self.measure_limits()
            times = {}
            for lane in lanes if index % 2 == 0 else reversed(lanes):
                worker, name = self.worker_of(lane)
                times[lane] = worker.number(f"time {name} {calls[lane]}")
            found.append((limits, times))
        return found

    def compare(self, name: str, n: int, k: int, m: int) -> None:
        wanted = [*PEAKS, "onednn", "onednn_bare", *(THEIRS if self.theirs else ())]
        running = self.prepared([lane for lane in wanted if not self.too_slow(lane, m)], m, n, k)
        passes = self.passes(list(running))
        rivals = [lane for lane in BF16_RIVALS if lane in running]
        for lane, detail in running.items():
            row: dict[str, Any] = {"shape": name, "n": n, "k": k, "m": m, "lane": lane, "runs": detail}
            row["us"] = statistics.median(times[lane] for _, times in passes)
            if lane in PEAKS:
                row |= spread("read_share", [n * k / times[lane] / 1e3 / limits["read_gbps"] for limits, times in passes])
                peak = PEAKS[lane] + "_gflops"
                row |= spread("peak_share", [2.0 * m * n * k / times[lane] / 1e3 / limits[peak] for limits, times in passes])
                row |= spread("vs_bf16", [min(times[rival] for rival in rivals) / times[lane] for _, times in passes])
            self.rows.append(row)
            print(line(row), flush=True)

    def too_slow(self, lane: str, m: int) -> bool:
        """Octile's baseline is for orientation, and left out where a call takes long."""
        return lane == "onednn" and m > 256

    def spaces(self, name: str, n: int, k: int, m: int) -> None:
        for family in PEAKS:
            answer = self.ours.ask(f"space {family} {m} {n} {k}")
            if answer.startswith("error"):
                continue
            configs = answer.split()[1:]
            running = self.prepared([family, *configs], m, n, k)
            # The best is chosen by one half of the passes and held against the heuristic by the other.
            first, second = self.passes(list(running)), self.passes(list(running))
            best = min(configs, key=lambda config: statistics.median(times[config] for _, times in first))
            row: dict[str, Any] = {"shape": name, "n": n, "k": k, "m": m, "lane": family, "configs": len(configs)}
            row["us"] = statistics.median(times[family] for _, times in second)
            row |= {"runs": running[family], "best": best.split(":")[1]}
            row |= spread("heuristic_loses", [times[family] / times[best] - 1.0 for _, times in second])
            self.rows.append(row)
            print(line(row), flush=True)

    def curve(self, name: str, n: int, k: int, first: int, last: int) -> None:
        lane = next(family for family in reversed(PEAKS) if self.prepared([family], first, n, k))
        times: dict[int, list[float]] = {m: [] for m in range(first, last + 1)}
        for index in range(self.arguments.passes):
            self.measure_limits()
            for m in times if index % 2 == 0 else reversed(times):
                self.prepared([lane], m, n, k)
                times[m].append(self.ours.number(f"time {lane} {self.calls_for(lane)}"))
        for m, values in times.items():
            row: dict[str, Any] = {"shape": name, "n": n, "k": k, "m": m, "lane": lane, "us": statistics.median(values)}
            if m < last:
                row |= spread("next_ratio", [after / now for now, after in zip(values, times[m + 1], strict=True)])
            self.rows.append(row)
        steps = [row for row in self.rows if row["shape"] == name and "next_ratio" in row]
        steepest = max(steps, key=lambda row: row["next_ratio"])
        print(f"{name}: M = {first} to {last}: {line(steepest)}", flush=True)

    def command(self) -> str:
        """As it was given, without the places of programs and results."""
        words = [Path(sys.argv[0]).name, *sys.argv[1:]]
        for option in ("--worker", "--onednn3", "--out"):
            if option in words:
                words[words.index(option) + 1] = option.removeprefix("--").upper()
        return shlex.join(words)

    def record(self) -> dict[str, object]:
        return {
            "device_name": self.machine["device_name"],
            "commit": records.commit(),
            "command": self.command(),
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": self.machine,
            "onednn3": self.onednn3,
            "protocol": "passes over the limits and all lanes, forward and backward in turn; cold copies of the weight in "
            f"rotation ({self.arguments.cold_mb} MB), {self.arguments.least} s a timing, {self.arguments.passes} passes; "
            "medians of what each pass gave, 95 % intervals by order statistics",
            "limits": {
                name: dict(zip(("median", "lo", "hi"), median_interval(values), strict=True))
                for name, values in self.limits.items()
            },
            "rows": self.rows,
        }


def spread(name: str, values: list[float]) -> dict[str, float]:
    median, low, high = median_interval(values)
    return {name: median, f"{name}_lo": low, f"{name}_hi": high}


def line(row: dict[str, Any]) -> str:
    parts = [f"{row['shape']:12} M={row['m']:<5} {row['lane']:16} {row['us']:10.1f} us"]
    for name, text in (
        ("read_share", "of read"),
        ("peak_share", "of peak"),
        ("vs_bf16", "x bf16"),
        ("heuristic_loses", "lost"),
        ("next_ratio", "t(M+1) / t(M)"),
    ):
        if name in row:
            parts.append(f"{row[name]:.3f} [{row[name + '_lo']:.3f}, {row[name + '_hi']:.3f}] {text}")
    return "  ".join(parts)


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worker", required=True, help="cpu_kernel_worker")
    parser.add_argument("--onednn3", default="", help="command of onednn3_worker")
    parser.add_argument("--shapes", default="qkv,o,down,gate_up", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--m", default="1,4,16,64,256,1024")
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--least", type=float, default=0.05, help="seconds of one timing")
    parser.add_argument("--cold-mb", type=int, default=512, help="of the copies of a weight")
    parser.add_argument("--spaces", action="store_true")
    parser.add_argument("--curve", default="", metavar="A:B")
    parser.add_argument("--out", type=Path, help="folder of results")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> dict[str, object]:
    arguments = parse(words)
    bench = Bench(arguments)
    for name in arguments.shapes.split(","):
        n, k = SHAPES[name]
        if arguments.curve:
            bench.curve(name, n, k, *(int(text) for text in arguments.curve.split(":")))
            continue
        for m in (int(text) for text in arguments.m.split(",")):
            (bench.spaces if arguments.spaces else bench.compare)(name, n, k, m)
    record = bench.record()
    if arguments.out:
        what = "curve" if arguments.curve else "spaces" if arguments.spaces else "kernels"
        path = arguments.out / str(record["device_name"]) / f"cpu_{what}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(records.written(records.rounded(record)), encoding="utf-8")
        print(f"wrote {path}")
    return record


if __name__ == "__main__":
    main()
