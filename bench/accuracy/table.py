# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/accuracy.md, from records that measure.py wrote. No torch.

python bench/accuracy/table.py bench/results/*/accuracy_*.json
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

TITLES = {
    "perplexity": "perplexity",
    "perplexity_ratio": "its ratio to fp32",
    "kl_nats": "KL from fp32, nats a token",
    "kl_nats_above_ideal": "KL above ideal FP8's",
    "kl_nats_to_ideal": "KL from ideal FP8",
    "top1_agreement": "same top token as fp32",
    "cosine": "cosine to fp32's embedding",
    "cosine_least": "least cosine",
    "spearman": "rank correlation of similarities",
}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return f"{value['value']:.5g} [{value['lo']:.5g}, {value['hi']:.5g}]"
    return f"{value:.5g}"


def _rows(head: list[str], body: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def variants_table(record: dict[str, Any]) -> list[str]:
    """One row a variant."""
    columns = [key for key in TITLES if any(key in entry for entry in record["variants"].values())]
    body = [[name, *(_cell(entry.get(key)) for key in columns)] for name, entry in record["variants"].items()]
    return _rows(["variant", *(TITLES[key] for key in columns)], body)


def layers_table(record: dict[str, Any], variant: str) -> list[str]:
    """One row a kind of linear: relative errors in per cent."""

    def percent(value: float) -> str:
        return f"{100 * value:.2f} %"

    body = []
    for kind, errors in record["layers"][variant].items():
        local, accumulated = errors["local"], errors["accumulated"]
        body.append(
            [
                kind,
                *(percent(value) for value in (min(local), statistics.median(local), max(local))),
                *(percent(accumulated[index]) for index in (0, len(accumulated) // 2, -1)),
            ]
        )
    head = ["linear", "alone: least", "median", "largest", "in the model: first layer", "middle", "last"]
    return _rows(head, body)


def main() -> None:
    for path in sys.argv[1:]:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        print(f"{record['model']}, {record['device_name']}\n")
        print("\n".join(variants_table(record)), "\n")
        for variant in record["layers"]:
            print(f"{variant}\n")
            print("\n".join(layers_table(record, variant)), "\n")


if __name__ == "__main__":
    main()
