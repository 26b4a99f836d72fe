"""Rows, columns and channels of zeros around a tensor, by layers that the DLA has.

A depthwise convolution whose kernel has a single 1 moves its input. With ``a + b + 1`` taps, the 1
at tap b, and padding of a + b at either end, its result is the input with a rows of zeros before
and b behind: the padding stays below the kernel, as the DLA wants it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.dla import limit
from edgekit.network._window import Window
from edgekit.rewrite.convolution._common import write_conv

if TYPE_CHECKING:
    from edgekit.rewrite._writer import Writer

__all__ = ["write_channels", "write_zeros"]


def write_zeros(
    new: Writer,
    data: str,
    channels: int,
    height: tuple[int, int],
    width: tuple[int, int],
    *,
    name: str,
    output: str = "",
) -> str:
    """Puts zeros around an image: (before, after) of the height and of the width."""
    steps = [(axis, *step) for axis, pair in enumerate((height, width)) for step in _steps(*pair)]
    for index, (axis, before, after) in enumerate(steps):
        end = output if index == len(steps) - 1 else ""
        data = _grown(new, data, channels, (axis, before, after), end, f"{name}:zeros")
    return data


def _steps(before: int, after: int) -> list[tuple[int, int]]:
    """Splits an amount of zeros into steps of what one convolution can do."""
    most = min(limit("convolution.padding")[1], limit("convolution.kernel")[1] - 1)
    steps = []
    while before or after:
        front = min(before, most)
        back = min(after, most - front)
        steps.append((front, back))
        before, after = before - front, after - back
    return steps


def _grown(
    new: Writer, data: str, channels: int, step: tuple[int, int, int], output: str, name: str
) -> str:
    import numpy as np

    axis, before, after = step
    both = before + after
    kernel, pads = [1, 1], [0, 0, 0, 0]
    kernel[axis], pads[axis], pads[axis + 2] = both + 1, both, both
    weight = np.zeros((channels, 1, both + 1))
    weight[:, 0, after] = 1.0
    moved = new.constant(weight.reshape(channels, 1, *kernel), role="zeros")
    window = Window((kernel[0], kernel[1]), (1, 1), tuple(pads), (1, 1))
    return write_conv(new, [data, moved], window, groups=channels, output=output, name=name)


def write_channels(
    new: Writer, data: str, channels: int, before: int, after: int, *, name: str, output: str = ""
) -> str:
    """Puts channels of zeros before and behind those of an image: a 1x1 convolution."""
    import numpy as np

    new.room(before + channels + after, channels)
    weight = np.zeros((before + channels + after, channels, 1, 1))
    weight[before : before + channels, :, 0, 0] = np.eye(channels)
    window = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    moved = new.constant(weight, role="zeros")
    return write_conv(new, [data, moved], window, output=output, name=f"{name}:channels")
