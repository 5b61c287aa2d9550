# SPDX-License-Identifier: Apache-2.0
"""How far a measured median may be off."""

from __future__ import annotations

import math
import statistics


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
