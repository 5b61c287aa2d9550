#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a CycloneDX 1.5 bill of materials of what Octile is built of or opens, from the table in docs/dependencies.md and the
versions that are installed here. The same machine gives the same bytes.
    scripts/sbom.py OUTPUT"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def read_table(path: Path = ROOT / "docs" / "dependencies.md") -> list[dict[str, str]]:
    """The rows of the table, by the names of its columns."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, body = cells[0], cells[2:]
    for row in body:
        if len(row) != len(head) or not all(row):
            raise SystemExit(f"{path}: wanted {len(head)} cells that are not empty, got {row}")
    return [dict(zip(head, row, strict=True)) for row in body]


def project_version() -> str:
    match = re.search(r"project\(octile VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    if match is None:
        raise SystemExit("CMakeLists.txt states no version")
    return match.group(1)


def installed_version(package: str) -> str | None:
    """Of a Debian package that is installed here."""
    if shutil.which("dpkg-query") is None:
        return None
    asked = subprocess.run(
        ["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", package], capture_output=True, text=True, check=False
    )
    status, _, version = asked.stdout.partition(" ")
    return version if status == "installed" else None


def licences(text: str) -> list[dict[str, object]]:
    if " WITH " in text or " AND " in text or " OR " in text:
        return [{"expression": text}]
    return [{"license": {"name": text} if text.startswith("LicenseRef-") else {"id": text}}]


def component(row: dict[str, str]) -> dict[str, object]:
    first = row["package"].split(",")[0].strip()
    installed = installed_version(first)
    result: dict[str, object] = {
        "type": "application" if row["how"].startswith("tools") else "library",
        "bom-ref": first,
        "name": row["name"],
        "version": installed or row["version"],
        "scope": "required" if row["how"].startswith("in") else "optional",
        "licenses": licences(row["licence"]),
        "properties": [{"name": "octile:how", "value": row["how"]}],
    }
    if installed is not None:
        result["purl"] = f"pkg:deb/debian/{first}@{installed}"
    return result


def bill() -> dict[str, object]:
    version = project_version()
    components = [component(row) for row in read_table() if not row["how"].startswith("tools")]
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    uuid = f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "octile",
                "name": "octile",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": "octile", "dependsOn": [str(one["bom-ref"]) for one in components]}],
    }


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
