"""How far two sides of a proof are apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Worst"]


class Worst:
    """``max|a-b| / max|b|`` of the worst output, of all runs together.

    One run's only value may be nearly 0.
    """

    def __init__(self, outputs: Iterable[str]) -> None:
        self._parts = dict.fromkeys(outputs, (0.0, 0.0))

    def take(self, new: Mapping[str, np.ndarray], old: Mapping[str, np.ndarray]) -> None:
        """Adds a run."""
        for name, (most, scale) in self._parts.items():
            distance, largest = _distance(new[name], old[name])
            self._parts[name] = max(most, distance), max(scale, largest)

    def error(self) -> float:
        """Returns it."""
        return max((d / (largest or 1.0) for d, largest in self._parts.values()), default=0.0)


def _distance(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns ``max|a-b|`` and ``max|b|``; an infinite distance where they cannot be compared."""
    import numpy as np

    never = float("inf"), 1.0
    if a.shape != b.shape:
        return never
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return (0.0, 1.0) if np.array_equal(a, b) else never
    a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    largest = float(np.abs(b).max(initial=0.0))
    if not math.isfinite(largest):
        sane = np.isfinite(b)
        if not np.array_equal(a[~sane], b[~sane], equal_nan=True):
            return never
        a, b = a[sane], b[sane]
        largest = float(np.abs(b).max(initial=0.0))
    worst = float(np.abs(a - b).max(initial=0.0))
    return (worst, largest) if math.isfinite(worst) else never
