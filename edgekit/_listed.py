"""Lists within sentences."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["listed"]


def listed(texts: Iterable[str], most: int = 12) -> str:
    """Returns the first texts and the number of the others: "a, b and 3 more"."""
    every = list(texts)
    left = len(every) - most
    return ", ".join(every[:most]) + (f" and {left} more" if left > 0 else "")
