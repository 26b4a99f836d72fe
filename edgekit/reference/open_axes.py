"""The reference build of a range of shapes: a single engine for all shapes, in FP32."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from edgekit.network.model import Model
from edgekit.network.ranges import Profile, Sizes, sizes_at
from edgekit.reference.artefacts import Artefacts, EngineSegment
from edgekit.reference.build import reference_fingerprint
from edgekit.reference.weights import WeightStore


def build_open(model: Model, layers: Sequence[str]) -> Artefacts:
    """Returns a stripped engine that takes every shape; ONNX Runtime computes it in FP32.

    Args:
        model: The network with its open axes.
        layers: Names of its layers, for people.
    """
    data = model.proto.SerializeToString(deterministic=True)
    engine = hashlib.sha256(data).hexdigest()
    store = WeightStore(model)
    for name in model.weights:
        store.get(name, "none")
    graph = model.proto.graph
    inputs = tuple(value.name for value in graph.input)
    outputs = tuple(value.name for value in graph.output)
    segment = EngineSegment(0, "GPU", tuple(layers), inputs, outputs, engine)
    return Artefacts(
        backend="reference",
        lanes=((1.0, (segment,)),),
        engines={engine: data},
        weights=store.weights,
        values=store.values,
        fingerprint=reference_fingerprint(),
        inputs=inputs,
        outputs=outputs,
    )


def golden_shapes(profiles: Sequence[Profile], own: Sizes) -> list[Sizes]:
    """Returns the shapes at which a range is tested: each profile's best, smallest and largest.

    Args:
        profiles: The ranges.
        own: The shape of the engine's network, which comes first as an empty mapping.
    """
    found: list[Sizes] = [{}]
    for profile in profiles:
        for at in (sizes_at(profile, "opt"), sizes_at(profile, "min"), sizes_at(profile, "max")):
            sizes = {**own, **at}
            if sizes != own and sizes not in found:
                found.append(sizes)
    return found
