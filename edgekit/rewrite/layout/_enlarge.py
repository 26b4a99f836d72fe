"""Nearest resizing by whole factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._select import factors

if TYPE_CHECKING:
    from edgekit.rewrite._writer import Writer

__all__ = ["enlarge", "scale_limit"]


def scale_limit() -> int:
    """Returns the largest scale of a nearest resize."""
    from edgekit.dla import limit

    return limit("resize.nearest_scale")[1]


def enlarge(new: Writer, source: str, scales: Sequence[int], output: str) -> str:
    """Writes nearest resizes of H and W by whole factors and returns the last one's output."""
    steps = [factors(scale, scale_limit()) or [] for scale in scales]
    rounds = max(len(part) for part in steps)
    for index in range(rounds):
        now = [float((part[index : index + 1] or [1])[0]) for part in steps]
        fixed = new.constant([1.0, 1.0, *now], role="scales", dtype="float32")
        source = new.node(
            "Resize",
            [source, "", fixed],
            output=output if index == rounds - 1 else "",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    return source
