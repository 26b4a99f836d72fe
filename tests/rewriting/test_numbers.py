"""Numbers that FP16 cannot hold, or that are none, are refused, and only bugs are reported."""

import numpy as np
import pytest

from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.rewrite import rewrite
from edgekit.rewriting.step import in_half, step_at
from tests.rewriting.made_up import ORIN, Toy, WholePool, pooled, run
from tests.rewriting.nets import assert_same, net, node, ops, weight


class Times(Toy):
    """Relu -> products with numbers, so that the result is as it was."""

    operators = ("Relu", "Mul")

    def __init__(self, *factors, recipe=False):
        self.factors, self.recipe = factors, recipe

    def replace(self, graph, nodes, new):
        (at,) = nodes
        current = new.node("Relu", at.inputs[:1])
        for index, factor in enumerate(self.factors):
            last = at.outputs[0] if index == len(self.factors) - 1 else ""
            number = new.constant(factor)
            if self.recipe:
                number = new.node("Neg", [number])
            current = new.node("Mul", [current, number], output=last)


def step(toy, model):
    graph = RewriteGraph(model)
    return step_at(graph, toy, next(at for at in graph.nodes() if at.op in toy.operators))


def relu():
    return net([node("Relu", "x", "y")], {"x": (1, 2, 3, 3)}, ["y"])


@pytest.mark.parametrize("number", [65505.0, 1e9, np.inf, 6.1e-5, -6e-8, np.nan])
def test_a_step_with_numbers_beyond_fp16_is_none(number):
    assert not in_half(number)
    assert step(Times(number), relu()) is None
    assert step(Times([1.0, number, 0.0]), relu()) is None
    # what recipes make is not judged: it would depend on weights
    assert step(Times(number, recipe=True), relu()) is not None


@pytest.mark.parametrize("number", [0.0, -0.0, 65504.0, -1.0, 2.0**-14, 1 / 3])
def test_a_step_with_normal_numbers_is_one(number):
    assert in_half(number)
    assert step(Times(number), relu()) is not None


def test_numbers_of_the_replaced_nodes_may_stay():
    model = net([node("Mul", "x e", "y")], {"x": (1, 2, 3, 3)}, ["y"], {"e": np.float32(1e-6)})
    assert step(Times(-1e-6), model) is not None
    assert step(Times(1.1e-6), model) is None


class Sums(Toy):
    """Relu -> a convolution of made-up weights."""

    operators = ("Relu",)

    def __init__(self, *weights):
        self.weights = weights

    def replace(self, graph, nodes, new):
        (at,) = nodes
        kernel = np.reshape(np.float64(self.weights), (2, 1, 1, 1))
        new.node("Conv", [at.inputs[0], new.constant(kernel)], output=at.outputs[0], group=2)


def test_small_weights_are_lost_only_next_to_small_ones():
    assert step(Sums(1.0, 1e-6), relu()) is not None
    assert step(Sums(1e-6, 1e-6), relu()) is None
    assert step(Sums(1e6, 1.0), relu()) is None


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("high", [1e-5, 6e-8])
def test_a_network_with_a_tiny_clip_stays_as_it_is(kind, high):
    elem = 10 if kind is np.float16 else 1
    model = net(
        [node("Conv", "x w", "c"), node("Clip", "c lo hi", "d"), node("Conv", "d w", "y")],
        {"x": ((1, 8, 6, 6), elem)},
        {"y": elem},
        {"w": weight(8, 8, 3, 3).astype(kind), "lo": kind(0), "hi": kind(high)},
    )
    after, applied, notes, *_ = rewrite(model, ORIN, precision="fp16")
    assert after is model
    assert (applied, notes) == ((), ())


class Nothing(WholePool):
    """0 / 0."""

    name = "approx-nothing"
    approximate = True

    def replace(self, graph, nodes, new):
        (at,) = nodes
        pool = new.node("AveragePool", at.inputs, kernel_shape=[7, 7])
        none = new.node("Mul", [pool, new.constant(0.0)])
        new.node("Div", [none, none], output=at.outputs[0])


def test_an_approximation_that_is_no_number_is_reported(monkeypatch):
    before = pooled()
    toys = Nothing(), WholePool()
    after, applied, notes = run(
        monkeypatch, before, *toys, allow_approx=["approx-nothing"], precision="int8"
    )
    assert [item.rewrite for item in applied] == ["whole-pool"]
    assert len(notes) == 1
    assert "approx-nothing" in notes[0]
    assert_same(before, after)


class Bounded(Toy):
    """max(x, b) as max(x - b, 0) + b, which is no number for an infinite bound."""

    operators = ("Max",)

    def replace(self, graph, nodes, new):
        (at,) = nodes
        x, bound = at.inputs
        above = new.node("Relu", [new.node("Sub", [x, bound])])
        new.node("Add", [above, new.node("Neg", [new.node("Neg", [bound])])], output=at.outputs[0])


@pytest.mark.parametrize(
    ("bound", "ops_left"), [(-1.0, ["Conv", "Sub", "Relu"]), (-np.inf, ["Conv", "Max"])]
)
def test_what_only_infinite_constants_prevent_is_no_bug(monkeypatch, bound, ops_left):
    bounds = np.float32([bound, *range(7)]).reshape(8, 1, 1)
    model = net(
        [node("Conv", "x w", "c"), node("Max", "c b", "y")],
        {"x": (1, 8, 5, 5)},
        ["y"],
        {"w": weight(8, 8, 3, 3), "b": bounds},
    )
    after, _, notes = run(monkeypatch, model, Bounded())
    assert ops(after)[: len(ops_left)] == ops_left
    assert notes == ()
