"""Where each node of an ONNX file ended up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network._types import Folded, Model, Network

__all__ = ["Place", "places"]

# their results are computed before running: whoever reads them has taken them in
_BEFOREHAND = frozenset({"constant", "given"})


@dataclass(frozen=True, slots=True)
class Place:
    """The layers that stand for an ONNX node.

    Attributes:
        layers: Names of the layers, in graph order. Of a node that loading removed: those that
            read what it computed, or for an Identity and the like those that make its result.
        reason: Why the node itself is gone, as :class:`~edgekit.network.Folded` says it; empty
            when the layers stand for it directly. With a reason there may be no layers: a node
            that no output needs, or a constant that is itself an output.
    """

    layers: tuple[str, ...]
    reason: str = ""


def places(model: Model, network: Network) -> dict[str, Place]:
    """By name of every node that the model's file has, where it is in the layer graph.

    Args:
        model: A loaded model.
        network: ``layers(model)``.
    """
    order = {layer.name: index for index, layer in enumerate(network.whole.layers)}
    kept = {name: layer.name for layer in network.constants for name in layer.outputs}
    direct: dict[str, list[str]] = {node.name: [] for node in model.proto.graph.node}
    for layer in network.layers:
        for name in layer.nodes:
            direct[name].append(layer.name)
    found = {name: Place(tuple(layers)) for name, layers in direct.items()}
    maker = {out: node.name for node in model.proto.graph.node for out in node.output if out}
    readers: dict[str, list[str]] = {}
    for node in model.proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.name)
    for name, gone in model.folded.items():
        for tensor in gone.inputs:
            readers.setdefault(tensor, []).append(name)
    # the last first: who reads a removed node's result is known before the node itself
    for name, gone in reversed(list(model.folded.items())):
        if name not in found:
            users = _users(gone, maker, readers)
            own = [kept[tensor] for tensor in gone.outputs if tensor in kept]
            # a constant that stays a layer is where its node is; otherwise its readers are
            readers_of = [one for user in users if user in found for one in found[user].layers]
            within = set(own or readers_of)
            found[name] = Place(tuple(sorted(within, key=order.__getitem__)), gone.reason)
    return found


def _users(gone: Folded, maker: dict[str, str], readers: dict[str, list[str]]) -> Iterable[str]:
    if gone.reason == "unused":
        return ()
    makers = [maker[tensor] for tensor in gone.outputs if tensor in maker]
    if makers and gone.reason not in _BEFOREHAND:
        return makers
    return [reader for tensor in gone.outputs for reader in readers.get(tensor, ())]
