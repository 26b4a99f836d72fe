"""Writes documents so that a reader sees the old file or the whole new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit._files import write_atomically

__all__ = ["write_json", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text under a temporary name in the same folder and renames it.

    Raises:
        EnvironmentLack: The folder cannot be made or written (code "file.write").
    """
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, document: Any) -> None:
    """Writes one JSON document (no NaN or infinity: ValueError) with a trailing newline."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    write_text(path, text + "\n")
