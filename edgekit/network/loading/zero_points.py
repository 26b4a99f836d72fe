"""QuantizeLinear without a zero point: ONNX gives uint8, TensorRT's parser int8.

Source: onnx-tensorrt 10.1, onnxOpImporters.cpp, QuantDequantLinearHelper ("ONNX default is UINT8,
TRT will default to INT8"); the parser of TensorRT for RTX 1.7 does the same.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx

from edgekit.network.model import Constant
from edgekit.network.protos import RUNTIMES, free_name
from edgekit.text import listed

_DOMAINS = frozenset({"", "ai.onnx"}) | RUNTIMES
_SHOWN = 3


def add_zero_points(
    nodes: Collection[onnx.NodeProto], constants: dict[str, Constant]
) -> tuple[str, ...]:
    """Adds the int8 zero point that TensorRT assumes to the nodes of a graph, in place.

    A node is not changed if it has a zero point or ``output_dtype``, or its scale is computed.

    Args:
        nodes: The nodes; they must have names.
        constants: The graph's constants by name, to which zero points are added.

    Returns:
        A note for all changed nodes; empty if there are none.
    """
    if not any(node.op_type == "QuantizeLinear" for node in nodes):
        return ()
    scales = {name: tuple(value.shape) for name, value in constants.items()}
    taken = {name for node in nodes for name in (*node.input, *node.output)} | constants.keys()
    changed = []
    for node in nodes:
        # constant nodes are not folded yet at this point of loading
        if node.op_type == "Constant":
            given = (item.t.dims for item in node.attribute if item.name == "value")
            scales.update((node.output[0], tuple(dims)) for dims in given)
        if node.op_type != "QuantizeLinear" or node.domain not in _DOMAINS:
            continue
        typed = any(item.name == "output_dtype" and item.i for item in node.attribute)
        if typed or any(node.input[2:]) or scales.keys().isdisjoint(node.input[1:2]):
            continue
        name = free_name(f"{node.name}:zero_point", taken)
        taken.add(name)
        constants[name] = np.zeros(scales[node.input[1]], np.int8)
        del node.input[2:]
        node.input.append(name)
        changed.append(node.name)
    if not changed:
        return ()
    return (
        f"QuantizeLinear without a zero point ({listed(map(repr, changed), _SHOWN)}) is int8, as "
        "TensorRT reads it; ONNX Runtime quantises to uint8 there, so its results on the file "
        "differ: export it with int8 zero points",
    )
