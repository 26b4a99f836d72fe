"""Pools and depthwise convolutions over H and W in the place of one window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from edgekit.dla import cbuf_banks, limit, memory_facts
from edgekit.rewrite.pooling._cascade import (
    IDENTITY,
    Axis,
    Stage,
    conv_stages,
    mixed_stages,
    pool_stages,
)
from edgekit.rewrite.pooling._common import Part
from edgekit.rewrite.pooling._maxima import max_stages

if TYPE_CHECKING:
    import numpy as np

__all__ = ["average_parts", "maximum_parts", "over_channels", "position_map", "sum_parts"]

_Both = tuple[Stage, Stage]


def maximum_parts(height: Axis, width: Axis) -> list[Part] | None:
    """Returns MaxPools, one after the other, that make one maximum over windows."""
    down, across = max_stages(height), max_stages(width)
    if not (down and across):
        return None
    return [_pool("MaxPool", both) for both in _side_by_side(down, across)]


def average_parts(height: Axis, width: Axis, channels: int, gain: float = 1.0) -> list[Part] | None:
    """Returns what makes the average over windows, padding counted as zeros, times ``gain``.

    Average pools where the windows have factors that the DLA takes; otherwise a depthwise
    convolution, after pools or along one axis at a time where its kernel or the convolution buffer
    asks for that. None where there is no such form.
    """
    down, across = pool_stages(height), pool_stages(width)
    if down and across:
        parts = [_pool("AveragePool", both) for both in _side_by_side(down, across)]
        return parts + ([] if gain == 1 else [Part("Mul", (gain,))])
    return _with_convolutions(height, width, channels, gain)


def sum_parts(height: Axis, width: Axis, channels: int) -> list[Part] | None:
    """Returns what makes the sum over windows: depthwise convolutions, after pools where needed.

    An average times the number of elements is the same, but its small values lose digits in INT8.
    """
    if height.size * width.size == 1:
        return average_parts(height, width, channels)
    gain = float(height.size * width.size)
    return _with_convolutions(height, width, channels, gain, whole_sum=True) or average_parts(
        height, width, channels, gain
    )


def _with_convolutions(
    height: Axis, width: Axis, channels: int, gain: float, *, whole_sum: bool = False
) -> list[Part] | None:
    if channels > limit("convolution.groups")[1]:
        return None
    tries: list[tuple[Sequence[_Both], float]] = []
    mixed = mixed_stages(height), mixed_stages(width)
    if mixed[0] and mixed[1]:
        (down, more_down), (across, more_across) = mixed[0], mixed[1]
        tries.append((_together(down, across), more_down * more_across))
        tries.append((_apart(down, across), more_down * more_across))
    direct = conv_stages(height), conv_stages(width)
    if direct[0] and direct[1]:
        alone = [(_together(direct[0], direct[1]), 1.0), (_apart(direct[0], direct[1]), 1.0)]
        tries = [*alone, *tries] if whole_sum else [*tries, *alone]
    for stages, factor in tries:
        if _in_buffer(stages, height.length, width.length, channels):
            return _parts(stages, channels, gain * factor)
    return None


def _together(down: Sequence[Stage], across: Sequence[Stage]) -> list[_Both]:
    """Returns both axes' stages side by side, the convolutions in one."""
    i, j = _conv_at(down), _conv_at(across)
    before, after = (
        _side_by_side(down[:i], across[:j]),
        _side_by_side(down[i + 1 :], across[j + 1 :]),
    )
    return [*before, (down[i], across[j]), *after]


def _side_by_side(down: Sequence[Stage], across: Sequence[Stage]) -> list[_Both]:
    return list(zip_longest(down, across, fillvalue=IDENTITY))


def _conv_at(stages: Sequence[Stage]) -> int:
    return next(i for i, stage in enumerate(stages) if stage.conv)


def _apart(down: Sequence[Stage], across: Sequence[Stage]) -> list[_Both]:
    """Returns W's stages and then H's, for which one column a window is left."""
    apart = [*((IDENTITY, stage) for stage in across), *((stage, IDENTITY) for stage in down)]
    return [both for both in apart if max(part.size * part.stride for part in both) > 1]


def _in_buffer(stages: Sequence[_Both], height: int, width: int, channels: int) -> bool:
    """Whether each convolution leaves a bank of the buffer free in FP16, which needs most."""
    most = memory_facts()["cbuf"]["banks"]
    for down, across in stages:
        if down.conv or across.conv:
            kernel = (down.size, across.size)
            banks = cbuf_banks(channels, kernel, down.dilation, width, "fp16", channels)
            if banks >= most:
                return False
        height, width = down.outputs(height), across.outputs(width)
    return True


def _parts(stages: Sequence[_Both], channels: int, gain: float) -> list[Part]:
    """Returns the nodes of average stages; the last convolution takes the factor."""
    convs = [i for i, (down, across) in enumerate(stages) if down.conv or across.conv]
    parts = []
    for index, both in enumerate(stages):
        if index not in convs:
            parts.append(_pool("AveragePool", both))
            continue
        weight = (gain if index == convs[-1] else 1.0) / (both[0].size * both[1].size)
        parts.append(_convolution(both, channels, weight))
    return parts


def _pool(op: str, both: _Both) -> Part:
    down, across = both
    pads = [down.before, across.before, down.after, across.after]
    attrs: dict[str, Any] = {
        "kernel_shape": [down.size, across.size],
        "strides": [down.stride, across.stride],
        "pads": pads if any(pads) else None,
    }
    if op == "AveragePool" and any(pads):
        attrs["count_include_pad"] = 1
    return Part(op, (), attrs)


def _convolution(both: _Both, channels: int, weight: float) -> Part:
    import numpy as np

    down, across = both
    pads = [down.before, across.before, down.after, across.after]
    dilations = [down.dilation, across.dilation]
    attrs = {
        "kernel_shape": [down.size, across.size],
        "strides": [down.stride, across.stride],
        "pads": pads if any(pads) else None,
        "dilations": dilations if dilations != [1, 1] else None,
        "group": channels,
    }
    return Part("Conv", (np.full((channels, 1, down.size, across.size), weight),), attrs)


def over_channels(channels: int, weight: float) -> Part:
    """Returns a 1x1 convolution that sums the channels, each times ``weight``, into one."""
    import numpy as np

    return Part("Conv", (np.full((1, channels, 1, 1), weight),), {"kernel_shape": [1, 1]})


def position_map(height: Axis, width: Axis) -> np.ndarray:
    """Returns elements of a window by its elements that are not padding, [H, W]."""
    import numpy as np

    return height.size * width.size / np.outer(height.real(), width.real())
