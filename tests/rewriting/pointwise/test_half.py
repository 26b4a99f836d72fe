"""Models in FP16 are rewritten like others."""

import numpy as np
import pytest
from onnx import TensorProto

from edgekit.network.session import session
from tests.rewriting.nets import assert_untouched, net, node, ops, rewrites_of, rewritten

REWRITES = rewrites_of("activations", "clips", "arithmetic")

SHAPE = (1, 4, 3, 5)
HALF = TensorProto.FLOAT16
EXACT = [item for item in REWRITES if not item.name.startswith("approx-")]


def half(*values):
    return np.asarray(values[0] if len(values) == 1 else values, np.float16)


def half_net(*nodes, opset=18, **weights):
    inputs = {k: (SHAPE, HALF) for k in ("x", "z") if any(k in n.input for n in nodes)}
    return net(list(nodes), inputs, {"y": HALF}, weights, opset)


@pytest.mark.parametrize(
    "model",
    [
        half_net(node("HardSwish", "x", "y")),
        half_net(node("Clip", "x lo hi", "y"), lo=half(-1), hi=half(1)),
        half_net(node("Mish", "x", "y")),
        half_net(node("Elu", "x", "y")),
        half_net(node("Neg", "x", "y")),
        half_net(node("Sub", "c x", "y"), c=half(1)),
        half_net(node("Add", "x c", "y"), c=half(1, 2, 3, 4, 5)),
        half_net(node("Greater", "x z", "c"), node("Where", "c x z", "y"), opset=16),
    ],
    ids=lambda model: "-".join(ops(model)),
)
def test_half_precision(model):
    after = rewritten(model, *EXACT)
    assert ops(after) != ops(model) or after.digest != model.digest
    random = np.random.default_rng(0)
    old, new = session(model, optimise=False), session(after, optimise=False)
    feed = {v.name: random.standard_normal(SHAPE).astype(np.float16) for v in old.get_inputs()}
    a, b = (run.run(None, feed)[0].astype(np.float64) for run in (old, new))
    assert a.shape == b.shape
    # half a dozen roundings to 11 bits
    assert np.abs(a - b).max() <= 4e-3 * np.abs(a).max()


def test_no_bound_at_all_in_half_precision():
    model = half_net(node("Clip", "x lo hi", "y"), lo=half(-65504), hi=half(65504))
    assert_untouched(model, *EXACT)
