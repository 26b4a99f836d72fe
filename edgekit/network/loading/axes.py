"""Axes of a file's inputs: which are open, which is the batch, which are a picture's."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx

Dims = Sequence[onnx.TensorShapeProto.Dimension]

# exporters' names of the batch, wherever it stands: an LSTM's state has it in the middle
_BATCH = re.compile(r"(?i)(n|bs|b|batch([ _.-]?size|[ _.-]?dim)?)")
# channels of a picture, where they are the last axis
_CHANNELS = (1, 2, 3, 4)


def is_fixed(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a size is a number; some exporters write -1 for one that is open."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def is_batch(position: int, dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether an open size is the batch."""
    return position == 0 or bool(_BATCH.fullmatch(dim.dim_param))


def picture_axis(dims: Dims) -> int | None:
    """Returns the position of the height of an input that is a picture; None of another one."""
    if len(dims) != 4:
        return None
    first, width, last = (dim.dim_value if is_fixed(dim) else None for dim in dims[1:])
    if last in _CHANNELS and first not in _CHANNELS and width not in _CHANNELS:
        return 1
    return 2
