"""The same network in opset 13, the oldest that rewrites are written for.

Node by node and not by onnx's version converter, which gives nodes that it adds no names, adds
nodes where an axis would do, and takes models with half of their constants away for damaged ones.
What changed between the opsets: ONNX's operator changelog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError
from edgekit.rewrite._graph import opset_of
from edgekit.rewrite._raise_nodes import CHANGED

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["Raiser", "obstacle", "raise_opset"]

_OPSET = 13


def raise_opset(model: Model, least: int = _OPSET) -> Model | None:
    """Returns the network in ai.onnx opset 13 or the newer one that it has.

    Weights, their names and the names of all nodes and tensors stay; parameters that were
    attributes become constants called "NODE:PARAMETER".

    Args:
        model: The network.
        least: Models of at least this opset are returned as they are; at most 13.

    Returns:
        None where an operator cannot be raised (a Scan of opset 8, batch normalization per
        element).
    """
    from edgekit.network import canonical

    if opset_of(model) >= min(least, _OPSET):
        return model
    raiser = Raiser(model)
    proto = raiser.run()
    if proto is None:
        return None
    try:
        # what a tensor is stays: only shapes and types of what the changes add are inferred
        raised = canonical(
            proto, None, source=model.source, weights=model.weights, known=raiser.given
        )
    except ModelError:
        return None
    return replace(raised, folded={**raised.folded, **model.folded})


def obstacle(model: Model) -> str:
    """Returns what keeps a model from being raised, for people: operator and name of the node."""
    raiser = Raiser(model)
    raiser.run()
    return raiser.stuck or "the network as a whole"


class Raiser:
    """A model on its way to opset 13.

    Attributes:
        opset: What it comes from.
        types: Element type and shape by tensor.
        given: Those of the tensors that the model has.
        stuck: The node that could not be raised; empty as long as there is none.
    """

    def __init__(self, model: Model) -> None:
        import onnx

        self.opset = opset_of(model)
        self.stuck = ""
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(model.proto)
        graph = self.proto.graph
        self.types: dict[str, tuple[int, tuple[int, ...]]] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            self.types[value.name] = tensor.elem_type, tuple(d.dim_value for d in tensor.shape.dim)
        for item in graph.initializer:
            self.types[item.name] = item.data_type, tuple(item.dims)
        self.given = dict(self.types)
        self.tensors = set(self.types)
        self.names = {node.name for node in graph.node}

    def run(self) -> onnx.ModelProto | None:
        """Returns the raised model; None when a node cannot be raised."""
        from onnx import helper

        from edgekit.network._graph import subgraphs

        graph = self.proto.graph
        made: list[onnx.NodeProto] = []
        for node in graph.node:
            self.stuck = f"{node.op_type} {node.name!r}"
            for body in subgraphs(node):
                if any(CHANGED.get(inner.op_type) or not self.fits(inner) for inner in body.node):
                    return None
            change = None if node.domain else CHANGED.get(node.op_type)
            nodes = change(self, node) if change is not None else [node]
            if nodes is None or not all(self.fits(item) for item in nodes):
                return None
            made += nodes
        self.stuck = ""
        del graph.node[:]
        graph.node.extend(made)
        for item in self.proto.opset_import:
            if not item.domain:
                item.version = _OPSET
        needed = helper.find_min_ir_version_for(self.proto.opset_import, ignore_unknown=True)
        self.proto.ir_version = max(self.proto.ir_version, needed)
        return self.proto

    def fits(self, node: onnx.NodeProto) -> bool:
        """Whether opset 13 has an operator of this name with these attributes."""
        import onnx

        if node.domain:
            return True
        if not onnx.defs.has(node.op_type, max_inclusive_version=_OPSET):
            return False
        schema = onnx.defs.get_schema(node.op_type, _OPSET)
        named = all(item.name in schema.attributes for item in node.attribute)
        fit = schema.min_input <= len(node.input) <= schema.max_input
        return named and fit and not schema.deprecated

    def constant(self, node: onnx.NodeProto, role: str, value: Any, kind: Any) -> str:
        """Adds a constant and returns its name."""
        import numpy as np
        from onnx import numpy_helper

        from edgekit.network._graph import free_name

        name = free_name(f"{node.name}:{role}", self.tensors)
        self.tensors.add(name)
        array: np.ndarray = np.asarray(value, kind)
        self.proto.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def whole(self, node: onnx.NodeProto, role: str, value: Sequence[int] | None) -> str:
        """Adds a list of whole numbers; "" for None."""
        return "" if value is None else self.constant(node, role, list(value), "int64")

    def name(self, node: onnx.NodeProto, role: str) -> str:
        """Returns a free name for a node beside ``node``."""
        from edgekit.network._graph import free_name

        name = free_name(f"{node.name}:{role}", self.names)
        self.names.add(name)
        return name
