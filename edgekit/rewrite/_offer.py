"""Which rewrites would help where, without applying them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._all import rewrites
from edgekit.rewrite._graph import node_called, tensor_shape

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model
    from edgekit.rewrite._types import Match, Rewrite
    from edgekit.targets import Target

__all__ = ["offers"]


def offers(
    model: Model, target: Target, *, precision: str, tensorrt: str | None = None
) -> dict[str, str]:
    """Returns the rewrite by ONNX node that a DLA runs once it is rewritten.

    Only what would replace a node is judged, on its own and once for each shape, so this takes
    milliseconds; ``rewrite`` proves it and looks at the whole network.

    Args:
        model: The network.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release on the board; the target's usual one when None.
    """
    found: dict[str, str] = {}
    for item in rewrites():
        known: dict[tuple[tuple[int, ...], ...], bool] = {}
        for match in item.match(model):
            shapes = _shapes(model, match)
            if shapes not in known:
                known[shapes] = _runs_on_dla(model, item, match, target, precision, tensorrt)
            if known[shapes]:
                found.update(dict.fromkeys(match.nodes, item.name))
    return found


def _shapes(model: Model, match: Match) -> tuple[tuple[int, ...], ...]:
    nodes = [node_called(model, name) for name in match.nodes]
    return tuple(tensor_shape(model, name) for node in nodes for name in node.input)


def _runs_on_dla(
    model: Model,
    item: Rewrite,
    match: Match,
    target: Target,
    precision: str,
    tensorrt: str | None,
) -> bool:
    from edgekit.dla import judge
    from edgekit.network import canonical, layers

    alone = canonical(_alone(model, item.replace(model, match)), None, source="", weights={})
    verdicts = judge(layers(alone), target, precision=precision, tensorrt=tensorrt).verdicts
    return all(verdict.ok for verdict in verdicts.values())


def _alone(model: Model, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    from onnx import TensorProto, helper

    written = {name for node in nodes for name in node.output}
    read = dict.fromkeys(n for node in nodes for n in node.input if n and n not in written)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "replacement",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, tensor_shape(model, n)) for n in read],
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, tensor_shape(model, n))
            for n in written
            if n not in used
        ],
    )
    return helper.make_model(graph, opset_imports=model.proto.opset_import)
