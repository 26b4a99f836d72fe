"""Layers that are alike get one verdict; what depends on their neighbours is asked of each."""

import pytest

from edgekit.dla.facts import LayerFacts, LayerGraph
from edgekit.dla.judge import judge
from edgekit.network.model import Layer, Network, Tensor
from edgekit.targets.loader import get
from tests.dla.one_layer import ORIN, convolution

SHAPE = (1, 64, 16, 16)
CONV = {key: value for key, value in convolution().items() if key not in {"inputs", "output"}}


def judged(*layers):
    """The verdicts on a chain of layers, given as name, kind and parameters."""
    made, source = [], "x"
    tensors = {"x": Tensor("x", SHAPE, "float32")}
    for name, kind, params in layers:
        tensors[name] = Tensor(name, SHAPE, "float32")
        made.append(Layer(name, kind, "", (name,), (name,), (source,), (name,), params))
        source = name
    net = Network("net", tuple(made), tensors, ("x",), (source,))
    return judge(net, get(ORIN), precision="fp16").verdicts


def test_equal_layers_have_equal_verdicts():
    wide = {**CONV, "kernel": (40, 40)}
    found = judged(*[(f"c{i}", "CONVOLUTION", wide if i % 2 else CONV) for i in range(6)])
    assert [v.ok for v in found.values()] == [True, False] * 3
    assert found["c1"].reasons == found["c5"].reasons != ()
    alone = judged(("c5", "CONVOLUTION", wide))
    assert found["c5"] == alone["c5"]


@pytest.mark.parametrize("numbers", [(1, 1.0), (1.0, 1)])
def test_numbers_are_reported_as_the_layer_has_them(numbers):
    layers = [
        (name, "SCALE", {"mode": "UNIFORM", "axis": number})
        for name, number in zip("ab", numbers, strict=True)
    ]
    found = judged(*layers)
    for name, kind, params in layers:
        assert found[name] == judged(("z", kind, params))["z"]


def test_looking_at_a_neighbour_is_noticed():
    layer = Layer("a", "CAST", "", ("a",), ("a",), ("x",), ("y",), {"to": "float32"})
    tensors = {name: Tensor(name, SHAPE, "float32") for name in "xy"}
    graph = LayerGraph(Network("net", (layer,), tensors, ("x",), ("y",)))
    assert LayerFacts(layer, graph, {})["channels"] == (64, 64)
    assert not graph.neighbours_read
    assert LayerFacts(layer, graph, {})["producer_kind"] == "graph input"
    assert graph.neighbours_read
