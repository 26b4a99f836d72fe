"""A network's layers as a tree of its PyTorch modules, with the totals of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from edgekit.network.model import Layer, Network
from edgekit.network.module_names import enclosing


@dataclass(frozen=True, slots=True)
class ModuleTotals:
    """A module with all that it computes.

    Attributes:
        path: "layer1.0.conv1"; "" for the network.
        kind: Its class ("torch.nn.modules.conv.Conv2d"); "" where the file does not name it.
        layers: Number of layers; as in all totals, those of the inner modules are included.
        macs: Multiply-accumulates for one inference.
        weight_bytes: Bytes of their weights; those that two layers share count twice.
        devices: Number of layers by device.
        own: Names of the layers that are of none of the inner modules.
        modules: The inner modules, in the order of their first layers.
    """

    path: str
    kind: str
    layers: int
    macs: int
    weight_bytes: int
    devices: Mapping[str, int]
    own: tuple[str, ...]
    modules: tuple[ModuleTotals, ...]


def module_tree(
    network: Network, devices: Mapping[str, str], weight_bytes: Mapping[str, int]
) -> ModuleTotals | None:
    """Returns the network's modules as a tree; None if its file names no modules.

    Args:
        network: The layer graph.
        devices: Device by name of the layer; a layer that has none counts in no device.
        weight_bytes: Bytes of a layer's weights by name of the layer.
    """
    if network.modules is None:
        return None
    own: dict[str, list[Layer]] = {"": []}
    inside: dict[str, dict[str, None]] = {"": {}}
    for layer in network.layers:
        for outer, inner in pairwise(enclosing(layer.module)):
            inside[outer][inner] = None
            inside.setdefault(inner, {})
            own.setdefault(inner, [])
        own[layer.module].append(layer)
    found: dict[str, ModuleTotals] = {}
    for path in sorted(own, key=lambda path: len(enclosing(path)), reverse=True):
        modules = tuple(found[inner] for inner in inside[path])
        placed = Counter(devices[x.name] for x in own[path] if x.name in devices)
        for module in modules:
            placed.update(module.devices)
        found[path] = ModuleTotals(
            path=path,
            kind=network.modules.classes.get(path, ""),
            layers=len(own[path]) + sum(module.layers for module in modules),
            macs=sum(x.macs for x in own[path]) + sum(module.macs for module in modules),
            weight_bytes=sum(weight_bytes.get(x.name, 0) for x in own[path])
            + sum(module.weight_bytes for module in modules),
            devices=dict(sorted(placed.items())),
            own=tuple(x.name for x in own[path]),
            modules=modules,
        )
    return found[""]
