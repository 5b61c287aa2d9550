# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of CPU kernels in docs/benchmarks.md from the records that compare.py left.

python bench/cpu/tables.py            writes them
python bench/cpu/tables.py --check    exits with 1 where they are not what the records say
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/benchmarks.md"
BEGIN = "<!-- written by bench/cpu/tables.py from {} -->"
END = "<!-- end -->"
MINE = ("amx", "avx512_dot", "avx512_fma", "avx2")
NAMES = {
    "amx": "amx",
    "avx512_dot": "avx512, VDPBF16PS",
    "avx512_fma": "avx512, FMA",
    "avx2": "avx2",
    "onednn_bare": "oneDNN {onednn} bf16",
    "onednn3:bf16": "{onednn3} bf16",
    "onednn3:bf16xf8": "{onednn3} bf16 x f8",
    "onednn3:int8": "{onednn3} int8",
}


def mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def of(rows: list[dict[str, Any]], lane: str, m: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["lane"] == lane and row["m"] == m]


def table(head: list[str], body: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, *body]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def kernels(record: dict[str, Any]) -> str:
    """Geometric means over the shapes: shares of the limits, and every side's time / that of the fastest family here."""
    rows = record["rows"]
    ms = sorted({row["m"] for row in rows})
    lanes = [lane for lane in MINE if of(rows, lane, ms[0])]
    best = lanes[0]
    limits = record["limits"]
    versions = {"onednn": record["machine"]["onednn"], "onednn3": record["onednn3"].replace("onednn", "oneDNN")}
    text = (
        f"{record['machine']['model']}, {record['machine']['threads']} threads, {record['machine']['instruction_set']}; "
        f"reading memory {limits['read_gbps']['median']:.1f} GB/s; multiply-adds in registers "
        + ", ".join(
            f"{name.removesuffix('_gflops')} {value['median']:.0f} GFLOP/s"
            for name, value in limits.items()
            if name != "read_gbps"
        )
        + ".\n\n"
    )
    body = []
    for lane in lanes:
        for share, name in (("read_share", "of reading memory"), ("peak_share", "of its instruction's peak")):
            found = {m: of(rows, lane, m) for m in ms}
            body.append(
                [
                    f"{NAMES[lane]}: share {name}",
                    *(f"{mean([row[share] for row in found[m]]):.2f}" if found[m] else "" for m in ms),
                ]
            )
    rivals = [lane for lane in dict.fromkeys(row["lane"] for row in rows) if lane in NAMES and lane not in MINE]
    for rival in [*rivals, *lanes[1:]]:
        cells = []
        for m in ms:
            ours = {row["shape"]: row["us"] for row in of(rows, best, m)}
            ratios = [row["us"] / ours[row["shape"]] for row in of(rows, rival, m)]
            cells.append(f"{mean(ratios):.2f}" if ratios else "")
        body.append([f"{NAMES[rival].format(**versions)}: time / ours", *cells])
    cells = [f"{mean([row['vs_bf16'] for row in of(rows, best, m)]):.2f}" for m in ms]
    body.append(["**best bf16 of oneDNN / ours**", *(f"**{cell}**" for cell in cells)])
    return text + table(["M", *map(str, ms)], body)


def spaces(record: dict[str, Any]) -> str:
    """What the heuristic loses against the best config of the space, chosen by other passes."""
    rows = record["rows"]
    ms = sorted({row["m"] for row in rows})
    body = []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        for lane in MINE:
            found = {row["m"]: row for row in rows if row["shape"] == shape and row["lane"] == lane}
            if found:
                cells = [f"{found[m]['heuristic_loses'] * 100:+.1f}" if m in found else "" for m in ms]
                body.append([shape, NAMES[lane], *cells])
    return table(["shape", "family", *(f"M = {m}" for m in ms)], body)


def curve(record: dict[str, Any]) -> str:
    """The steepest steps from one M to the next."""
    rows = record["rows"]
    body = []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        mine = [row for row in rows if row["shape"] == shape and "next_ratio" in row]
        for low, high in ((1, 16), (17, 254)):
            part = [row for row in mine if low <= row["m"] <= high]
            if part:
                worst = max(part, key=lambda row: row["next_ratio"])
                body.append(
                    [
                        shape,
                        f"{low} to {max(row['m'] for row in part) + 1}",
                        f"{worst['next_ratio']:.2f} [{worst['next_ratio_lo']:.2f}, {worst['next_ratio_hi']:.2f}]",
                        f"{worst['m']} to {worst['m'] + 1}",
                    ]
                )
    return table(["shape", "M", "largest t(M+1) / t(M)", "at"], body)


TABLES = {"cpu_kernels.json": kernels, "cpu_spaces.json": spaces, "cpu_curve.json": curve}


def written(document: str) -> str:
    """The document with every marked table made anew."""
    parts = document.split(BEGIN.split("{}")[0])
    result = [parts[0]]
    for part in parts[1:]:
        name, rest = part.split(" -->", 1)
        old, after = rest.split(END, 1)
        record = json.loads((ROOT / name).read_text(encoding="utf-8"))
        result.append(f"{BEGIN.format(name)}\n{TABLES[Path(name).name](record)}\n{END}{after}")
    return "".join(result)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args(words)
    before = DOCUMENT.read_text(encoding="utf-8")
    after = written(before)
    if BEGIN.split("{}")[0] not in before:
        print(f"{DOCUMENT}: want a table marked '{BEGIN.format('RECORD')}', got none", file=sys.stderr)
        return 1
    if arguments.check:
        if before != after:
            print(f"{DOCUMENT}: tables are not what the records say; python bench/cpu/tables.py writes them", file=sys.stderr)
        return int(before != after)
    DOCUMENT.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
