"""Values of a measurement's documents as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["words_of"]


def words_of(value: Any) -> str:
    """Returns "on" for true, "1.5" for 1.5, "a, b" for a list; empty for what is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        pairs = ((key, words_of(one)) for key, one in value.items())
        return ", ".join(f"{key} {told}" for key, told in pairs if told)
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(words_of, value)))
    return str(value)
