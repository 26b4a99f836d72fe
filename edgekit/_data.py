"""Where the knowledge files lie: inside the wheel, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

__all__ = ["data_folder"]


def data_folder(kind: str) -> Path:
    """Returns the folder of ``kind`` ("targets" or "dla")."""
    package = Path(__file__).parent
    packed = package / "_data" / kind
    return packed if packed.is_dir() else package.parent / kind
