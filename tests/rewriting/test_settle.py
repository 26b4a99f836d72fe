"""What stays of a search: decided by the whole where layers tie, and proved as it stays."""

from types import SimpleNamespace

import pytest

from edgekit.rewriting.engine import acceptance
from tests.rewriting.made_up import Convolution, SmallPool, WholePool, WrongPool, run
from tests.rewriting.nets import assert_same, net, node, ops, weight


def heads(*names):
    """A dense layer for each name, none of which reads another."""
    return net(
        [node("Gemm", f"x m{i} b", f"y{i}", name, transB=1) for i, name in enumerate(names)],
        {"x": (1, 8)},
        [f"y{i}" for i in range(len(names))],
        {"b": weight(16), **{f"m{i}": weight(16, 8, seed=i) for i in range(len(names))}},
    )


def saving(**saved):
    """A cost of 1000 us that convolutions lower by name; no layer's own time says so."""

    def cost(network, judgement):
        there = {name for layer in network.layers if layer.op == "Conv" for name in layer.origin}
        us = 1000.0 - sum(saved.get(name, 0.0) for name in there)
        return SimpleNamespace(
            auto_us=us, gpu_only_us=5000.0, layer_us=dict.fromkeys(judgement.verdicts, 1.0)
        )

    return cost


def accepted(monkeypatch, model, cost, *toys):
    after, applied, notes = run(monkeypatch, model, *(toys or (Convolution(),)), cost=cost)
    assert notes == ()
    assert_same(model, after)
    return [item.anchor for item in applied]


def test_a_region_that_ties_is_retained_where_the_whole_gets_faster(monkeypatch):
    assert accepted(monkeypatch, heads("one"), saving(one=70.0)) == ["one"]
    assert accepted(monkeypatch, heads("one"), saving()) == []
    assert accepted(monkeypatch, heads("one"), saving(one=-70.0)) == []
    assert accepted(monkeypatch, heads("one"), None) == []


def test_of_a_few_that_tie_only_those_are_retained_that_the_whole_needs(monkeypatch):
    model = heads("one", "two", "three")
    assert accepted(monkeypatch, model, saving(two=70.0)) == ["two"]
    assert accepted(monkeypatch, model, saving(one=9.0, two=70.0, three=-20.0)) == ["one", "two"]


def test_many_that_tie_are_tried_out_at_once(monkeypatch):
    judged = []
    whole = acceptance.Judged

    def counted(*arguments):
        judged.append(1)
        return whole(*arguments)

    monkeypatch.setattr(acceptance, "Judged", counted)
    names = [f"n{i}" for i in range(12)]
    # all or none: looking at each one would take time for each
    assert accepted(monkeypatch, heads(*names), saving(n3=70.0)) == names
    assert accepted(monkeypatch, heads(*names), saving(n3=-70.0)) == []
    assert len(judged) < 12


def pooled(monkeypatch, bad):
    """A pool whose rewrite is another one when the convolution before it has been taken back."""

    class Fickle(WholePool):
        name = "fickle"

        def replace(self, graph, nodes, new):
            early = graph.node("fc").op == "Conv"
            (WholePool if early else bad).replace(self, graph, nodes, new)

    before = net(
        [
            node("Gemm", "z m b", "g", "fc", transB=1),
            node("GlobalAveragePool", "x", "y", "pool"),
        ],
        {"x": (1, 8, 7, 7), "z": (1, 8)},
        ["y", "g"],
        {"m": weight(16, 8), "b": weight(16)},
    )

    def dear(network, judgement):
        times = {layer.name: 9.0 * (layer.op == "Conv") for layer in network.layers}
        return SimpleNamespace(auto_us=sum(times.values()), gpu_only_us=99.0, layer_us=times)

    return before, *run(monkeypatch, before, Convolution(), Fickle(), cost=dear)


@pytest.mark.parametrize(
    ("bad", "said"), [(WrongPool, "seed 0"), (SmallPool, "MalformedError")], ids=["wrong", "small"]
)
def test_a_step_that_is_another_one_at_last_is_proved_again(monkeypatch, bad, said):
    before, after, applied, notes = pooled(monkeypatch, bad)
    note = next(note for note in notes if "report" in note)
    assert after is before
    assert applied == ()
    assert "rewrite fickle at pool" in note
    assert said in note
    assert "report" in note


class Padded(WholePool):
    def replace(self, graph, nodes, new):
        (at,) = nodes
        sides = list(graph.shape(at.inputs[0])[2:])
        new.node(
            "AveragePool", at.inputs, output=at.outputs[0], kernel_shape=sides, pads=[0, 0, 0, 0]
        )


def test_what_is_another_step_and_right_stays_with_its_new_proof(monkeypatch):
    before, after, applied, notes = pooled(monkeypatch, Padded)
    assert notes == ()
    assert [(item.rewrite, item.max_error_float64 < 1e-9) for item in applied] == [("fickle", True)]
    assert ops(after) == ["Gemm", "AveragePool"]
    assert "pads" in {item.name for item in after.proto.graph.node[1].attribute}
    assert_same(before, after)
