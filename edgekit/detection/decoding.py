"""A network's own decoding as a function that can be evaluated: the part of the network that
depends on a single tensor. A recogniser evaluates it to find the head's parameters.

A suppression inside picks rows of that tensor depending on the scores. Here every row is picked, in
order, so that each can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx

from edgekit.detection.walk import all_rows, region
from edgekit.network.graph import Node, OnnxGraph
from edgekit.network.model import Model
from edgekit.network.session import session

_PICKS = frozenset({"Gather", "GatherND"})
_BOUNDS = frozenset({"Clip", "Max", "Min"})


@dataclass(frozen=True)
class Decoding:
    """The part of a network that depends on a single tensor.

    Attributes:
        source: The tensor.
        result: The last tensor computed from it with as many values per row.
        picked: Number of rows by the tensor with the indices of the picked rows.
        bounds: The nodes that clip the decoded values.
        operators: Operators of all nodes that depend on the source only, directly or not.
    """

    source: str
    result: str
    picked: Mapping[str, int]
    bounds: tuple[Node, ...]
    operators: frozenset[str]

    def run(self, model: Model, value: np.ndarray, *, clip: bool = True) -> np.ndarray:
        """Returns the result for a value of the source.

        Args:
            model: The network.
            value: A value in the source's shape.
            clip: False to leave out the bounds.
        """
        feeds = {self.source: value.astype(model.graph.dtype(self.source))}
        for name, count in self.picked.items():
            feeds[name] = all_rows(model.graph, name, count)
        between = region(
            model.graph, self.result, lambda node: not feeds.keys() & set(node.outputs)
        )
        part = model.cut([node.name for node in between.nodes], [*feeds], [self.result])
        if not clip:
            part = replace(part, proto=_without(part.proto, [bound.name for bound in self.bounds]))
        found: np.ndarray = session(part).run(None, feeds)[0]
        return found.astype(np.float32)


def _without(proto: onnx.ModelProto, bounds: list[str]) -> onnx.ModelProto:
    """Returns the model with the nodes in ``bounds`` as Identity of their first activation."""
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    constants = {constant.name for constant in changed.graph.initializer}
    for node in changed.graph.node:
        if node.name in bounds:
            kept = next(name for name in node.input if name not in constants)
            node.op_type = "Identity"
            del node.input[:], node.attribute[:]
            node.input.append(kept)
    return changed


def decoding(graph: OnnxGraph, source: str, arithmetic: str) -> Decoding | None:
    """Returns the part of a network that depends on a tensor [batch, rows, values] only.

    Args:
        graph: The network.
        source: The tensor.
        arithmetic: An operator of the decoding: only values after it are decoded.

    Returns:
        None if the operator does not follow the tensor.
    """
    picked: dict[str, int] = {}
    while True:
        # again with the known indices: further nodes then depend on the source alone, and values
        # may be picked from them, too
        found = _walk(graph, source, arithmetic, picked)
        if len(picked) == (found and len(found.picked)):
            return found
        if found is None:
            return None
        picked = dict(found.picked)


def _walk(
    graph: OnnxGraph, source: str, arithmetic: str, known: Mapping[str, int]
) -> Decoding | None:
    values = graph.shape(source)[-1]
    picked = dict(known)
    alone, decoded = {source, *picked}, set[str]()
    bounds, result, operators = [], "", set[str]()
    for node in graph.nodes():
        reads = {name for name in node.reads() if not graph.constant(name)}
        if not reads & alone:
            continue
        if others := reads - alone:
            data = node.input(0)
            if node.op not in _PICKS or others != {node.input(1)} or data in decoded:
                continue
            picked[node.input(1)] = graph.shape(data)[0]
            alone.add(node.input(1))
        alone.update(node.outputs)
        if node.input(0) not in picked:
            operators.add(node.op)
        if node.op == arithmetic or reads & decoded:
            decoded.update(node.outputs)
            if node.op in _BOUNDS:
                bounds.append(node)
            shape = graph.shape(node.outputs[0])
            # the exporter may not know the shape of picked rows
            if len(shape) > 1 and shape[-1] in (values, 0):
                result = node.outputs[0]
    return Decoding(source, result, picked, tuple(bounds), frozenset(operators)) if result else None
