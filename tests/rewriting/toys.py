"""Rewrites made up for tests of records: each does one thing with weights that a record keeps."""

from edgekit.rewriting.graph import Applied, RewriteGraph, emit
from edgekit.rewriting.provenance.record import with_record
from tests.rewriting.nets import Toy, net, node, rewrite_step, weight


class Doubled(Toy):
    """Scale by s: (x * s) becomes (x * (s + s)) * 0.5; the anchor keeps its name."""

    name = "doubled"
    operators = ("Mul",)

    def match(self, graph, at):
        return (at,) if graph.constant(at.inputs[1]) else None

    def replace(self, graph, nodes, new):
        (at,) = nodes
        twice = new.node("Add", [at.inputs[1], at.inputs[1]], role="twice")
        half = new.constant(0.5)
        whole = new.node("Mul", [twice, new.constant(1.0)], role="whole")
        once = new.node("Mul", [at.inputs[0], whole], name=at.name, role="scaled")
        new.node("Mul", [once, half], output=at.outputs[0], name=f"{at.name}:half")


class Halves(Toy):
    """A product of weights of [2, n] as two by a Split with two outputs, and an inline factor."""

    name = "halves"
    operators = ("MatMul",)

    def replace(self, graph, nodes, new):
        (at,) = nodes
        columns = graph.shape(at.inputs[1])[1]
        sizes = new.constant([columns // 2, columns - columns // 2])
        left, right = new.many("Split", [at.inputs[1], sizes], ["", ""], axis=1)
        parts = [new.node("MatMul", [at.inputs[0], part], role="part") for part in (left, right)]
        new.node("Concat", parts, output=at.outputs[0], axis=-1)


def applied(step):
    return Applied(step.rewrite.name, "", step.anchor, (), (), 0.0, 0.0, 2, 0)


def taken(model, *pairs):
    """The model after (rewrite, anchor) pairs, with its record."""
    graph, done = RewriteGraph(model), []
    for item, anchor in pairs:
        step = rewrite_step(graph, item, graph.node(anchor))
        assert step is not None, anchor
        graph.apply(step)
        done.append(applied(step))
    return with_record(emit(graph), graph, done)


def scales(seed=0, channels=300):
    """Two scales, the first of which two nodes read."""
    nodes = [node("Mul", "x s", "a", "one"), node("Mul", "a s", "b", "two")]
    return net(
        [*nodes, node("Mul", "b t", "y", "three")],
        {"x": (1, channels, 2, 2)},
        ["y"],
        {"s": weight(1, channels, 1, 1, seed=seed), "t": weight(1, channels, 1, 1, seed=seed + 9)},
    )


def product(seed=0):
    return net(
        [node("MatMul", "x w", "p", "dense"), node("Add", "p b", "y", "bias")],
        {"x": (4, 8)},
        ["y"],
        {"w": weight(8, 6, seed=seed), "b": weight(6, seed=seed + 1)},
    )
