# SPDX-License-Identifier: Apache-2.0
"""The devices of this machine."""

from __future__ import annotations

import json
from typing import Any

from octile import _core


def devices() -> list[dict[str, Any]]:
    """Every device, as `octile devices --json` prints it: id, device_name, kind, arch, families, vendors, overhead_bytes."""
    return json.loads(_core.devices_json())
