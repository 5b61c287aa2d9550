# SPDX-License-Identifier: Apache-2.0
"""Where the time of a step goes: kernels of a GPU's timeline by what they do.

A kernel that starts before the one before it has ended (programmatic dependent launch) would be counted twice by its duration
alone. So each has besides its duration (`sum_us`) the time by which it brought the end of all work further (`busy_us`), and the
idle time before it (`gap_us`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Kernel(NamedTuple):
    name: str
    start_ns: int
    duration_ns: int


# What separates replays: torch.cuda._sleep()'s.
MARKER = "spin_kernel"
# Records of a GPU that are no work on it.
_NO_WORK = re.compile(r"(Context|Stream|Event) (Sync|Wait)", re.IGNORECASE)

# The first that fits.
CLASSES = [
    ("producer", r"octile_(rms_norm|swiglu)"),
    ("quantise", r"octile_(quantise|copy_codes)|torch_quantise_rows"),
    ("linear", r"octile_"),
    ("attention", r"fmha|flash|attention|softmax"),
    ("linear", r"nvjet|gemm|gemv|cublas|cutlass|splitk|xmma|matmul|cijk"),
    ("other", r""),
]
_PATTERNS = [(name, re.compile(pattern, re.IGNORECASE)) for name, pattern in CLASSES]
# What Octile replaces.
LINEARS = ("linear", "quantise", "producer")


def class_of(name: str) -> str:
    return next(kind for kind, pattern in _PATTERNS if pattern.search(name))


def split_at_markers(kernels: Iterable[Kernel]) -> list[list[Kernel]]:
    """The kernels behind each marker, in the order of their starts."""
    replays: list[list[Kernel]] = []
    for kernel in sorted(kernels, key=lambda kernel: kernel.start_ns):
        if MARKER in kernel.name:
            replays.append([])
        elif replays and not _NO_WORK.match(kernel.name):
            replays[-1].append(kernel)
    return replays


def attribute(replay: list[Kernel]) -> dict[str, dict[str, float]]:
    """By class: sum_us, busy_us, gap_us and kernels of one replay, whose kernels are in the order of their starts."""
    found: dict[str, dict[str, float]] = {}
    frontier = replay[0].start_ns if replay else 0
    for kernel in replay:
        entry = found.setdefault(class_of(kernel.name), {"sum_us": 0.0, "busy_us": 0.0, "gap_us": 0.0, "kernels": 0})
        end = kernel.start_ns + kernel.duration_ns
        entry["sum_us"] += kernel.duration_ns / 1e3
        entry["gap_us"] += max(0, kernel.start_ns - frontier) / 1e3
        entry["busy_us"] += max(0, end - max(kernel.start_ns, frontier)) / 1e3
        entry["kernels"] += 1
        frontier = max(frontier, end)
    return found


def linears_us(classes: dict[str, dict[str, float]], measure: str) -> float:
    """Of what Octile replaces: "sum" of durations, "busy" time, or "span", which has the idle time before each kernel."""
    keys = {"sum": ("sum_us",), "busy": ("busy_us",), "span": ("busy_us", "gap_us")}[measure]
    return sum(classes[name][key] for name in LINEARS if name in classes for key in keys)


def by_name(replay: list[Kernel]) -> list[tuple[str, str, int, float]]:
    """(class, name, count, microseconds), the longest first."""
    totals: dict[str, list[float]] = {}
    for kernel in replay:
        entry = totals.setdefault(kernel.name, [0, 0.0])
        entry[0] += 1
        entry[1] += kernel.duration_ns / 1e3
    return [
        (class_of(name), name, int(count), total)
        for name, (count, total) in sorted(totals.items(), key=lambda item: -item[1][1])
    ]
