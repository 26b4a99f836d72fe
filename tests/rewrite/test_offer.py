"""What `check` says of rewrites is what `rewrite` then does."""

import pytest

from edgekit.rewrite import offers
from edgekit.targets import get
from tests.rewrite.made_up import ORIN, Convolution, Sink, WholePool, classified, pooled, run


@pytest.mark.parametrize(
    ("model", "some"), [(pooled(7), True), (pooled(9), False), (classified(0), False),
                        (classified(2), True)],
)  # fmt: skip
def test_a_rewrite_is_offered_where_it_would_be_applied(monkeypatch, model, some):
    _, applied, _ = run(monkeypatch, model, WholePool(), Convolution(), Sink())
    own = {item.name for item in model.proto.graph.node}
    offered = offers(model, ORIN, precision="fp16")
    done = {node: item.rewrite for item in applied for node in item.nodes if node in own}
    assert offered.keys() == done.keys()
    assert bool(offered) == some


def test_nothing_is_offered_without_a_dla():
    assert offers(pooled(), get("jetson-agx-thor"), precision="int8") == {}
    assert offers(pooled(), ORIN, precision="int8", tensorrt="10.9") == {}
    assert offers(pooled(), ORIN, precision="fp32") == {}
