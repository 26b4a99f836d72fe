"""A release's health.json: what was measured on this board when it was deployed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional

from ._errors import map_os_errors
from ._files import write_durably
from ._release import to_bytes

__all__ = ["HEALTH", "SCHEMA", "read_health", "write_health"]

HEALTH = "health.json"
SCHEMA = "edgekit.health/1"


def read_health(folder: Path) -> Optional[Dict[str, Any]]:
    """The release's record; None where it was never examined here, or the record is damaged."""
    try:
        found = json.loads((folder / HEALTH).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else None


def write_health(folder: Path, document: Dict[str, Any]) -> None:
    """Keeps the record; readers see the old one or the new one.

    Raises:
        DeviceError: "board.disk-full" and the like.
    """
    with map_os_errors(str(folder)):
        write_durably(folder / HEALTH, to_bytes(document))
