"""The engine: what helps is applied, what does not is left or taken back."""

from types import SimpleNamespace

import pytest

from edgekit.errors import UsageError
from edgekit.targets.loader import get
from tests.rewriting.made_up import (
    Convolution,
    Crashing,
    Sink,
    SmallPool,
    Spin,
    StrangePool,
    WholePool,
    WrongPool,
    classified,
    pooled,
    run,
)
from tests.rewriting.nets import assert_same, net, node, ops, weight


def test_what_changes_no_verdict_is_not_applied(monkeypatch):
    before = pooled(size=9)  # a window over 8 is refused as well
    after, applied, notes = run(monkeypatch, before, WholePool())
    assert after is before
    assert (applied, notes) == ((), ())


def test_a_way_that_leads_to_an_improvement_is_retained(monkeypatch):
    before = classified(relus=2)
    after, applied, _ = run(monkeypatch, before, Convolution(), Sink())
    assert [item.rewrite for item in applied] == ["convolution", "sink", "sink"]
    assert ops(after) == ["Conv", "Reshape", "Reshape", "Conv", "Relu", "Relu", "Reshape"]
    assert_same(before, after)


def test_branches_are_retained_or_taken_back_one_by_one(monkeypatch):
    before = net(
        [
            node("Gemm", "x m b", "g", "one", transB=1),
            node("Relu", "g", "y"),
            node("Gemm", "x m b", "z", "two", transB=1),
        ],
        {"x": (1, 8)},
        ["y", "z"],
        {"m": weight(16, 8), "b": weight(16)},
    )
    after, applied, _ = run(monkeypatch, before, Convolution(), Sink())
    assert [(item.rewrite, item.anchor) for item in applied] == [
        ("convolution", "one"),
        ("sink", "relu_y"),
    ]
    assert sorted(ops(after)) == ["Conv", "Gemm", "Relu", "Reshape", "Reshape"]
    assert {"m", "b"} < set(after.weights)  # the other branch reads the old weights
    assert_same(before, after)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (WrongPool, "seed 0"),
        (SmallPool, "MalformedError"),
        (Crashing, "ZeroDivisionError"),
        (StrangePool, "recipes have none"),
    ],
)
def test_a_bad_rewrite_is_reported_and_costs_nothing_else(monkeypatch, bad, said):
    before = pooled()
    after, applied, notes = run(monkeypatch, before, bad(), WholePool())
    assert [item.rewrite for item in applied] == ["whole-pool"]
    assert len(notes) == 1
    assert bad.name in notes[0]
    assert "at pool" in notes[0]
    assert said in notes[0]
    assert "report" in notes[0]
    assert_same(before, after)


def test_rewrites_without_end_are_stopped_and_reported(monkeypatch):
    before = pooled()
    after, applied, notes = run(monkeypatch, before, Spin())
    assert after is before
    assert applied == ()
    assert "report" in notes[-1]


class Times:
    """Predicts so many microseconds for each node of an operator."""

    def __init__(self, **times):
        self._times = times

    def __call__(self, network, judgement):
        layers = {
            layer.name: sum(self._times.get(layer.op, 0.0) for _ in layer.nodes)
            for layer in network.layers
        }
        us = sum(layers.values())
        return SimpleNamespace(auto_us=us, gpu_only_us=us + 100, layer_us=layers)


def test_what_makes_the_whole_slower_is_taken_back(monkeypatch):
    before = pooled()
    slow, fast = Times(AveragePool=9.0, GlobalAveragePool=1.0), Times(GlobalAveragePool=1.0)
    assert run(monkeypatch, before, WholePool(), cost=slow)[0] is before
    assert run(monkeypatch, before, WholePool(), cost=fast)[0] is not before


def test_of_two_that_are_too_dear_together_one_stays_and_the_other_is_reported(monkeypatch):
    before = net(
        [
            node("GlobalAveragePool", "x", "y", "pool"),
            node("Gemm", "z m b", "g", "fc", transB=1),
            node("Relu", "g", "r"),
        ],
        {"x": (1, 8, 7, 7), "z": (1, 8)},
        ["y", "r"],
        {"m": weight(16, 8), "b": weight(16)},
    )

    def cost(network, judgement):
        both = {"AveragePool", "Conv"} <= network.operators
        names = {layer.name: 1.0 for layer in network.layers}
        us = 90.0 if both else 10.0
        return SimpleNamespace(auto_us=us, gpu_only_us=us + 100, layer_us=names)

    after, applied, notes = run(monkeypatch, before, WholePool(), Convolution(), Sink(), cost=cost)
    assert len({"AveragePool", "Conv"} & set(ops(after))) == 1
    assert applied
    (note,) = notes
    assert "predicted time is longer" in note
    assert "10 to 90 µs" in note
    used = {item.rewrite for item in applied}
    assert not [name for name in used if name in note.split("(")[0]]


def test_what_is_only_faster_is_applied(monkeypatch):
    before = classified()
    _, applied, _ = run(monkeypatch, before, Convolution(), cost=Times(Gemm=5.0))
    assert [item.rewrite for item in applied] == ["convolution"]


@pytest.mark.parametrize(
    "options",
    [
        {"target": get("jetson-agx-thor")},
        {"target": get("jetson-orin-nano-8gb")},
        {"tensorrt": "10.9"},
        {"precision": "fp32"},
    ],
)
def test_without_a_dla_nothing_is_rewritten(monkeypatch, options):
    before = pooled()
    after, applied, _ = run(monkeypatch, before, WholePool(), **options)
    assert after is before
    assert applied == ()


def test_rewrites_are_chosen_by_name(monkeypatch):
    def names(**options):
        return [item.rewrite for item in run(monkeypatch, pooled(), WholePool(), **options)[1]]

    assert names(enable=["whole-pool"]) == names() == ["whole-pool"]
    assert names(enable="none") == names(enable=[]) == names(disable=["whole-pool"]) == []
    with pytest.raises(UsageError) as caught:
        names(disable=["hole-pool"])
    assert "whole-pool" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "name"),
    [("enable", "lstm-unroll"), ("disable", "cumsum"), ("allow_approx", "approx-mish")],
)
def test_a_name_that_went_is_to_be_removed(monkeypatch, key, name):
    with pytest.raises(UsageError) as caught:
        run(monkeypatch, pooled(), WholePool(), **{key: [name]})
    assert f"'{name}' any more" in caught.value.message
    assert caught.value.hint.startswith(f"remove '{name}'")
    assert caught.value.where == f"rewrite.{key}"


class Approximate(WrongPool):
    name = "approx-pool"
    approximate = True


def test_an_approximate_rewrite_needs_its_name_to_be_allowed(monkeypatch):
    toy = Approximate()
    assert run(monkeypatch, pooled(), toy)[1] == ()
    _, applied, _ = run(monkeypatch, pooled(), toy, allow_approx=["approx-pool"])
    assert applied[0].max_error > 1e-2
    assert applied[0].max_error_float64 is None
    for options in ({"enable": ["approx-pool"]}, {"allow_approx": ["approx-pol"]}):
        with pytest.raises(UsageError) as caught:
            run(monkeypatch, pooled(), toy, **options)
        assert "approx-pool" in caught.value.hint
