"""Lists within sentences."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["counted", "listed"]


def listed(texts: Iterable[str], most: int = 12) -> str:
    """Returns the first texts and the number of the others: "a, b and 3 more"."""
    every = list(texts)
    left = len(every) - most
    return ", ".join(every[:most]) + (f" and {left} more" if left > 0 else "")


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 board", "2 boards"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
