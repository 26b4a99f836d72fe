"""What `check` says of rewrites is what `rewrite` then does."""

import pytest

from edgekit.rewrite import offers
from edgekit.targets import get
from tests.rewrite.test_rewrite import ORIN, apply, mean_net, pool_net


@pytest.mark.parametrize("size", [7, 8, 9, 13])
@pytest.mark.parametrize("make", [pool_net, lambda **o: mean_net([2, 3], **o)])
def test_a_rewrite_is_offered_where_it_would_be_applied(make, size):
    model = make(shape=(1, 16, size, size))
    _, applied, _ = apply(model)
    offered = offers(model, ORIN, precision="int8")
    assert offered == {node: item.rewrite for item in applied for node in item.nodes}
    # the largest window of a DLA is 8
    assert bool(offered) == (size <= 8)


def test_nothing_is_offered_without_a_dla():
    assert offers(pool_net(), get("jetson-agx-thor"), precision="int8") == {}
    assert offers(pool_net(), ORIN, precision="int8", tensorrt="10.9") == {}
    assert offers(pool_net(), ORIN, precision="fp32") == {}
