"""Multiply-accumulates of operators with a layer kind of their own, by their definitions.

Source: ONNX operator specification (onnx 1.20, docs/Operators.md). An interpolated value counts one
multiply-accumulate for each input value. The cost is unknown without a formula: for a plugin, a
loop with an unknown number of iterations, and an operator with data-dependent work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network.graph import Node
    from edgekit.network.lowering.placer import Placer

# they select, copy, fill or add: their time is that of reading and writing the values
_MOVING = frozenset(
    {
        "Cast",
        "CumSum",
        "Dropout",
        "Identity",
        "OneHot",
        "PRelu",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "ReverseSequence",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "TensorScatter",
        "Where",
    }
)
# input values of an interpolated value, along each axis
_TAPS = {"nearest": 0, "bilinear": 2, "linear": 2, "bicubic": 4, "cubic": 4}
_CORNERS = 4


def count_macs(placer: Placer, node: Node) -> int | None:
    """Returns a node's multiply-accumulates for one inference; None if unknown.

    They are also unknown for a node of another domain if its inputs differ from those of ONNX's
    operator of that name.
    """
    if node.op in _MOVING:
        return 0
    formula = _FORMULAS.get(node.op)
    return None if formula is None else formula(placer, node)


def _attention(placer: Placer, node: Node) -> int | None:
    """Returns those of queries times keys, and of the softmax times values, for all query heads."""
    query, key, value = (placer.shape(name) for name in node.inputs[:3])
    if not len(query) == len(key) == len(value) or len(query) not in {3, 4}:
        return None
    if len(query) == 3 and not {"q_num_heads", "kv_num_heads"} <= node.attrs.keys():
        return None
    if len(query) == 4:
        batch, heads, rows, depth = query
        columns, width = key[2], value[3]
    else:
        heads, shared = node.attrs["q_num_heads"], node.attrs["kv_num_heads"]
        batch, rows, depth = query[0], query[1], query[2] // heads
        columns, width = key[1], value[2] // shared
    if node.input(4):
        columns += placer.shape(node.input(4))[2]
    return int(batch * heads * rows * columns * (depth + width))


def _rotary_embedding(placer: Placer, node: Node) -> int:
    """Returns two products for each rotated value."""
    shape = placer.shape(node.inputs[0])
    turned = node.attrs.get("rotary_embedding_dim", 0)
    heads = node.attrs.get("num_heads", 0)
    depth = shape[-1] // heads if len(shape) == 3 and heads else shape[-1]
    return int(2 * math.prod(shape) * (turned or depth) // depth)


def _grid_sample(placer: Placer, node: Node) -> int | None:
    target = placer.shape(node.outputs[0])
    taps = _TAPS.get(node.attrs.get("mode", "linear"))
    return None if taps is None else int(math.prod(target) * taps ** (len(target) - 2))


def _roi_align(placer: Placer, node: Node) -> int | None:
    """Returns those of each bin's interpolations; None without a fixed ``sampling_ratio``."""
    ratio = node.attrs.get("sampling_ratio", 0)
    return int(math.prod(placer.shape(node.outputs[0])) * ratio**2 * _CORNERS) if ratio else None


def _deform_conv(placer: Placer, node: Node) -> int | None:
    """Returns those of the convolution and of the interpolation of each value that it reads."""
    source, weight, target = map(placer.shape, (*node.inputs[:2], node.outputs[0]))
    if not len(source) == len(weight) == len(target):
        return None
    window = math.prod(weight[2:])
    corners = math.prod(2 for _ in weight[2:])
    sampled = math.prod(target[2:]) * target[0] * source[1] * window * corners
    return math.prod(target) * weight[1] * window + sampled


def _stft(placer: Placer, node: Node) -> int:
    """Returns those of sines and cosines times the values of each frame."""
    length = placer.shape(node.input(2))[0] if node.input(2) else int(placer.scalar(node, 3) or 0)
    parts = placer.shape(node.inputs[0])[2:] or (1,)
    return math.prod(placer.shape(node.outputs[0])) * length * parts[0]


_FORMULAS: dict[str, Callable[[Placer, Node], int | None]] = {
    "Attention": _attention,
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
    "RotaryEmbedding": _rotary_embedding,
    "STFT": _stft,
}
