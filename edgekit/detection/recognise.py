"""Recognises a network's head by its structure, whatever its nodes and tensors are called, and
proves it: edgekit's decoding of the raw maps must give what the network computes from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgekit.detection.query import recognise_query
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit_device.detection.detect import decode

#: Takes the model and the file's metadata (of Ultralytics: names, stride, task, kpt_shape).
Recogniser = Callable[[Model, Mapping[str, str]], Recognised | Unlike]
# in the order in which they are tried
_RECOGNISERS: Sequence[Recogniser] = (recognise_query,)
_SEEDS = (0, 1)
_TOLERANCE = 2e-5  # relative to the largest value; ONNX Runtime's sums have another order


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
    """Returns how edgekit's decoding differs from the network's own on random inputs; "" if equal.

    Args:
        model: The whole network.
        found: Its head.
    """
    names = [*found.head.outputs, *found.own.values()]
    runs = session(model, outputs=list(dict.fromkeys(names)))
    for seed in _SEEDS:
        random = np.random.default_rng(seed)
        feeds = {
            value.name: random.random(
                [one.dim_value for one in value.type.tensor_type.shape.dim], np.float32
            ).astype(model.graph.dtype(value.name))
            for value in model.proto.graph.input
        }
        values = dict(zip(dict.fromkeys(names), runs.run(None, feeds), strict=True))
        ours = decode(found.head, {name: values[name] for name in found.head.outputs})
        for name, tensor in found.own.items():
            theirs = values[tensor]
            if ours[name].shape != theirs.shape:
                return f"{tensor} is {theirs.shape}, edgekit's decoding {ours[name].shape}"
            error = np.abs(ours[name] - theirs)
            if not error.max() <= _TOLERANCE * max(1.0, float(np.abs(theirs).max())):
                at = tuple(map(int, np.unravel_index(int(error.argmax()), error.shape)))
                return (
                    f"{tensor}{list(at)} is {theirs[at]:g}, edgekit's decoding {ours[name][at]:g}"
                )
    return ""
