"""GlobalAveragePool to AveragePool over the whole image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._graph import node_called, nodes_of, tensor_shape
from edgekit.rewrite._types import Match

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model

__all__ = ["GlobalAveragePool", "whole_image_pool"]


class GlobalAveragePool:
    """The importer makes a Reduce of GlobalAveragePool, which no DLA runs; a pool it does."""

    name = "global-average-pool"
    reason = "TensorRT imports GlobalAveragePool as an average Reduce, which the DLA does not run"

    def match(self, model: Model) -> list[Match]:
        """Returns every GlobalAveragePool over a 4-D tensor."""
        return [
            Match((node.name,))
            for node in nodes_of(model, "GlobalAveragePool")
            if len(tensor_shape(model, node.input[0])) == 4
        ]

    def replace(self, model: Model, match: Match) -> list[onnx.NodeProto]:
        """Returns one AveragePool whose window is the image."""
        (name,) = match.nodes
        return [whole_image_pool(model, node_called(model, name))]


def whole_image_pool(model: Model, node: onnx.NodeProto) -> onnx.NodeProto:
    """Returns an AveragePool over H and W that reads and writes what ``node`` does."""
    from onnx import helper

    height, width = tensor_shape(model, node.input[0])[2:]
    return helper.make_node(
        "AveragePool",
        [node.input[0]],
        [node.output[0]],
        name=node.name,
        kernel_shape=[height, width],
        strides=[1, 1],
    )
