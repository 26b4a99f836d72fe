"""Where the knowledge files lie (inside the wheel, or at the top of a checkout) and the cache."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

__all__ = ["cache_folder", "data_folder"]


@cache
def data_folder(kind: str) -> Path:
    """Returns the folder of ``kind`` ("targets", "dla" or "trt")."""
    package = Path(__file__).resolve().parent
    packed = package / "_data" / kind
    return packed if packed.is_dir() else package.parent / kind


def cache_folder() -> Path:
    """Returns $EDGEKIT_CACHE, $XDG_CACHE_HOME/edgekit or ~/.cache/edgekit."""
    if chosen := os.environ.get("EDGEKIT_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "edgekit"
