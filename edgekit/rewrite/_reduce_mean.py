"""ReduceMean over height and width to AveragePool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._global_average_pool import whole_image_pool
from edgekit.rewrite._graph import attribute, constant, node_called, nodes_of, tensor_shape
from edgekit.rewrite._types import Match

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model

__all__ = ["ReduceMean"]


class ReduceMean:
    """A mean over H and W that keeps its dimensions is an average pool."""

    name = "reduce-mean"
    reason = "the DLA runs no average Reduce; a mean over H and W is an average pool"

    def match(self, model: Model) -> list[Match]:
        """Returns every ReduceMean over axes 2 and 3 of a 4-D tensor with keepdims."""
        return [
            Match((node.name,))
            for node in nodes_of(model, "ReduceMean")
            if len(tensor_shape(model, node.input[0])) == 4
            and attribute(node, "keepdims", 1) == 1
            and sorted(axis % 4 for axis in _axes(model, node)) == [2, 3]
        ]

    def replace(self, model: Model, match: Match) -> list[onnx.NodeProto]:
        """Returns one AveragePool whose window is the image."""
        (name,) = match.nodes
        return [whole_image_pool(model, node_called(model, name))]


def _axes(model: Model, node: onnx.NodeProto) -> list[int]:
    # opset 18 moved the axes from an attribute to an input
    if len(node.input) > 1 and node.input[1]:
        value = constant(model, node.input[1])
        return [] if value is None else [int(axis) for axis in value]
    return list(attribute(node, "axes", []))
