"""Cuts a part of a model out as a model of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.network._graph import reads

if TYPE_CHECKING:
    import onnx

    from edgekit.network._types import Model

__all__ = ["extract"]


def extract(
    model: Model, nodes: Collection[str], inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    """The sub-model of the named nodes between tensor borders.

    Weights stay stubs (their values are those of ``model.weights``), small constants stay inline,
    and inputs, outputs and inner tensors carry their types and static shapes.

    Args:
        model: Where to cut.
        nodes: Names of the ONNX nodes to keep.
        inputs: Tensors to feed, in this order.
        outputs: Tensors to return, in this order.

    Raises:
        ModelError: ``model.unknown_node``, ``model.unknown_output``, or ``model.open_segment``
            when a node reads a tensor that is neither fed, computed inside nor constant.
    """
    from onnx import helper

    graph = model.proto.graph
    kept = [node for node in graph.node if node.name in nodes]
    missing = set(nodes) - {node.name for node in kept}
    if missing:
        raise ModelError(
            f"there is no node called {min(missing)!r}",
            code="model.unknown_node",
            where=min(missing),
        )
    infos = {v.name: v for v in [*graph.value_info, *graph.output, *graph.input]}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    produced = {name for node in kept for name in node.output if name}
    used: dict[str, None] = {}
    for node in kept:
        for name in reads(node):
            if name not in produced and name not in inputs and name not in constants:
                raise ModelError(
                    f"node {node.name!r} reads {name!r}, which the segment neither gets nor makes",
                    code="model.open_segment",
                    where=node.name,
                )
            used[name] = None
    for name in (*inputs, *outputs):
        if name not in infos or (name in outputs and name not in {*produced, *inputs, *constants}):
            raise ModelError(
                f"tensor {name!r} is not at the border of the segment",
                code="model.unknown_output",
                where=name,
            )
    needed = [name for name in dict.fromkeys([*used, *outputs]) if name in constants]
    part = helper.make_graph(
        kept,
        graph.name,
        [infos[name] for name in inputs],
        [infos[name] for name in outputs],
        [constants[name] for name in needed if name not in inputs],
        value_info=[
            infos[name]
            for node in kept
            for name in node.output
            if name and name not in outputs and name not in inputs
        ],
    )
    return helper.make_model(
        part,
        opset_imports=model.proto.opset_import,
        ir_version=model.proto.ir_version,
        producer_name=model.proto.producer_name,
    )
