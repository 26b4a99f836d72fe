"""One pass over the inputs gives what a build for each kernel gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgekit.errors import DataError
from edgekit.network.model import Model, Network
from edgekit.placement.plan import Plan
from edgekit.placement.segments import cut_segments
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.quantize.scales import Scales
from edgekit.reference import sensitivity as running
from edgekit.reference.accuracy import accuracy
from edgekit.reference.build import build_reference
from edgekit.reference.sensitivity import Sensitivity, analyse
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of

RANDOM = np.random.default_rng(0)


def weight(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))).astype(np.float32)


def residual(batch: int = 1) -> tuple[Model, Network, Plan]:
    """A stem, two branches that are concatenated, a sum around a convolution, and a classifier."""
    weights = {
        "w0": weight(8, 3, 3, 3),
        "w1": weight(4, 8, 1, 1),
        "w2": weight(12, 8, 3, 3),
        "w3": weight(16, 16, 3, 3),
        "b3": weight(16, 1).reshape(16),
        "w4": weight(10, 16),
        "shape": np.array([batch, 16], np.int64),
    }
    nodes = [
        node("Conv", "x w0", "stem", pads=[1, 1, 1, 1]),
        node("Relu", "stem", "r0"),
        node("Conv", "r0 w1", "left"),
        node("Conv", "r0 w2", "right", pads=[1, 1, 1, 1]),
        node("Concat", "left right", "joined", axis=1),
        node("Conv", "joined w3 b3", "inner", pads=[1, 1, 1, 1]),
        node("Add", "inner joined", "sum"),
        node("Relu", "sum", "r1"),
        node("Sigmoid", "r1", "gate"),
        node("GlobalAveragePool", "gate", "pooled"),
        node("Reshape", "pooled shape", "flat"),
        node("Gemm", "flat w4", "y", transB=1),
    ]
    return on_dla(nodes, weights, [batch, 3, 8, 8], ["y"])


def on_dla(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    shape: Sequence[int],
    outputs: Sequence[str],
) -> tuple[Model, Network, Plan]:
    model = model_of(nodes, weights, {"x": shape}, outputs)
    network = network_of(model)
    # on a DLA a kernel writes INT8 whoever reads it, also beside others in FP32
    return model, network, plan_of(place_all(network, "int8", device=lambda _: "DLA0"))


def inputs_of(model: Model, count: int = 3) -> list[dict[str, np.ndarray]]:
    shape = [d.dim_value for d in model.proto.graph.input[0].type.tensor_type.shape.dim]
    random = np.random.default_rng(1)
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def measured(net: tuple[Model, Network, Plan], **options: int) -> tuple[Sensitivity, Scales, list]:
    model, network, plan = net
    data = inputs_of(model)
    scales = calibrate(model, network, data, method="minmax")
    return analyse(cut_segments(model, network, plan), scales, data, **options), scales, data


def alone(plan: Plan, layers: Sequence[str]) -> Plan:
    """The plan with these layers in INT8 and all others in FP32."""
    placed = tuple(
        replace(layer, precision="int8" if layer.name in layers else "fp32")
        for layer in plan.layers
    )
    return replace(plan, layers=placed, plans=tuple(replace(s, layers=placed) for s in plan.plans))


@pytest.mark.parametrize("batch", [1, 2])
def test_it_is_what_a_whole_build_of_each_kernel_gives(batch: int) -> None:
    net = residual(batch)
    model, network, plan = net
    found, scales, data = measured(net)
    assert {item.name for item in found.impacts} == {
        "stem + r0",
        "left",
        "right",
        "joined",
        "inner + sum + r1",
        "pooled",
        "flat",
        "y",
    }
    compared = 0
    for item in found.impacts:
        if item.name in ("joined", "flat"):
            continue  # what only moves values follows its neighbours, which are FP32 in that build
        built = build_reference(cut_segments(model, network, alone(plan, item.layers)), scales)
        naive = accuracy(model, built, data)
        assert item.snr_db == pytest.approx(naive.snr_db, abs=0.01)
        assert item.cosine == pytest.approx(naive.cosine, abs=1e-7)
        assert item.max_abs == pytest.approx(naive.max_abs, rel=1e-3)
        assert item.top1_agreement == naive.top1_agreement
        compared += 1
    assert compared == 6


def test_the_worst_is_first_and_the_ends_are_reported() -> None:
    found, _, _ = measured(residual())
    ratios = [item.snr_db for item in found.impacts]
    assert None not in ratios
    assert ratios == sorted(ratios)  # type: ignore[type-var]
    assert {item.name: item.place for item in found.impacts if item.place} == {
        "stem + r0": ("first",),
        "y": ("last",),
    }
    assert set(found.floats) == {"gate"}
    assert "no INT8 kernel" in found.floats["gate"]


def test_little_memory_gives_the_same_in_more_passes() -> None:
    net = residual()
    whole, _, _ = measured(net)
    progress: list[tuple[int, int]] = []
    model, network, plan = net
    data = inputs_of(model)
    scales = calibrate(model, network, data, method="minmax")
    few = analyse(
        cut_segments(model, network, plan),
        scales,
        data,
        memory=1,
        progress=lambda a, b: progress.append((a, b)),
    )
    assert progress[-1][0] == progress[-1][1]
    assert progress == sorted(set(progress)), "it never goes back"
    kernels = len(whole.impacts) + len(whole.floats)
    assert len(progress) > 3 * kernels, "several passes for each of the three inputs"
    for one, other in zip(whole.impacts, few.impacts, strict=True):
        assert one.layers == other.layers
        assert one.snr_db == pytest.approx(other.snr_db, abs=1e-3)


def test_a_variant_runs_in_no_kernel_that_its_own_does_not_reach(monkeypatch) -> None:
    rows: dict[tuple[str, ...], set[int]] = {}
    run = running.KernelRun.rows

    def counted(self, feed, count, *rest):
        rows.setdefault(self.kernel.layers, set()).add(count)
        return run(self, feed, count, *rest)

    monkeypatch.setattr(running.KernelRun, "rows", counted)
    measured(residual())
    # FP32, and each INT8 kernel before it on the way: branches do not meet before the Concat
    assert rows[("stem", "r0")] == {1}
    assert rows[("left",)] == rows[("right",)] == {2}
    assert rows[("joined",)] == {4}
    assert rows[("inner", "sum", "r1")] == {5}
    assert rows[("gate",)] == {6}


def test_a_layer_that_mixes_the_batch_is_not_stacked() -> None:
    """Rows of other variants must not enter a mean over the batch."""
    nodes = [
        node("Conv", "x w", "a"),
        node("ReduceMean", "a", "mean", axes=[0], keepdims=1),
        node("Sub", "a mean", "centred"),
        node("Conv", "centred v", "b"),
        node("Softmax", "b", "y", axis=0),
    ]
    net = on_dla(nodes, {"w": weight(4, 3, 1, 1), "v": weight(5, 4, 1, 1)}, [2, 3, 4, 4], ["y"])
    found, scales, data = measured(net)
    model, network, plan = net
    for item in found.impacts:
        built = build_reference(cut_segments(model, network, alone(plan, item.layers)), scales)
        assert item.snr_db == pytest.approx(accuracy(model, built, data).snr_db, abs=0.01)


def test_what_does_not_reach_an_output_costs_nothing() -> None:
    """All that is negative is cut off: no rounding of it gets through."""
    nodes = [
        node("Conv", "x w", "a"),
        node("Relu", "a", "positive"),
        node("Conv", "positive v", "b"),
        node("Relu", "b", "nothing"),
        node("Conv", "x u", "c"),
        node("Add", "nothing c", "y"),
    ]
    weights = {"w": weight(4, 3, 1, 1), "v": -abs(weight(4, 4, 1, 1)), "u": weight(4, 3, 1, 1)}
    found, _, _ = measured(on_dla(nodes, weights, [1, 3, 4, 4], ["y"]))
    exact = {item.name for item in found.impacts if item.snr_db is None}
    assert "a + positive" in exact
    assert all(item.snr_db is None for item in found.impacts[-len(exact) :]), "exact comes last"


def test_no_inputs_and_inputs_that_do_not_fit_are_refused() -> None:
    model, network, plan = residual()
    scales = calibrate(model, network, inputs_of(model))
    with pytest.raises(DataError, match="no data"):
        analyse(cut_segments(model, network, plan), scales, [])
    with pytest.raises(DataError, match="shape"):
        analyse(
            cut_segments(model, network, plan), scales, [{"x": np.zeros((1, 3, 4, 4), np.float32)}]
        )
    bad = np.full((1, 3, 8, 8), np.inf, np.float32)
    with pytest.raises(DataError, match="NaN or infinity in 'y'"):
        analyse(cut_segments(model, network, plan), scales, [{"x": bad}])
