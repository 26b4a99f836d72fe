"""From the plan's layers to the builder's: by name, by metadata, and by whom a layer serves.

onnx-tensorrt calls a layer as its ONNX node, with "_N" behind it where the name was taken; since
8.6 the layer's metadata say "[ONNX Layer: NODE]", several parted by the control characters 1E and
1F. Of a node of several layers it may name the first alone: a Gemm's bias addition and products
with alpha and beta have neither (onnxOpImporters.cpp). TensorRT's own names of the tensors between
them tell that they belong together: "(Unnamed Layer* 9) [Matrix Multiply]_output". What else is
inserted (constants, shuffles) follows its readers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ._build_types import LayerSpec

__all__ = ["BuilderLayer", "Mapped", "map_layers", "read_layers"]

_METADATA = re.compile(r"\[ONNX Layer: (.*)\]", re.DOTALL)
_SEPARATORS = re.compile("[\x1e\x1f]")
_SUFFIX = re.compile(r"_\d+\Z")
_INSIDE = "(Unnamed Layer*"  # how a tensor's name begins that is no ONNX tensor
#: Layers without work of their own: their builder takes them into others.
_CARRIED = ("CONSTANT", "SHUFFLE", "SQUEEZE", "UNSQUEEZE", "IDENTITY", "CAST")


@dataclass(frozen=True, eq=False)
class BuilderLayer:
    """A layer of an INetworkDefinition: its facts, and itself."""

    index: int
    name: str
    kind: str
    nodes: Tuple[str, ...]
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    layer: Any


@dataclass
class Mapped:
    """What stands for what.

    Attributes:
        layers: The builder's, in its order.
        ours: Our layer by the builder layer's index.
        parts: Our layer by the index of an unnamed layer that does part of its node's work.
        device: "GPU" or "DLA" by index, of inserted layers too.
        unmapped: Names of builder layers of which nothing says where they run.
        lost: Names of our layers of ONNX nodes that no builder layer stands for.
    """

    layers: List[BuilderLayer]
    ours: Dict[int, LayerSpec] = field(default_factory=dict)
    parts: Dict[int, LayerSpec] = field(default_factory=dict)
    device: Dict[int, str] = field(default_factory=dict)
    unmapped: List[str] = field(default_factory=list)
    lost: List[str] = field(default_factory=list)

    def work(self) -> Dict[str, List[BuilderLayer]]:
        """By our layer's name, the builder's layers that do its work.

        Those of its own kind; where none has it, all but those that a fusion takes in.
        """
        found: Dict[str, List[BuilderLayer]] = {}
        for index, spec in self.ours.items():
            found.setdefault(spec.name, []).append(self.layers[index])
        kinds = {spec.name: spec.kind for spec in self.ours.values()}
        for name, own in found.items():
            same = [layer for layer in own if layer.kind == kinds[name]]
            found[name] = same or [x for x in own if x.kind not in _CARRIED] or own
        return found

    def exact(self) -> Dict[str, List[BuilderLayer]]:
        """As ``work``, of those layers alone whose kind is our layer's."""
        kinds = {spec.name: spec.kind for spec in self.ours.values()}
        found = ((name, own) for name, own in self.work().items())
        return {name: own for name, own in found if all(x.kind == kinds[name] for x in own)}


def read_layers(network: Any) -> List[BuilderLayer]:
    """Reads an INetworkDefinition's layers."""
    found = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        inputs = [layer.get_input(n) for n in range(layer.num_inputs)]
        outputs = [layer.get_output(n) for n in range(layer.num_outputs)]
        found.append(
            BuilderLayer(
                index=index,
                name=layer.name,
                kind=layer.type.name,
                # 8.5 has no metadata
                nodes=tuple(_nodes(getattr(layer, "metadata", "") or "")),
                # an optional input that is left out is None
                inputs=tuple(tensor.name for tensor in inputs if tensor is not None),
                outputs=tuple(tensor.name for tensor in outputs if tensor is not None),
                layer=layer,
            )
        )
    return found


