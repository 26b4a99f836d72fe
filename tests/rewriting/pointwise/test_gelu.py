"""GELU by the error function, approximately."""

import math

import numpy as np

from edgekit.network.session import session
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_untouched,
    net,
    node,
    ops,
    rewrite_of,
    rewritten,
)

SHAPE = (1, 6, 3, 4)
FORM = ["Mul", "BatchNormalization", "Mul", "Sigmoid", "Mul"]
NUMBERS = {
    "half": np.float32(0.5),
    "one": np.float32(1),
    "root": np.float32(math.sqrt(2)),
    "inverse": np.float32(math.sqrt(0.5)),
}
ENDS = (
    [node("Mul", "x half", "h"), node("Mul", "h o", "y")],
    [node("Mul", "x o", "h"), node("Mul", "half h", "y")],
    [node("Mul", "o half", "h"), node("Mul", "x h", "y")],
)


def gelu_net(nodes, outputs=("y",), shape=SHAPE, **numbers):
    values = {**NUMBERS, **numbers}
    used = {k: v for k, v in values.items() if any(k in n.input for n in nodes)}
    return net(nodes, {"x": shape}, list(outputs), used)


def on_dla(model):
    for board in ("jetson-agx-orin-64gb", "jetson-agx-xavier"):
        assert refused(model, board) == []


ERF = [
    [node("Div", "x root", "z")],
    [node("Mul", "x inverse", "z")],
]


def test_the_error_function_approximately():
    item, most = rewrite_of("approx-gelu-erf"), 4.8e-4
    assert item.deviation == most
    shape = (1, 1, 1, 20001)
    x = np.linspace(-10, 10, shape[-1], dtype=np.float32).reshape(shape)
    models = [net([node("Gelu", "x", "y")], {"x": shape}, ["y"], opset=20)]
    for front in ERF:
        nodes = [*front, node("Erf", "z", "t"), node("Add", "t one", "o"), *ENDS[1]]
        models.append(gelu_net(nodes, shape=shape))
    for model in models:
        after = rewritten(model, item, proved=False)
        assert ops(after) == FORM
        a, b = (session(m).run(None, {"x": x})[0] for m in (model, after))
        assert most * 0.97 < np.abs(a - b).max() <= most
        assert "TANH" not in refused(after)
    small = rewritten(
        gelu_net([*ERF[0], node("Erf", "z", "t"), node("Add", "t one", "o"), *ENDS[1]]),
        item,
        proved=False,
    )
    on_dla(small)


def test_other_error_functions_stay():
    nodes = [*ERF[0], node("Erf", "z", "t"), node("Add", "t one", "o"), *ENDS[1]]
    for model in (gelu_net(nodes, root=np.float32(2)), gelu_net(nodes, outputs=["y", "t"])):
        assert_untouched(model, "approx-gelu-erf")
