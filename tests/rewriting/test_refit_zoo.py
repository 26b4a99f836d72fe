"""Every network of the zoo, rewritten: another model's weights give what rewriting it gives."""

import numpy as np
import pytest

from edgekit.network.loading.load import canonical
from edgekit.rewriting.engine.opset import RAISED, raise_opset
from edgekit.rewriting.engine.replay import steps_again
from edgekit.rewriting.graph import RewriteGraph, emit
from edgekit.rewriting.provenance.other_weights import reweigh
from edgekit.rewriting.provenance.record import read_record, with_record
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting import real_nets, toys
from tests.rewriting.zoos import ZOO

ORIN = get("jetson-agx-orin-64gb")


def other_values(model):
    """The same network with other weights."""
    values = {
        name: np.asarray(value * 1.5 + 0.25, value.dtype) if value.dtype.kind == "f" else value
        for name, value in model.weights.items()
    }
    return canonical(model.proto, None, weights=values)


def refits(before):
    """Compares a refit with the same steps on the other model; returns the rewritten model."""
    after, applied, *_ = rewrite(before, ORIN, precision="fp16")
    if not applied:
        assert read_record(after) is None
        return after
    other = other_values(before)
    graph, again = RewriteGraph(raise_opset(other)), []
    steps = [(item.rewrite, item.anchor) for item in applied if item.rewrite != RAISED]
    for step in steps_again(graph, steps):
        graph.apply(step)
        again.append(toys.applied(step))
    expected = with_record(emit(graph), graph, again, original=other)
    made = reweigh(after, other)
    assert made.proto.SerializeToString(deterministic=True) == expected.proto.SerializeToString(
        deterministic=True
    )
    assert made.digest == expected.digest
    assert reweigh(after, before).digest == after.digest
    return after


@pytest.mark.whole
@pytest.mark.parametrize("name", ZOO)
def test_a_small_network(name):
    refits(ZOO[name].make())


@pytest.mark.parametrize(
    ("name", "derives"),
    [("yolo_v5", False), ("resnet_of_torchvision", False), ("nhwc_classifier", True)],
)
def test_a_real_network(name, derives):
    record = read_record(refits(getattr(real_nets, name)()))
    assert any(item.sources for item in record.weights.values()) or not derives
