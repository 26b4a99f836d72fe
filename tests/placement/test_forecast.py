"""The forecast of `check`: equal to a plan's baselines, and what a mended rule is worth."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla.judge import judge
from edgekit.dla.loadables import find_candidates
from edgekit.dla.verdicts import Judgement
from edgekit.network.loading.load import load
from edgekit.network.lowering import layers as layers_module
from edgekit.network.model import Layer, Model, Network, Tensor
from edgekit.placement.forecast import (
    automatic_transitions,
    find_fixes,
    forecast,
    make_timer,
)
from edgekit.placement.placing import place
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.pipeline.nets import small_net
from tests.tries import tries

ORIN = "jetson-agx-orin-64gb"
BOARDS = [ORIN, "jetson-xavier-nx", "jetson-agx-thor"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("net") / "small.onnx"
    small_net(path)
    return load(path)


@pytest.fixture(scope="module")
def small(model: Model) -> Network:
    return layers_module.layers(model)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("precision", ["int8", "fp16", "fp32"])
def test_it_says_what_the_baselines_of_a_plan_say(
    small: Network, board: str, precision: str
) -> None:
    target = get(board)
    verdicts = judge(small, target, precision=precision)
    reported = forecast(small, verdicts, target)
    assert reported is not None
    baselines = place(small, verdicts, target, precision=precision).baselines
    alone, auto = baselines["gpu_only"], baselines["tensorrt_auto"]
    assert alone is not None
    assert reported.gpu_only_us == pytest.approx(alone.latency_us, abs=1e-5)
    # without a DLA, or in FP32, the automatic placement is the GPU's
    expected = alone if auto is None else auto
    assert reported.auto_us == pytest.approx(expected.latency_us, abs=1e-5)
    assert reported.dla_us == pytest.approx(reported.auto_us - expected.gpu_us, abs=1e-5)
    assert set(reported.layer_us) == {layer.name for layer in small.layers}
    assert sum(reported.layer_us.values()) <= reported.auto_us + 1e-5  # each is rounded


def test_power_modes_and_boards_without_cost_data(small: Network) -> None:
    target = get(ORIN)
    verdicts = judge(small, target)
    fast, slow = (
        forecast(small, verdicts, target),
        forecast(small, verdicts, target, power_mode="15W"),
    )
    assert fast is not None
    assert slow is not None
    assert slow.auto_us > fast.auto_us
    assert slow.clock == "predicted"
    strange = replace(target, gpu=replace(target.gpu, arch="hopper"))
    assert forecast(small, verdicts, strange) is None
    # without times, fixes still say what becomes of the loadables
    (first, *_) = find_fixes(small, verdicts, None)
    assert first.gain_us is None
    assert first.dla_layers > sum(place == "DLA" for place in verdicts.placed.values())


def test_a_fix_says_what_the_rewrite_then_does(model: Model, small: Network) -> None:
    target = get(ORIN)
    verdicts = judge(small, target)
    clock = make_timer(small, verdicts, target)
    found = {fix.rules: fix for fix in find_fixes(small, verdicts, clock)}
    fix = next(f for rules, f in found.items() if rules[0].startswith("reduce."))
    mended, applied, *_ = rewrite(model, target, precision="int8", enable=["global-average-pool"])
    assert applied
    after = layers_module.layers(mended)
    judged = judge(after, target)
    reported = forecast(after, judged, target)
    assert reported is not None
    assert fix.loadables == sum(group.retained for group in judged.candidates)
    assert fix.dla_layers == sum(place == "DLA" for place in judged.placed.values())
    # an average pool costs what the reduction was taken to cost, within a tenth
    assert fix.auto_us == pytest.approx(reported.auto_us, rel=0.1)
    now = forecast(small, verdicts, target)
    assert now is not None
    # it is faster than the automatic placement as it is, and still no rival of the GPU alone
    assert now.gpu_only_us < (fix.auto_us or 0) < now.auto_us
    assert (fix.gain_us, fix.offer) == (None, "legality")


def test_fixes_are_ordered_and_leave_out_what_nobody_can_mend(small: Network) -> None:
    target = get(ORIN)
    verdicts = judge(small, target)
    found = find_fixes(small, verdicts, make_timer(small, verdicts, target))
    gains = [fix.gain_us or 0 for fix in found]
    assert gains == sorted(gains, reverse=True)
    blamed = [name for fix in found for name in fix.layers]
    refused = [name for name, verdict in verdicts.verdicts.items() if not verdict.ok]
    assert sorted(blamed) == sorted(refused)
    assert find_fixes(small, judge(small, target, precision="fp32"), None) == ()
    assert find_fixes(small, judge(small, get("jetson-agx-thor")), None) == ()


def graph(edges: list[tuple[int, int]], count: int) -> Network:
    layers = [
        Layer(
            f"l{i}",
            "SCALE",
            "Mul",
            (f"l{i}",),
            (f"l{i}",),
            ("x", *(f"t{a}" for a, b in edges if b == i)),
            (f"t{i}",),
        )
        for i in range(count)
    ]
    names = ["x", *(f"t{i}" for i in range(count))]
    tensors = {name: Tensor(name, (1, 8, 4, 4), "float32") for name in names}
    return Network("g", tuple(layers), tensors, ("x",), (f"t{count - 1}",))


@st.composite
def placements(draw: st.DrawFn) -> tuple[Network, Judgement, list[tuple[int, int]]]:
    count = draw(st.integers(1, 6))
    pairs = list(itertools.combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    net = graph(edges, count)
    ok = {f"l{i}": draw(st.booleans()) for i in range(count)}
    groups = find_candidates(net, ok, draw(st.integers(0, 3)))
    on_dla = {name for group in groups if group.retained for name in group.layers}
    placed = {name: "DLA" if name in on_dla else "GPU" for name in ok}
    return net, Judgement("t", "int8", "10.3", {}, groups, placed), edges


@given(placements())
@settings(max_examples=tries(150))
def test_transitions_are_the_fewest_of_all_orders(
    case: tuple[Network, Judgement, list[tuple[int, int]]],
) -> None:
    net, verdicts, edges = case
    retained = [group.layers for group in verdicts.candidates if group.retained]
    alone = [(name,) for name, place in verdicts.placed.items() if place == "GPU"]
    pieces = [*retained, *alone]
    piece_of = {name: i for i, piece in enumerate(pieces) for name in piece}
    before = {(piece_of[f"l{a}"], piece_of[f"l{b}"]) for a, b in edges}
    best = min(
        sum((a < len(retained)) != (b < len(retained)) for a, b in itertools.pairwise(order))
        for order in itertools.permutations(range(len(pieces)))
        if all(a == b or order.index(a) < order.index(b) for a, b in before)
    )
    assert automatic_transitions(net, verdicts) == best


def test_what_no_fix_brings_to_the_dla_is_no_fix() -> None:
    net = graph([(0, 1), (1, 2)], 3)
    target = get(ORIN)
    # a product of two activations: the rule's advice is to leave it on the GPU
    product = replace(net.layers[1], kind="MATRIX_MULTIPLY", op="MatMul", inputs=("t0", "t0"))
    net = replace(net, layers=(net.layers[0], product, net.layers[2]))
    verdicts = judge(net, target)
    assert not verdicts.verdicts["l1"].ok
    assert all("l1" not in fix.layers for fix in find_fixes(net, verdicts, None))


def test_layers_without_scales_are_taken_to_run_in_fp16(small: Network) -> None:
    target = get(ORIN)
    scales = dict.fromkeys(small.tensors, 0.1)
    whole = forecast(small, judge(small, target, scales=scales), target)
    every = forecast(small, judge(small, target), target)
    assert whole == every
    (conv,) = (layer for layer in small.layers if layer.name == "conv2")
    del scales[conv.outputs[0]]
    part = forecast(small, judge(small, target, scales=scales), target)
    assert part is not None
    assert every is not None
    # the DLA of Orin is far slower in FP16
    assert part.layer_us["conv2"] > every.layer_us["conv2"]


def test_a_fix_does_not_count_a_loadable_that_memory_refuses() -> None:
    """Mending "b" joins "a" to "c": two tensors of 448 MiB would be inside one loadable."""
    shape = (1, 32, 3584, 4096)
    tensors = {name: Tensor(name, shape, "float32") for name in "xabc"}
    function = {"a": "RELU", "b": "GELU_ERF", "c": "RELU"}
    layers = tuple(
        Layer(out, "ACTIVATION", "", (out,), (), (source,), (out,), {"function": function[out]})
        for source, out in ("xa", "ab", "bc")
    )
    net = Network("n", layers, tensors, ("x",), ("c",))
    board = get(ORIN)
    judged = judge(net, board)
    assert [group.layers for group in judged.candidates if group.retained] == [("a",), ("c",)]
    found = find_fixes(net, judged, make_timer(net, judged, board))
    assert [(fix.layers, fix.candidates, fix.loadables) for fix in found] == [(("b",), 1, 0)]
