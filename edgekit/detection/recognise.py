"""Recognises a network's head by its structure, independent of names of nodes and tensors, and
proves it: edgekit's decoding of the raw maps must give the network's values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.detection.anchor import recognise_anchor
from edgekit.detection.distance import recognise_distance
from edgekit.detection.point import recognise_point
from edgekit.detection.prior import recognise_prior
from edgekit.detection.query import recognise_query
from edgekit.detection.recognised import Recognised, Recogniser, Unlike
from edgekit.detection.text_line import recognise_text_line
from edgekit.detection.text_map import recognise_text_map
from edgekit.detection.walk import all_rows, region
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit_device.detection.detect import decode

# in the order in which they are tried
_RECOGNISERS: Sequence[Recogniser] = (
    recognise_distance,
    recognise_anchor,
    recognise_point,
    recognise_prior,
    recognise_query,
    recognise_text_map,
    recognise_text_line,
)
# range of the raw maps' random values: spread scores, and exponentials of similar size
_LARGEST = (3.0, 6.0)
# relative to the tensor's largest value: ONNX Runtime's sums have another order, and FP16's steps
# of 2**-10 add up
_TOLERANCE, _FP16_TOLERANCE = 2e-5, 4e-3


def recognise(model: Model, metadata: Mapping[str, str] | None = None) -> Recognised | Unlike:
    """Returns the head of a network, proved by running it; or the nearest head and the difference.

    Args:
        model: The whole network, with static shapes.
        metadata: The file's metadata.
    """
    unlike = []
    for recogniser in _RECOGNISERS:
        found = recogniser(model, metadata or {})
        if isinstance(found, Recognised):
            if differs := disagreement(model, found):
                # all parts match and only values differ, so this family is the nearest of all
                found = Unlike(found.head.family, 1 << 16, differs)
            else:
                return found
        unlike.append(found)
    return max(
        unlike, key=lambda nearest: nearest.matched, default=Unlike("any", 0, "none is known")
    )


def disagreement(model: Model, found: Recognised) -> str:
    """Returns the difference of edgekit's and the network's decoding of random raw maps; "" if they
    are equal, element by element.

    Args:
        model: The whole network.
        found: Its head.
    """
    graph = model.graph
    raw = found.head.outputs
    own = {
        name: (tensors,) if isinstance(tensors, str) else tensors
        for name, tensors in found.own.items()
        # an output that is a raw map needs no decoding
        if tensors not in raw
    }
    if not own:
        return ""
    wanted = list(dict.fromkeys(tensor for tensors in own.values() for tensor in tensors))
    fed = {*raw, *found.picked}
    nodes: dict[str, None] = {}
    for tensor in wanted:
        way = region(graph, tensor, lambda node: fed.isdisjoint(node.outputs))
        if strange := [name for name in way.sources if name not in fed]:
            return f"{tensor} depends on {strange[0]}, which is no raw map"
        nodes |= dict.fromkeys(node.name for node in way.nodes)
    reads = {name for node in nodes for name in graph.node(node).reads()}
    runs = session(model.cut(nodes, sorted(fed & reads), wanted))
    rows = {
        name: all_rows(graph, name, count) for name, count in found.picked.items() if name in reads
    }
    for seed, largest in enumerate(_LARGEST):
        random = np.random.default_rng(seed)
        maps = {
            name: random.uniform(-largest, largest, graph.shape(name)).astype(graph.dtype(name))
            for name in raw
        }
        feeds = rows | {name: value for name, value in maps.items() if name in reads}
        values = dict(zip(wanted, runs.run(None, feeds), strict=True))
        ours = decode(found.head, maps)
        for name, tensors in own.items():
            theirs = np.concatenate([values[tensor] for tensor in tensors], axis=-2)
            if differs := _difference(ours[name], theirs):
                return f"{tensors[0]}{differs}"
    return ""


def _difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    if ours.shape == (1, *theirs.shape):
        # a suppression inside decodes frame by frame
        ours = ours[0]
    if ours.shape != theirs.shape:
        return f" is {list(theirs.shape)}, edgekit's decoding {list(ours.shape)}"
    error = np.abs(ours - theirs.astype(np.float32))
    least = _FP16_TOLERANCE if theirs.dtype == np.float16 else _TOLERANCE
    if error.max() <= least * np.abs(theirs).max():
        return ""
    at = tuple(map(int, np.unravel_index(int(error.argmax()), error.shape)))
    return f"{list(at)} is {theirs[at]:g}, edgekit's decoding {ours[at]:g}"
