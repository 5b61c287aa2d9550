# SPDX-License-Identifier: Apache-2.0
"""The command `octile` that comes with the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PATH = Path(__file__).parent / "bin" / "octile"


class CommandFailed(RuntimeError):
    """The command said no: its exit status, and what it wrote to stderr."""

    def __init__(self, arguments: list[str], status: int, errors: str) -> None:
        super().__init__(f"octile {' '.join(arguments)}: exit status {status}: {errors.strip()}")
        self.status = status


def path() -> str:
    """The command's file."""
    return str(_PATH)


def main() -> None:
    """The console script: becomes the command, so that signals and exit statuses are its own."""
    os.execv(_PATH, ["octile", *sys.argv[1:]])


def run(*arguments: str) -> str:
    """What the command prints for `arguments`. Raises ValueError where they are wrong, CommandFailed where it fails."""
    done = subprocess.run([_PATH, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 2:
        raise ValueError(f"octile {' '.join(arguments)}: {done.stderr.strip()}")
    if done.returncode != 0:
        raise CommandFailed(list(arguments), done.returncode, done.stderr)
    return done.stdout


def tune(
    model: str | os.PathLike[str] | None = None,
    *,
    n: int | None = None,
    k: int | None = None,
    tp: int | None = None,
    device: str = "cpu",
    m: Iterable[int] | None = None,
    time_budget: str | None = None,
    tables: str | os.PathLike[str] | None = None,
    accumulate: str | None = None,
    out_dtype: str | None = None,
    thorough: bool = False,
    resume: bool = False,
) -> str:
    """Measures which kernel is fastest for each M and writes tables, in a process of its own; returns the summary.

    The arguments are those of `octile tune`: a model's preset or config.json, or n and k of one weight. Linears that are
    made later read the tables; those that exist keep theirs. Raises ValueError where an argument is wrong, and
    RuntimeError with the reason where the tuner fails.
    """
    arguments = ["tune", "--device", device]
    for option, value in (
        ("--model", model),
        ("--n", n),
        ("--k", k),
        ("--tp", tp),
        ("--m", None if m is None else ",".join(str(rows) for rows in m)),
        ("--time-budget", time_budget),
        ("--tables", tables),
        ("--accumulate", accumulate),
        ("--out-dtype", out_dtype),
    ):
        if value is not None:
            arguments += [option, str(value)]
    arguments += ["--thorough"] * thorough + ["--resume"] * resume
    return run(*arguments)


def explain(
    n: int,
    k: int,
    m: int,
    *,
    device: str = "cpu",
    device_name: str | None = None,
    tables: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """What serves m rows of a weight [n, k], and why, as `octile explain --json` prints it.

    `device_name` asks for a device that need not be here, by its name in table files. A linear's own answer, which knows
    of its bias and options and of what could be prepared, is Linear.explain(m).
    """
    where = ["--device", device] if device_name is None else ["--device-name", device_name]
    tables_option = [] if tables is None else ["--tables", str(tables)]
    return json.loads(run("explain", "--n", str(n), "--k", str(k), "--m", str(m), *where, *tables_option, "--json"))
