"""Tensors that are not counted have the histograms that counting them would give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.quantize.calibration.calibrate import scales_from
from edgekit.quantize.calibration.histograms import ValueHistogram, derived_tensors
from edgekit.quantize.calibration.measure import float_tensors, measure
from tests.quantize.quantize_nets import make, node
from tests.tries import tries

F = np.float32
NODES = [
    node("Conv", "x w", "conv", pads=[1, 1, 1, 1]),
    node("Relu", "conv", "relu"),
    node("Neg", "conv", "neg"),
    node("Relu", "neg", "mirrored"),
    node("Concat", "conv mirrored relu", "joined", axis=1),
    node("Relu", "joined", "above"),
    node("Transpose", "above", "turned", perm=[0, 2, 3, 1]),
    node("Flatten", "turned", "y"),
    node("Concat", "conv conv", "stacked", axis=0),
    node("Transpose", "conv", "moved", perm=[1, 0, 2, 3]),
]


def net(batch: int):  # type: ignore[no-untyped-def]
    weights = {"w": np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(F)}
    shapes = {"x": [batch, 3, 16, 16]}
    return make(NODES, weights, shapes, ["y", "stacked", "moved"])


def same(one: ValueHistogram, other: ValueHistogram) -> bool:
    ends = [(h.low, h.high, h.top, h.total) for h in (one, other)]
    if one.counts is None or other.counts is None:
        return ends[0] == ends[1] and one.counts is other.counts
    return ends[0] == ends[1] and bool((one.counts == other.counts).all())


@settings(max_examples=tries(80))
@given(
    seed=st.integers(0, 10_000),
    shift=st.sampled_from([-1e4, -3.0, -0.4, 0.0, 0.4, 3.0]),
    exponent=st.integers(-60, 60),
)
def test_relu_and_concat_of_counts_are_those_of_the_values(
    seed: int, shift: float, exponent: int
) -> None:
    rng = np.random.default_rng(seed)
    values = ((rng.standard_normal((4, 200)) + shift) * 2.0**exponent).astype(F)
    values *= rng.integers(0, 2, (4, 1)).astype(F)  # whole parts of zeros
    values[:, rng.integers(0, 200, 30)] = 0
    others = (rng.standard_normal(100) * rng.integers(0, 9)).astype(F)
    apart, plain, relu, both = (ValueHistogram(sided=i == 0) for i in range(4))
    other = ValueHistogram()
    other.add(others)
    for part in values:
        apart.add(part)
        plain.add(part)
        relu.add(np.maximum(part, 0))
    both.add(np.append(values, others))
    assert same(apart.whole(), plain)
    assert same(apart.rectified().whole(), relu)
    assert same(apart.rectified().rectified().whole(), relu)
    assert same(apart.joined([other]).whole(), both)
    assert same(other.joined([apart]).whole(), both)
    assert same(other.joined([plain]), both)
    both.add(np.maximum(values, 0))
    assert same(apart.joined([other, apart.rectified()]).whole(), both)
    assert same(apart.whole(), plain)  # nothing was changed in place


def test_only_what_follows_exactly_is_not_counted() -> None:
    model, network = net(2)
    found = derived_tensors(model, network, float_tensors(model, network))
    assert {name: how.kind for name, how in found.items()} == {
        "relu": "relu",
        "mirrored": "relu",
        "joined": "all",
        "above": "relu",
        "turned": "same",
        "y": "same",
    }
    assert found["joined"].sources == ("conv", "mirrored", "relu")


class Filled(list):  # type: ignore[type-arg]
    """Runs of two rows of which only the first counts."""

    batch = 2

    def valid(self, _: int) -> int:
        return 1


@pytest.mark.parametrize("kind", [list, Filled])
def test_ranges_are_those_of_counting_everything(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, network = net(2)
    rng = np.random.default_rng(5)
    feeds = kind({"x": rng.standard_normal((2, 3, 16, 16)).astype(F)} for _ in range(9))
    found = measure(model, feeds, network=network)
    monkeypatch.setattr("edgekit.quantize.calibration.measure.derived_tensors", lambda *_: {})
    counted = measure(model, feeds, network=network)
    assert found.amax == counted.amax
    assert found.warnings == counted.warnings
    # tensors with enough values for the entropy method to clip, and to be counted a second time
    assert found.amax["entropy"]["y"] < found.amax["minmax"]["y"]


@pytest.mark.parametrize("op", ["Flatten", "Reshape"])
def test_what_no_layer_has_is_measured_too(op: str) -> None:
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((4, 2, 1, 1)).astype(F),
        "v": rng.standard_normal((64, 3)).astype(F),
    }
    if op == "Reshape":
        weights["shape"] = np.array([1, 64], np.int64)
    nodes = [
        node("Conv", "x w", "c"),
        node(op, "c" if op == "Flatten" else "c shape", "f"),
        node("MatMul", "f v", "y"),
    ]
    model, network = make(nodes, weights, {"x": [1, 2, 4, 4]}, ["y"])
    assert "f" not in network.tensors  # merged with the reshape before the product
    ranges = measure(model, [{"x": rng.standard_normal((1, 2, 4, 4)).astype(F)}])
    for amax in ranges.amax.values():
        assert list(amax) == ["x", "c", "y", "f"]
        assert amax["f"] == amax["c"]
    # but its scale is that of what it holds, whatever ties that
    assert "f" not in scales_from(network, ranges, "minmax").scales