def map_layers(layers: Sequence[BuilderLayer], specs: Sequence[LayerSpec]) -> Mapped:
    """Finds our layer and the device of every builder layer."""
    mapped = Mapped(list(layers))
    by_node: Dict[str, List[LayerSpec]] = {}
    by_name: Dict[str, LayerSpec] = {}
    for spec in specs:
        for node in spec.nodes:
            by_node.setdefault(node, []).append(spec)
        by_name.setdefault(spec.name, spec)
        by_name.setdefault(spec.builder_name, spec)
    taken: Dict[str, int] = {}
    for layer in layers:
        candidates = _candidates(layer, by_node, by_name)
        if candidates:
            mapped.ours[layer.index] = _one_of(layer, candidates, taken)
    mapped.parts = _parts(mapped)
    mapped.device = {
        index: spec.device for own in (mapped.parts, mapped.ours) for index, spec in own.items()
    }
    _follow(mapped)
    mapped.unmapped = [layer.name for layer in layers if layer.index not in mapped.device]
    stood = {spec.name for spec in mapped.ours.values()}
    # a layer without nodes is one that the builder inserts itself, later
    mapped.lost = [spec.name for spec in specs if spec.nodes and spec.name not in stood]
    return mapped


def _candidates(
    layer: BuilderLayer, by_node: Dict[str, List[LayerSpec]], by_name: Dict[str, LayerSpec]
) -> List[LayerSpec]:
    if layer.name in by_node:
        return by_node[layer.name]
    if layer.name in by_name:
        return [by_name[layer.name]]
    found = [spec for node in layer.nodes for spec in by_node.get(node, ())]
    if found:
        return found
    return by_node.get(_SUFFIX.sub("", layer.name), [])


def _one_of(layer: BuilderLayer, specs: List[LayerSpec], taken: Dict[str, int]) -> LayerSpec:
    """Of several layers of ours of one node, the next one of the builder layer's kind."""
    if len(specs) == 1:
        return specs[0]
    same = [spec for spec in specs if spec.kind == layer.kind] or specs
    free = [spec for spec in same if not taken.get(spec.name)]
    found = (free or same)[0]
    if found.kind == layer.kind:
        taken[found.name] = taken.get(found.name, 0) + 1
    return found


def _parts(mapped: Mapped) -> Dict[int, LayerSpec]:
    """Our layers of the unnamed layers that compute, by the tensors inside of nodes."""
    known = dict(mapped.ours)
    unnamed = [x for x in mapped.layers if x.index not in known and x.kind not in _CARRIED]
    writer = {name: layer.index for layer in mapped.layers for name in layer.outputs}
    reader: Dict[str, int] = {}
    for layer in mapped.layers:
        for name in layer.inputs:
            reader.setdefault(name, layer.index)

    def take(layer: BuilderLayer, names: Iterable[str], other: Dict[str, int]) -> None:
        found = [other[n] for n in names if n.startswith(_INSIDE) and other.get(n) in known]
        if found and layer.index not in known:
            known[layer.index] = known[max(found)]

    for layer in unnamed:  # behind what is named
        take(layer, layer.inputs, writer)
    for layer in reversed(unnamed):  # before it, or before what was found behind it
        take(layer, layer.outputs, reader)
    return {layer.index: known[layer.index] for layer in unnamed if layer.index in known}


def _follow(mapped: Mapped) -> None:
    """Gives inserted layers the device of their readers, or else of those they read."""
    readers: Dict[str, List[int]] = {}
    writer: Dict[str, int] = {}
    for layer in mapped.layers:
        for name in layer.inputs:
            readers.setdefault(name, []).append(layer.index)
        for name in layer.outputs:
            writer[name] = layer.index
    known = -1
    # one round does for most: readers come later in the builder's order. What follows its writer
    # may have inserted layers of its own before it.
    while len(mapped.device) > known:
        known = len(mapped.device)
        for layer in reversed(mapped.layers):
            after = (index for name in layer.outputs for index in readers.get(name, ()))
            _take(mapped, layer, after)
        for layer in mapped.layers:
            _take(mapped, layer, (writer[name] for name in layer.inputs if name in writer))


def _take(mapped: Mapped, layer: BuilderLayer, others: Iterable[int]) -> None:
    if layer.index in mapped.device:
        return
    device: Optional[str] = next((mapped.device[i] for i in others if i in mapped.device), None)
    if device is not None:
        mapped.device[layer.index] = device


def _nodes(metadata: str) -> Iterable[str]:
    for part in _SEPARATORS.split(metadata):
        match = _METADATA.search(part)
        if match:
            yield match.group(1)
