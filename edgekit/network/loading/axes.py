"""Axes of a file's inputs: dynamic sizes, the batch, and height and width of pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx

Dims = Sequence[onnx.TensorShapeProto.Dimension]

# exporters' names of the batch, at any axis: an LSTM's state has it in the middle
_BATCH = re.compile(r"(?i)(n|bs|b|batch([ _.-]?size|[ _.-]?dim)?)")
# numbers of channels of a picture whose last axis is the channels
_CHANNELS = (1, 2, 3, 4)


def is_fixed(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Returns True if a size is a number; some exporters write -1 for a dynamic size."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def is_batch(position: int, dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Returns True if a dynamic size is the batch."""
    return position == 0 or bool(_BATCH.fullmatch(dim.dim_param))


def picture_axis(dims: Dims) -> int | None:
    """Returns the axis of the height of a picture input; None for any other input."""
    if len(dims) != 4:
        return None
    first, width, last = (dim.dim_value if is_fixed(dim) else None for dim in dims[1:])
    if last in _CHANNELS and first not in _CHANNELS and width not in _CHANNELS:
        return 1
    return 2
