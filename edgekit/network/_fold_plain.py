"""Nodes of constants that are one call of NumPy; making onnx's reference for each is slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.network._window import attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["plain"]

_ARITHMETIC = {"Add": "add", "Sub": "subtract", "Mul": "multiply"}
_MOVES = frozenset({"Concat", "Gather", "Transpose"})


def plain(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the output of a node as onnx's reference computes it; None for any other node.

    Args:
        node: Of an opset of 7 or later.
        values: Of its inputs.
    """
    import numpy as np

    name = _ARITHMETIC.get(node.op_type, "")
    if not name and node.op_type not in _MOVES:
        return None
    read = [values[item] for item in node.input]
    if name:
        if len({item.dtype for item in read}) > 1 or read[0].dtype.kind not in "fiu":
            return None
        with np.errstate(all="ignore"):
            return np.asarray(getattr(np, name)(*read))
    given = attributes(node)
    if node.op_type == "Transpose":
        return np.transpose(read[0], given.get("perm"))
    if node.op_type == "Gather":
        return _gathered(read[0], read[1], given.get("axis", 0))
    if "axis" not in given or len({item.dtype for item in read}) > 1:
        return None
    return np.concatenate(read, given["axis"])


def _gathered(data: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray | None:
    import numpy as np

    if not data.ndim or not index.size:
        return None
    length = data.shape[axis]
    if index.min() < -length or index.max() >= length:
        return None
    return np.asarray(np.take(data, index, axis))
