"""Maps the builder's names to our network's layers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgekit.buildlog.lines import split_items

if TYPE_CHECKING:
    from edgekit.network.model import Network


_PLUS = " + "
_UNNAMED = re.compile(r"^\(Unnamed Layer\* \d+\) \[\w+\]$")
# 8.x and 10.x name the reshapes around a matrix product differently
_BEFORE = ("unsqueeze_node_before_", "unsqueeze_before_", "reshape_before_")
_AFTER = ("squeeze_after_", "reshape_after_", "unsqueeze_node_after_")
# the parser's name of an unnamed node: node_of_<its first output>
_NODE_OF = "node_of_"
_IMPORTER = ("ONNXTRT_",)
# layers that the builder adds; no network has them
_OWN = re.compile(r"^Reformatt(?:ing|ed) |^<reformat>| copy(?: finish)?$| (?:to|from) nvm$")
# levels of nesting that are followed in a name; a hostile one has thousands
_DEEP = 8


def layers_called(network: Network, name: str) -> tuple[str, ...]:
    """Returns our layers that a log calls ``name``; empty if there is none.

    Args:
        network: Our layer graph.
        name: As a log prints it, without the type: a layer's name, also of a fusion ("conv1 +
            relu1"), or of a constant or shuffle that a layer of ours absorbed.
    """
    known = LayerNames(network, [name])
    into = known.absorbed(name, "")
    return known.find(name) or ((into,) if into else ())


class LayerNames:
    """Finds layers by name: of a layer, of an ONNX node, or of a fusion of several.

    Args:
        network: Our layer graph.
        names: Fused names in the log; they show to which layer an unnamed layer belongs.
    """

    def __init__(self, network: Network, names: Iterable[str] = ()) -> None:
        self.layers = {layer.name: layer for layer in network.whole.layers}
        self._producers = network.producers()
        self._nodes: dict[str, list[str]] = {}
        self._weights: dict[str, str] = {}
        for layer in network.layers:
            for node in (*layer.nodes, *layer.origin):
                held = self._nodes.setdefault(node, [])
                if layer.name not in held:
                    held.append(layer.name)
            for weight in layer.weights:
                self._weights.setdefault(weight, layer.name)
        self._absorbed = {
            part.name: layer.name for layer in network.layers for part in layer.absorbed
        }
        self._unnamed: dict[str, str] = {}
        for name in names:
            parts = name.split(_PLUS)
            owner = next((part for part in parts if part in self.layers), None)
            if owner is not None and len(parts) > 1:
                for part in parts:
                    if _UNNAMED.match(part):
                        self._unnamed.setdefault(part, owner)

    def find(self, name: str, kind: str = "") -> tuple[str, ...]:
        """Returns our layers of a name in the log; empty if there is none.

        Args:
            name: The log's name, fused names included.
            kind: TensorRT's layer type if known: a node whose layer has another type was fused into
                that layer, and is not that layer.
        """
        return tuple(dict.fromkeys(self._find(name, kind, _DEEP)))

    def absorbed(self, name: str, kind: str) -> str | None:
        """Returns our layer that absorbed this constant or erased shuffle.

        "" if unknown; None if ``name`` is neither.
        """
        for owners in (self._absorbed, self._weights, self._unnamed):
            if name in owners:
                return owners[name]
        if name in self._nodes:
            return self._nodes[name][0]
        if kind == "CONSTANT" or name.startswith(_IMPORTER):
            return ""
        return None

    @staticmethod
    def distinctive(name: str) -> bool:
        """Returns True if a name is specific to a network; importer and builder use some in all
        networks.
        """
        return not (name.startswith(_IMPORTER) or _UNNAMED.match(name))

    @staticmethod
    def is_from_builder(name: str, kind: str) -> bool:
        """Returns True if the builder added the layer (a copy between formats)."""
        return kind == "COPY" or _OWN.search(name) is not None

    def _find(self, name: str, kind: str, deep: int) -> list[str]:
        if name in self.layers:
            return [name]
        nodes = self._find_by_node(name, kind)
        if nodes or not deep:
            return nodes
        if name.startswith(_NODE_OF):
            layer = self._producers.get(name[len(_NODE_OF) :])
            return [layer.name] if layer is not None else []
        if name.startswith("PWN(") and name.endswith(")"):
            return self._find_all(split_items(name[4:-1]), deep)
        if _PLUS in name:
            return self._find_all(name.split(_PLUS), deep)
        return self._find_around(name, deep)

    def _find_all(self, parts: Iterable[str], deep: int) -> list[str]:
        return [found for part in parts for found in self._find(part, "", deep - 1)]

    def _find_around(self, name: str, deep: int) -> list[str]:
        plain = name.removeprefix("copied_")
        for prefixes, ours in ((_AFTER, "reshape_after_"), (_BEFORE, "reshape_before_")):
            for prefix in prefixes:
                if not plain.startswith(prefix):
                    continue
                inner = plain[len(prefix) :]
                inner = self._unnamed.get(inner, inner)
                return [
                    f"{ours}{found}"
                    for found in self._find(inner, "", deep - 1)
                    if f"{ours}{found}" in self.layers
                ]
        return []

    def _find_by_node(self, name: str, kind: str) -> list[str]:
        found = [self.layers[layer] for layer in self._nodes.get(name, ())]
        main = [layer for layer in found if layer.nodes]
        if kind:
            return [layer.name for layer in main if layer.kind == kind]
        # a node's own layer has its name first; other layers only absorbed parts
        own = [layer for layer in main if layer.nodes[-1] == name or layer.nodes[0] == name]
        return [layer.name for layer in own]
