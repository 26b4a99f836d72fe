"""The layers of each node of a model's file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgekit.network.graph import OnnxGraph
from edgekit.network.model import Folded, Model, Network

# their results are computed at load time, so the layers that read them contain them
_BEFOREHAND = frozenset({"constant", "given"})


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The layers that implement an ONNX node.

    Attributes:
        layers: Names of the layers, in graph order. For a node that loading removed: the layers
            that read its result, or for an Identity and the like those that compute its result.
        reason: The reason for the removal, as in :class:`~edgekit.network.model.Folded`; empty for
            a node that was kept. With a reason ``layers`` may be empty: for a node that no output
            needs, or a constant that is itself an output.
    """

    layers: tuple[str, ...]
    reason: str = ""


def places(model: Model, network: Network) -> dict[str, NodePlace]:
    """Returns the place in the layer graph of every node of the model's file, by node name.

    Args:
        model: A loaded model.
        network: ``layers(model)``.
    """
    nodes = list(model.graph.nodes())
    order = {layer.name: index for index, layer in enumerate(network.whole.layers)}
    holders = {name: layer.name for layer in network.constants for name in layer.outputs}
    direct: dict[str, list[str]] = {node.name: [] for node in nodes}
    for layer in network.layers:
        for name in layer.nodes:
            direct[name].append(layer.name)
    found = {name: NodePlace(tuple(layers)) for name, layers in direct.items()}
    readers: dict[str, list[str]] = {}
    for node in nodes:
        for name in node.reads():
            readers.setdefault(name, []).append(node.name)
    for name, gone in model.folded.items():
        for tensor in gone.inputs:
            readers.setdefault(tensor, []).append(name)
    # in reverse order, so that the readers of a removed node's result are already placed
    for name, gone in reversed(list(model.folded.items())):
        if name not in found:
            users = _users(gone, model.graph, readers)
            own = [holders[tensor] for tensor in gone.outputs if tensor in holders]
            # the constant's own layer if there is one, otherwise the layers that read it
            readers_of = [layer for user in users if user in found for layer in found[user].layers]
            within = set(own or readers_of)
            found[name] = NodePlace(tuple(sorted(within, key=order.__getitem__)), gone.reason)
    return found


def _users(gone: Folded, graph: OnnxGraph, readers: dict[str, list[str]]) -> Iterable[str]:
    if gone.reason == "unused":
        return ()
    producers = (graph.producer(tensor) for tensor in gone.outputs)
    makers = [node.name for node in producers if node is not None]
    # an Identity or a taken branch: the layer that computes its result
    if makers and gone.reason not in _BEFOREHAND:
        return makers
    return [reader for tensor in gone.outputs for reader in readers.get(tensor, ())]
