"""Lists, counts and shares within sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["ABSENT", "all_of", "counted", "listed", "percent"]

ABSENT = "–"


def listed(texts: Iterable[str], most: int = 12) -> str:
    """Returns the first texts and the number of the others: "a, b and 3 more"."""
    every = list(texts)
    left = len(every) - most
    return ", ".join(every[:most]) + (f" and {left} more" if left > 0 else "")


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 board", "2,000 boards"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def all_of(number: int, noun: str) -> str:
    """Returns "the only layer", "both layers", "all 3 layers"."""
    few = {1: f"the only {noun}", 2: f"both {noun}s"}
    return few.get(number, f"all {counted(number, noun)}")


def percent(fraction: float | None, digits: int = 1) -> str:
    """Formats a fraction as a percentage; nearly none and nearly all are not called 0 and 100."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    step = 10.0**-digits
    if 0 < 100 * fraction < step / 2:
        return f"<{step:.{digits}f} %"
    if 100 - step / 2 <= 100 * fraction < 100:
        return f">{100 - step:.{digits}f} %"
    return f"{100 * fraction:.{digits}f} %"
