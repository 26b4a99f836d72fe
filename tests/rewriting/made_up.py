"""Rewrites made up for tests of the engine, good ones and bad ones."""

from itertools import pairwise

from edgekit.rewriting import offers
from edgekit.rewriting import rewrite as rewrite_module
from edgekit.rewriting.engine import replay
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.nets import Toy, net, node, weight

ORIN = get("jetson-agx-orin-64gb")


class WholePool(Toy):
    """GlobalAveragePool -> AveragePool: what the DLA refuses becomes what it takes."""

    name = "whole-pool"
    operators = ("GlobalAveragePool",)

    def replace(self, graph, nodes, new):
        (at,) = nodes
        sides = list(graph.shape(at.inputs[0])[2:])
        new.node("AveragePool", at.inputs, output=at.outputs[0], kernel_shape=sides)


class WrongPool(WholePool):
    """A MaxPool is no mean."""

    name = "wrong-pool"

    def replace(self, graph, nodes, new):
        (at,) = nodes
        sides = list(graph.shape(at.inputs[0])[2:])
        new.node("MaxPool", at.inputs, output=at.outputs[0], kernel_shape=sides)


class SmallPool(WholePool):
    """Its output has another shape."""

    name = "small-pool"

    def replace(self, graph, nodes, new):
        (at,) = nodes
        new.node("AveragePool", at.inputs, output=at.outputs[0], kernel_shape=[2, 2])


class Crashing(WholePool):
    """A bug."""

    name = "crashing"

    def match(self, graph, at):
        raise ZeroDivisionError("a bug")


class Convolution(Toy):
    """Gemm -> Reshape, Conv 1x1, Reshape: changes no verdict by itself."""

    name = "convolution"
    operators = ("Gemm",)
    enabling = True

    def replace(self, graph, nodes, new):
        (at,) = nodes
        maps, depth = graph.shape(at.inputs[1])
        rows = graph.shape(at.inputs[0])[0]
        kernel = new.node("Reshape", [at.inputs[1], new.constant([maps, depth, 1, 1])])
        wide = new.node("Reshape", [at.inputs[0], new.constant([rows, depth, 1, 1])])
        result = new.node("Conv", [wide, kernel, at.inputs[2]], name=at.name)
        new.node("Reshape", [result, new.constant([rows, maps])], output=at.outputs[0])


class Sink(Toy):
    """Relu behind a Reshape -> the Reshape behind the Relu."""

    name = "sink"
    operators = ("Relu",)

    def match(self, graph, at):
        before = graph.producer(at.inputs[0])
        if before is None or before.op != "Reshape" or graph.rank(before.inputs[0]) != 4:
            return None
        return (at, before) if graph.only_reader(at.inputs[0]) else None

    def replace(self, graph, nodes, new):
        at, before = nodes
        positive = new.node("Relu", before.inputs[:1], name=at.name)
        new.node("Reshape", [positive, before.inputs[1]], output=at.outputs[0])


class StrangePool(WholePool):
    """The right one with a constant beside it that no record can derive."""

    name = "strange-pool"

    def replace(self, graph, nodes, new):
        new.node("Sin", [new.constant([0.5])])
        super().replace(graph, nodes, new)


class Spin(Toy):
    """Relu -> Relu, for ever."""

    name = "spin"
    operators = ("Relu",)
    enabling = True

    def replace(self, graph, nodes, new):
        (at,) = nodes
        new.node("Relu", at.inputs, output=at.outputs[0])


def run(monkeypatch, model, *toys, **options):
    """The engine with ``toys`` as all the rewrites that there are."""
    for module in (rewrite_module, replay, offers):
        monkeypatch.setattr(module, "REWRITES", toys)
    options = {"precision": "fp16", "target": ORIN, **options}
    return rewrite(model, options.pop("target"), **options)[:3]


def pooled(size=7, tail=()):
    """Conv, GlobalAveragePool, Relu."""
    return net(
        [
            node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
            node("GlobalAveragePool", "c", "p", "pool"),
            node("Relu", "p", "y"),
            *tail,
        ],
        {"x": (1, 8, size, size)},
        ["y"],
        {"w": weight(8, 8, 3, 3)},
    )


def classified(relus=0):
    """Conv, Reshape to 2-D, Gemm, and so many Relus."""
    names = ["g", *(f"r{i}" for i in range(relus))]
    return net(
        [
            node("Conv", "x w", "c"),
            node("Reshape", "c flat", "f"),
            node("Gemm", "f m b", "g", "fc", transB=1),
            *(node("Relu", a, b) for a, b in pairwise(names)),
        ],
        {"x": (1, 8, 3, 3)},
        [names[-1]],
        {"w": weight(8, 8, 3, 3), "flat": [1, 8], "m": weight(16, 8), "b": weight(16)},
    )
