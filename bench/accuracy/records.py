# SPDX-License-Identifier: Apache-2.0
"""How measured results are written."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

SIGNIFICANT = 5


def rounded(value: Any) -> Any:
    """Floats of a record, short."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(entry) for entry in value]
    return float(f"{value:.{SIGNIFICANT}g}") if isinstance(value, float) else value


def written(record: dict[str, Any]) -> str:
    """JSON whose lists of numbers are a line each."""
    text = json.dumps(record, indent=1)
    return re.sub(r"\[([^\[\]{}]*)\]", lambda found: "[" + " ".join(found[1].split()) + "]", text) + "\n"


def commit() -> str:
    """Of the sources this file is in, with -dirty where they differ; empty where they are no repository or git is not here."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
