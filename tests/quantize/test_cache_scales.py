"""What follows from a calibration cache, and what is lacking: the same for verdicts and builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla.judge import judge
from edgekit.dla.precision import int8_operators
from edgekit.errors import DataError
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Layer, Model, Network
from edgekit.network.synthetic import synthetic_inputs
from edgekit.placement.segments import cut_segments
from edgekit.quantize.caches import CalibrationCache, scales_from_cache
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.quantize.missing_scales import find_missing_scales
from edgekit.reference import numerics as numerics_module
from edgekit.targets.loader import get
from tests.quantize.quantize_nets import branches, make, node
from tests.reference.toy_nets import place_all, plan_of
from tests.rewriting import real_nets
from tests.tries import tries

ORIN = get("jetson-agx-orin-64gb")


def cache(scales: Mapping[str, float]) -> CalibrationCache:
    return CalibrationCache(100300, "EntropyCalibration2", dict(scales))


def chain(*nodes: object, shape: tuple[int, ...] = (1, 4, 8, 8)) -> Network:
    weights = {
        "w": np.ones((4, 4, 1, 1), np.float32),
        "shape": np.array([1, 4, 64], np.int64),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "six": np.array(6, np.float32),
        "none": np.array(0, np.float32),
    }
    return make(nodes, weights, {"x": shape}, [nodes[-1].output[0]])[1]  # type: ignore[arg-type, attr-defined]


@pytest.mark.parametrize(
    "last",
    [
        node("MaxPool", "x", "y", kernel_shape=[2, 2]),
        node("Flatten", "x", "y"),
        node("Relu", "x", "y"),
        node("Pad", "x pads", "y"),
        node("Transpose", "x", "y", perm=[0, 2, 3, 1]),
        node("Reshape", "x shape", "y"),
    ],
    ids=lambda item: item.op_type,
)
def test_scales_follow_forward_and_backward(last: object) -> None:
    network = chain(node("Conv", "x w", "c"), _reading("c", last))
    assert scales_from_cache(cache({"x": 1.0, "c": 0.5}), network).scales.scales["y"] == 0.5
    back = scales_from_cache(cache({"x": 1.0, "y": 0.25}), network)
    assert back.scales.scales["c"] == 0.25
    assert back.inferred == {"c": "follows"}
    assert not back.lacks


def _reading(name: str, item: object) -> object:
    item.input[0] = name  # type: ignore[attr-defined]
    return item


def test_an_average_gives_its_input_no_scale() -> None:
    # values may be much larger than their average
    pool = node("AveragePool", "c", "y", kernel_shape=[2, 2])
    network = chain(node("Conv", "x w", "c"), pool)
    (lack,) = scales_from_cache(cache({"x": 1.0, "y": 0.5}), network).lacks
    assert (lack.tensor, lack.layers) == ("c", ("c", "y"))


def test_bounds_hold_whatever_is_read() -> None:
    gates = chain(
        node("Conv", "x w", "c"),
        node("Sigmoid", "c", "s"),
        node("Clip", "c none six", "k"),
        node("Mul", "s k", "y"),
    )
    found = scales_from_cache(cache({"x": 1.0, "c": 9.0, "y": 1.0}), gates).scales.scales
    assert found["s"] == pytest.approx(1 / 127)
    assert found["k"] == pytest.approx(6 / 127)


def test_readers_of_one_tensor_need_the_largest_of_their_ranges() -> None:
    network = chain(
        node("Conv", "x w", "c"),
        node("Relu", "c", "r"),
        node("MaxPool", "c", "m", kernel_shape=[1, 1]),
        node("Add", "r m", "y"),
    )
    known = {"x": 1.0, "r": 2.0, "m": 3.0, "y": 5.0}
    assert scales_from_cache(cache(known), network).scales.scales["c"] == 3.0
    del known["m"]
    # one reader's range is not known, and nothing follows from the other's
    assert [lack.tensor for lack in scales_from_cache(cache(known), network).lacks] == ["c", "m"]


def test_what_a_fused_kernel_keeps_needs_no_scale_until_its_end_lacks_one() -> None:
    network = chain(node("Conv", "x w", "c"), node("LeakyRelu", "c", "r"), node("Conv", "r w", "y"))
    whole = scales_from_cache(cache({"x": 1.0, "r": 1.0, "y": 1.0}), network)
    assert not whole.lacks
    assert "c" in whole.judged
    assert "c" not in whole.scales.scales
    (lack,) = scales_from_cache(cache({"x": 1.0, "y": 1.0}), network).lacks
    assert (lack.tensor, lack.layers) == ("r", ("c", "r", "y"))


def test_layers_without_int8_need_no_scales() -> None:
    network = chain(node("Conv", "x w", "c"), node("Softmax", "c", "y", axis=1))
    assert not scales_from_cache(cache({"x": 1.0, "c": 1.0}), network).lacks
    # the GPU writes floats for the softmax, a DLA does not
    assert find_missing_scales(network, {"x"}, on_dla=()).lacks == ()
    assert [lack.tensor for lack in find_missing_scales(network, {"x"}).lacks] == ["c"]


def test_the_translators_mark_of_a_fused_sum_is_no_range() -> None:
    network = chain(
        node("Conv", "x w", "c"),
        node("MaxPool", "x", "r", kernel_shape=[1, 1]),
        node("Add", "c r", "s"),
        node("Relu", "s", "y"),
    )
    reading = scales_from_cache(cache({"x": 2.0, "c": 1.0, "r": 2.0, "y": 4.0}), network)
    assert "c" not in reading.scales.scales
    assert not reading.lacks
    assert "fused" in reading.scales.warnings[0]


def test_other_names_are_counted() -> None:
    _, network = branches()
    names = {"(Unnamed Layer* 3) [Shuffle]_output": 0.0, "other": 1.0}
    reading = scales_from_cache(cache({"x": 1.0, **names}), network)
    assert reading.unknown == ("other",)
    assert reading.unnamed == ("(Unnamed Layer* 3) [Shuffle]_output",)
    with pytest.raises(DataError) as caught:
        scales_from_cache(cache(names), network, name="c.cache")
    assert caught.value.code == "cache.foreign"


NETS = [branches, real_nets.unet, real_nets.mobilenet_v3]


@pytest.fixture(scope="module", params=range(len(NETS)))
def calibrated(request: pytest.FixtureRequest) -> tuple[Model, Network, dict[str, float]]:
    made = NETS[request.param]()
    model = made[0] if isinstance(made, tuple) else made
    network = layers(model)
    scales = calibrate(model, network, synthetic_inputs(model, 1, 0), method="minmax")
    written = {out for item in model.proto.graph.node for out in item.output}
    written.update(value.name for value in model.proto.graph.input)
    return model, network, {n: s for n, s in scales.scales.items() if n in written}


@settings(max_examples=tries(25))
@given(data=st.data())
def test_verdict_and_build_agree_on_what_runs_in_int8(
    calibrated: tuple[Model, Network, dict[str, float]], data: st.DataObject
) -> None:
    model, network, scales = calibrated
    dropped = data.draw(st.sets(st.sampled_from(sorted(scales)), max_size=len(scales) // 2))
    able = {n for n, v in judge(network, ORIN).verdicts.items() if v.ok}
    remaining = {n: s for n, s in scales.items() if n not in dropped}
    reading = scales_from_cache(cache(remaining), network, on_dla=able)
    judgement = judge(network, ORIN, scales=reading.judged)
    fallen = {layer for lack in reading.lacks for layer in lack.layers}
    whole = judge(
        network, ORIN, scales=scales_from_cache(cache(scales), network, on_dla=able).judged
    )
    for layer in network.layers:
        if layer.name in fallen:
            assert judgement.precisions[layer.name] == "fp16"
        elif layer.op in int8_operators().every:
            assert judgement.precisions[layer.name] == whole.precisions[layer.name]
    numerics = _decided(model, network, judgement.precisions, able, reading)
    # the build finds every scale that the layers need which the verdict says run in INT8
    assert numerics.unscaled == {}


def _decided(
    model: Model, network: Network, precisions: Mapping[str, str], able: set[str], reading: object
) -> numerics_module.Numerics:
    sides = [layer.name in able for layer in network.layers]
    runs = [number for number, (_, run) in enumerate(groupby(sides)) for _ in run]
    devices = ["DLA0" if side else "GPU" for side, _ in groupby(sides)]
    precision: Callable[[Layer], str] = lambda layer: precisions[layer.name]  # noqa: E731
    placed = place_all(network, precision, runs.__getitem__, devices.__getitem__)
    plan = cut_segments(model, network, plan_of(placed))
    return numerics_module.decide(plan.graph, plan.variants[0], reading.scales)  # type: ignore[attr-defined]
