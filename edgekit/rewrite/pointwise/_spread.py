"""Repeats an activation along C, H and W with what the DLA has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._writer import Writer

__all__ = ["broadcasts", "spread", "spreadable"]


def broadcasts(small: Sequence[int], large: Sequence[int]) -> bool:
    """Whether an element-wise layer of the DLA takes these two, the larger one with all of it."""
    n, c, _, _ = large
    return tuple(small) in {tuple(large), (n, c, 1, 1), (n, 1, 1, 1)}


def spreadable(small: Sequence[int], large: Sequence[int]) -> bool:
    """Whether ``spread`` can bring a tensor of one 4-D shape to another."""
    if len(small) != len(large) or small[0] != large[0]:
        return False
    if any(s not in {1, t} for s, t in zip(small, large, strict=True)):
        return False
    times = [t // s for s, t in zip(small[2:], large[2:], strict=True)]
    return all(_steps(factor) is not None for factor in times)


def spread(
    new: Writer, source: str, small: Sequence[int], large: Sequence[int], *, output: str = ""
) -> str:
    """Writes copies along C as a convolution with ones, along H and W as a nearest resize.

    Args:
        new: The replacement.
        source: Tensor of shape ``small``, FP32.
        small: N x c x h x w, each the size in ``large`` or 1; N the same.
        large: N x C x H x W.
        output: Tensor to write when there is anything to repeat; a new one when empty.
    """
    import numpy as np

    writes = []
    if small[1] != large[1]:
        writes.append("Conv")
    rows, columns = (_steps(t // s) or [] for s, t in zip(small[2:], large[2:], strict=True))
    count = max(len(rows), len(columns))
    rows, columns = rows + [1] * (count - len(rows)), columns + [1] * (count - len(columns))
    for index in range(len(writes) + count):
        last = output if index == len(writes) + count - 1 else ""
        if index < len(writes):
            ones = new.constant(np.ones((large[1], 1, 1, 1)), role="ones")
            source = new.node(
                "Conv", [source, ones], output=last, role="copies", kernel_shape=[1, 1]
            )
            continue
        at = index - len(writes)
        scales = new.constant([1.0, 1.0, float(rows[at]), float(columns[at])], role="scales")
        source = new.node(
            "Resize",
            [source, "", scales],
            output=last,
            role="repeated",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    return source


def _steps(factor: int) -> list[int] | None:
    """Factors of ``factor`` in the range of a nearest resize; None where there are none."""
    from edgekit.dla import limit

    most = limit("resize.nearest_scale")[1]
    if factor == 1:
        return []
    if factor <= most:
        return [factor]
    first = next((f for f in range(most, 1, -1) if factor % f == 0 and factor // f <= most), None)
    return None if first is None else [first, factor // first]
