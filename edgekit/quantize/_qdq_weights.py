"""Constants of a Q/DQ model as the floats that the plain network holds.

TensorRT's implicit INT8 quantises weights anew, per output channel: scale = amax / 127. A weight
whose Q/DQ scales are just that keeps the floats of the file. Any other takes the values that its
codes stand for: quantised anew they give the same codes wherever a channel has a code of 127,
and a finer grid, with other codes, where it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.dla import channel_axis, channel_blocks, weight_scales
from edgekit.quantize._qdq_grid import Constants

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model
    from edgekit.quantize._qdq_read import Fixed

__all__ = ["keeps", "requantised", "values_of"]

# of the scale: two ways to compute one value in float32
_ROUNDING = 1e-4


def values_of(fixed: Fixed, constants: Constants) -> np.ndarray:
    """Returns the floats that a quantised constant stands for, in its scales' type.

    As ONNX defines them: codes are round half to even of value / scale, saturated.
    """
    import numpy as np

    grid = fixed.grid
    source = np.asarray(constants[fixed.source])
    scale = grid.along(source)
    if fixed.codes:
        codes = source.astype(np.float32) - np.float32(grid.shift)
    else:
        low, high = (-128, 127)
        safe = np.where(scale > 0, scale, np.float32(1))
        codes = np.clip(np.rint(source.astype(np.float32) / safe), low, high)
    return np.ascontiguousarray((codes * scale).astype(grid.exact))


def requantised(value: np.ndarray, wanted: np.ndarray, axis: int) -> bool:
    """Whether ``value``, quantised per index of ``axis``, stands for ``wanted``."""
    import numpy as np

    source, target = np.moveaxis(value, axis, 0), np.moveaxis(wanted, axis, 0)
    scales = weight_scales(value, axis).reshape(-1, *[1] * (value.ndim - 1))
    for block in channel_blocks(source):
        scale = scales[block]
        # not a multiple of the old scale: one step of the code is far more than rounding
        again = np.rint(source[block].astype(np.float32) / scale) * scale
        apart = np.abs(again - target[block])
        if (apart > _ROUNDING * scale).any():
            return False
    return True


def keeps(
    fixed: Fixed, value: np.ndarray, constants: Constants, readers: Sequence[onnx.NodeProto]
) -> bool:
    """Whether the file's floats give the very codes when they are quantised anew.

    Args:
        fixed: A quantised constant.
        value: What it stands for.
        constants: The model's.
        readers: What reads it, all of it.
    """
    if fixed.codes or not readers:
        return False
    original = constants[fixed.source]
    axes = [channel_axis(node, value.ndim) for node in readers]
    return all(axis is not None and requantised(original, value, axis) for axis in axes)


def other_codes(model: Model, names: set[str]) -> list[str]:
    """Returns the weights whose codes differ once they are quantised anew per output channel.

    Args:
        model: The plain model.
        names: Its constants that are quantised in the Q/DQ model and hold what codes stand for.
    """
    found: dict[str, None] = {}
    for node in model.proto.graph.node:
        name = node.input[1] if len(node.input) > 1 else ""
        value = model.weights.get(name)
        if name not in names or value is None:
            continue
        axis = channel_axis(node, value.ndim)
        if axis is not None and not requantised(value, value, axis):
            found[name] = None
    return list(found)
