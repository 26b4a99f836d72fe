"""Recognises a network's head by its structure, whatever its nodes and tensors are called, and
proves it: edgekit's decoding of the raw maps must give what the network computes from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.detection.distance import recognise_distance
from edgekit.detection.recognised import Recognised, Recogniser, Unlike
from edgekit.detection.walk import region
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit_device.detection.detect import decode

# in the order in which they are tried
_RECOGNISERS: Sequence[Recogniser] = (recognise_distance,)
# of the raw maps' random values: spread scores, and exponentials that no other value drowns
_LARGEST = (3.0, 6.0)
# relative to the tensor's largest value: ONNX Runtime's sums have another order, and FP16's steps
# of 2**-10 add up
_TOLERANCE, _FP16_TOLERANCE = 2e-5, 4e-3


def recognise(model: Model, metadata: Mapping[str, str] | None = None) -> Recognised | Unlike:
    """Returns the head of a network, proved by running it; or the nearest one and what differs.

    Args:
        model: The whole network, with static shapes.
        metadata: The file's metadata.
    """
    unlike = []
    for recogniser in _RECOGNISERS:
        found = recogniser(model, metadata or {})
        if isinstance(found, Recognised):
            if differs := disagreement(model, found):
                found = Unlike(found.head.family, 1 << 16, differs)
            else:
                return found
        unlike.append(found)
    return max(unlike, key=lambda one: one.matched, default=Unlike("any", 0, "none is known"))


def disagreement(model: Model, found: Recognised) -> str:
    """Returns how edgekit's decoding differs from the network's own of random raw maps; "" if the
    two are equal, element by element.

    Args:
        model: The whole network.
        found: Its head.
    """
    graph = model.graph
    raw, own = found.head.outputs, dict.fromkeys(found.own.values())
    nodes: dict[str, None] = {}
    for tensor in own:
        way = region(graph, tensor, lambda node: set(raw).isdisjoint(node.outputs))
        if strange := [name for name in way.sources if name not in raw]:
            return f"{tensor} depends on {strange[0]}, which is no raw map"
        nodes |= dict.fromkeys(node.name for node in way.nodes)
    read = [name for name in raw if any(name in graph.node(node).reads() for node in nodes)]
    runs = session(model.cut(nodes, read, list(own)))
    for seed, largest in enumerate(_LARGEST):
        random = np.random.default_rng(seed)
        maps = {
            name: random.uniform(-largest, largest, graph.shape(name)).astype(graph.dtype(name))
            for name in raw
        }
        values = dict(zip(own, runs.run(None, {name: maps[name] for name in read}), strict=True))
        ours = decode(found.head, maps)
        for name, tensor in found.own.items():
            if differs := _difference(ours[name], values[tensor]):
                return f"{tensor}{differs}"
    return ""


def _difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    if ours.shape != theirs.shape:
        return f" is {list(theirs.shape)}, edgekit's decoding {list(ours.shape)}"
    error = np.abs(ours - theirs.astype(np.float32))
    least = _FP16_TOLERANCE if theirs.dtype == np.float16 else _TOLERANCE
    if error.max() <= least * np.abs(theirs).max():
        return ""
    at = tuple(map(int, np.unravel_index(int(error.argmax()), error.shape)))
    return f"{list(at)} is {theirs[at]:g}, edgekit's decoding {ours[at]:g}"
