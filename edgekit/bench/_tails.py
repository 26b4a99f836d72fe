"""Which percentiles so many frames are too few for."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from edgekit.bench._limits import limit
from edgekit.bench._stats import PERCENTILES

__all__ = ["Tails", "percentile_cell", "tails"]


class Tails(NamedTuple):
    """Names of percentiles ("p90", "p999") that a number of frames does not bear.

    Attributes:
        empty: No frame is beyond: the percentile is the maximum under another name.
        few: Fewer than ``least`` are: an accident of the run.
        least: ``tail_frames`` of ``targets/_bench.yaml``.
    """

    empty: tuple[str, ...]
    few: tuple[str, ...]
    least: int


def tails(frames: int) -> Tails:
    """Returns what so many frames are too few for; the median is never among it."""
    least = int(limit("tail_frames"))
    beyond = {
        f"p{percent:g}".replace(".", ""): (100 - Fraction(str(percent))) * frames / 100
        for percent in PERCENTILES
        if percent > 50
    }
    return Tails(
        tuple(name for name, count in beyond.items() if count < 1),
        tuple(name for name, count in beyond.items() if 1 <= count < least),
        least,
    )


def percentile_cell(value: float | None, name: str, frames: int, digits: int = 3) -> str:
    """Returns a percentile as tables print it.

    Args:
        value: The percentile; None where there is none.
        name: Which, as in :class:`Tails`.
        frames: How many it is of.
        digits: Decimal places.

    Returns:
        "-" where no frame is beyond it, a "*" at the end where fewer than ``tail_frames`` are.
    """
    found = tails(frames)
    if value is None or name in found.empty:
        return "-"
    return f"{value:.{digits}f}" + "*" * (name in found.few)
