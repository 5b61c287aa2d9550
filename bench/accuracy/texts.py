# SPDX-License-Identifier: Apache-2.0
"""English text that is wherever Python is: its reference manual, as pydoc prints it."""

from __future__ import annotations

import hashlib
import platform
import re
from pathlib import Path

import numpy as np


def read(file: Path | None) -> str:
    """The manual of the Python that runs, or one that another Python's was written to: manuals differ."""
    if file is not None:
        return file.read_text(encoding="utf-8")
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name].strip() for name in sorted(topics))


def blocks(tokens: list[int], count: int, length: int) -> np.ndarray:
    """`count` blocks of `length` tokens each, spread evenly over the text."""
    starts = np.linspace(0, len(tokens) - length, count).astype(int)
    if count < 1 or len(tokens) < count * length:
        raise ValueError(f"text: want {count} blocks of {length} tokens, got {len(tokens)} tokens")
    return np.stack([np.asarray(tokens[start : start + length], np.int64) for start in starts])


def sentences(text: str, count: int) -> list[str]:
    """`count` different sentences of 40 to 200 characters, spread evenly over the text."""
    flat = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"(?<=[.?!])\s+|\n\n", text)]
    fit = list(dict.fromkeys(part for part in flat if re.fullmatch(r"[A-Z][^|=<>*]{39,199}[.?!]", part)))
    if len(fit) < count:
        raise ValueError(f"text: want {count} sentences, got {len(fit)}")
    return [fit[index] for index in np.linspace(0, len(fit) - 1, count).astype(int)]


def provenance(used: str, file: Path | None) -> dict[str, str]:
    return {
        "source": f"pydoc_data.topics of Python {platform.python_version()}" if file is None else file.name,
        "sha256_used": hashlib.sha256(used.encode()).hexdigest(),
    }
