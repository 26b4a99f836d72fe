"""Finds the layer of a plan that a name in a measurement means: the engine's layers are fusions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.placement import PlacedLayer, Plan, Share

__all__ = ["layer_args", "layers_args", "linked_layers"]

_FOREIGN = re.compile(r"^\{ForeignNode\[(.*)\]\}$")
_PARTS = re.compile(r" \+ | \|\| |, |\.\.\.")
_WRAP = re.compile(r"^(?:PWN|copied_)?\(*|\)+$")


def layer_args(layer: PlacedLayer) -> dict[str, Any]:
    """Returns a placed layer as arguments of an event."""
    return {
        "layer": layer.name, "nodes": list(layer.nodes), "device": layer.device,
        "precision": layer.precision, "segment": layer.segment,
    }  # fmt: skip


def layers_args(members: Sequence[PlacedLayer]) -> dict[str, Any]:
    """Returns the layers of a fusion as arguments of an event; its place is that of the first."""
    args = layer_args(members[0])
    if len(members) > 1:
        args["layer"] = " + ".join(layer.name for layer in members[:50])
        args["nodes"] = [node for layer in members for node in layer.nodes]
        args["layers"] = [layer.name for layer in members]
    return args


def linked_layers(plan: Plan | Share | None) -> Callable[[str], dict[str, Any] | None]:
    """Returns what finds a name's layer: by its own name, its nodes', or those it is fused of.

    A loadable (``{ForeignNode[first...last]}``) is all layers from its first to its last that are
    placed on that core; a fusion has the nodes of all its parts, and the place of its first.
    """
    layers = plan.layers if plan else ()
    place = {layer.name: number for number, layer in enumerate(layers)}
    for number, layer in enumerate(layers):
        for node in layer.nodes:
            place.setdefault(node, number)
    known: dict[str, dict[str, Any] | None] = {}

    def find(name: str) -> dict[str, Any] | None:
        if name not in known:
            if len(known) >= 1 << 14:
                known.clear()
            known[name] = _found(name)
        return known[name]

    def _found(name: str) -> dict[str, Any] | None:
        if name in place:
            return layer_args(layers[place[name]])
        match = _FOREIGN.match(name)
        parts = [_WRAP.sub("", part.strip()) for part in _PARTS.split(match[1] if match else name)]
        numbers = [place[part] for part in parts if part in place]
        if not numbers:
            return None
        if match:
            first = layers[min(numbers)]
            members = [
                layer for layer in layers[min(numbers) : max(numbers) + 1]
                if layer.segment == first.segment
            ]  # fmt: skip
        else:
            members = [layers[number] for number in sorted(set(numbers))]
        return {
            **layers_args(members),
            "predicted_us": sum(layer.predicted_us for layer in members),
        }

    return find
