"""What `check` says of rewrites is what `rewrite` then does."""

from pathlib import Path

import onnx
import pytest

from edgekit.dla.judge import judge
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.placement.forecast import find_fixes
from edgekit.rewriting.offers import offers
from edgekit.targets.loader import get
from tests.rewriting.made_up import ORIN, Convolution, Sink, WholePool, classified, pooled, run

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize(
    ("model", "some"),
    [(pooled(7), True), (pooled(9), False), (classified(0), False), (classified(2), True)],
)
def test_a_rewrite_is_offered_where_it_would_be_applied(monkeypatch, model, some):
    _, applied, _ = run(monkeypatch, model, WholePool(), Convolution(), Sink())
    own = {item.name for item in model.proto.graph.node}
    offered = offers(model, ORIN, precision="fp16")
    done = {node: item.rewrite for item in applied for node in item.nodes if node in own}
    assert offered.keys() == done.keys()
    assert bool(offered) == some


@pytest.mark.whole
@pytest.mark.parametrize("name", ["light_bvlc_alexnet", "light_densenet121"])
def test_offers_for_some_nodes_are_those_of_the_whole_network(name):
    model = load(LIGHT / f"{name}.onnx")
    network = layers(model)
    found = find_fixes(network, judge(network, ORIN, precision="int8"), None)
    blamed = {layer for fix in found for layer in fix.layers}
    nodes = {node for layer in network.layers if layer.name in blamed for node in layer.origin}
    whole = offers(model, ORIN, precision="int8")
    few = offers(model, ORIN, precision="int8", nodes=nodes)
    assert nodes & few.keys()
    assert {n: few.get(n) for n in nodes} == {n: whole.get(n) for n in nodes}


def test_nothing_is_offered_without_a_dla():
    assert offers(pooled(), get("jetson-agx-thor"), precision="int8") == {}
    assert offers(pooled(), ORIN, precision="int8", tensorrt="10.9") == {}
    assert offers(pooled(), ORIN, precision="fp32") == {}
