"""INT8 scales of weights: TensorRT's symmetric scheme, per output channel or per tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["LEVELS", "channel_axis", "channel_blocks", "weight_scales"]

#: The largest INT8 code of a symmetric scale, ``amax / 127``.
LEVELS = 127
_BLOCK_ELEMENTS = 1 << 22


def channel_axis(node: onnx.NodeProto, rank: int) -> int | None:
    """Returns the axis of the output channels of a node's second input; None without INT8.

    Args:
        node: What multiplies by it.
        rank: Its number of axes.
    """
    op = node.op_type
    if op == "Conv":
        return 0
    if op == "ConvTranspose":
        return 1
    if op == "MatMul":
        return 1 if rank == 2 else None
    if op == "Gemm":
        return 0 if any(item.name == "transB" and item.i for item in node.attribute) else 1
    return None


def weight_scales(value: np.ndarray, axis: int | None) -> np.ndarray:
    """Returns amax / 127 in float32; 1 where that is no normal number, as for zeros.

    NaN and infinity stay what they are.

    Args:
        value: A weight.
        axis: That of its channels, each of which has a scale; None for one scale of no axes.
    """
    import numpy as np

    source = value[np.newaxis] if axis is None else np.moveaxis(value, axis, 0)
    amax = np.zeros(source.shape[0], np.float32)
    rest = tuple(range(1, source.ndim))
    for block in channel_blocks(source):
        part = source[block]
        amax[block] = np.maximum(part.max(axis=rest, initial=0), -part.min(axis=rest, initial=0))
    scales = amax / np.float32(LEVELS)
    scales[scales < np.finfo(np.float32).tiny] = 1.0
    return scales.reshape(()) if axis is None else scales


def channel_blocks(array: np.ndarray) -> list[slice]:
    """Cuts the first axis so that temporaries stay a few megabytes (fully connected layers)."""
    channels = array.shape[0]
    step = max(1, _BLOCK_ELEMENTS * channels // max(1, array.size))
    return [slice(start, start + step) for start in range(0, channels, step)]
