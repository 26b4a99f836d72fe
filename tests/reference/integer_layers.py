"""One layer through the reference backend and through the slow integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from edgekit.network.model import Model
from edgekit.placement.segments import cut_segments
from edgekit.quantize.scales import Scales
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import build_reference
from edgekit.reference.run import Runner
from tests.reference.integer_reference import Coded, Steps, layer, quantise, result_codes
from tests.reference.toy_nets import model_of, network_of, place_all, plan_of

F = np.float32


def built(model: Model, scales: Mapping[str, float], device: str = "DLA0") -> Artefacts:
    values = Scales({k: float(F(v)) for k, v in scales.items()}, "minmax", "by hand", "0")
    plan = plan_of(place_all(network_of(model), "int8", device=lambda _: device))
    return build_reference(cut_segments(model, network_of(model), plan), values)


def values_of(rng: np.random.Generator, shape: Sequence[int], scale: float) -> np.ndarray:
    """Values over the whole range and beyond, some of them half-way between two codes."""
    steps = rng.normal(scale=70, size=shape)
    halves = rng.random(shape) < 0.2
    steps = np.where(halves, np.floor(steps) + 0.5, steps)
    return (steps * np.float64(F(scale))).astype(F)


def found_codes(values: np.ndarray, scale: float) -> np.ndarray:
    """Reads codes back from a tensor that the build wrote, which is codes * scale."""
    codes = np.rint(values.astype(np.float64) / np.float64(F(scale))).astype(np.int64)
    assert np.array_equal(codes.astype(F) * F(scale), values)
    return codes


def same(
    node: onnx.NodeProto,
    shapes: Mapping[str, Sequence[int]],
    weights: Mapping[str, np.ndarray],
    scales: Mapping[str, float],
    seed: int,
    *,
    opset: int = 13,
    relu: bool = False,
    optimise: bool = True,
) -> np.ndarray:
    """Asserts that a layer (and a ReLU fused to it) gives the slow integers' codes; returns them.

    ``shapes`` are those of the activations; ``scales`` has theirs and that of "y".
    """
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    nodes = [copy]
    if relu:
        copy.output[0] = "before"
        nodes.append(onnx.helper.make_node("Relu", ["before"], ["y"], name="relu"))
        # never used: the ReLU is in the kernel
        scales = {**scales, "before": scales["y"]}
    model = model_of(nodes, weights, shapes, ["y"], opset)
    rng = np.random.default_rng(seed)
    feed = {name: values_of(rng, shape, scales[name]) for name, shape in shapes.items()}
    artefacts = built(model, scales)
    assert artefacts.notes == ()
    result = Runner(artefacts, optimise=optimise, threads=1).run(feed)["y"]
    found = found_codes(result, scales["y"])
    operands = [
        weights[name]
        if name in weights
        else Coded(quantise(feed[name], scales[name]), float(F(scales[name])))
        for name in node.input
        if name
    ]
    raw = layer(node, operands)
    if relu:
        positive = np.maximum(raw.values if isinstance(raw, Steps) else raw, 0)
        raw = Steps(positive, raw.scale) if isinstance(raw, Steps) else positive
    wanted = result_codes(raw, float(F(scales["y"])))
    assert found.shape == wanted.shape
    wrong = np.argwhere(found != wanted)
    assert not wrong.size, f"{len(wrong)} of {found.size}, such as {wrong[0]}"
    return found
