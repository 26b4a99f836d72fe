"""GELU in its forms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.network.session import session
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    rewrite_of,
    rewritten,
)
from tests.tries import tries

SHAPE = (1, 6, 3, 4)
FORM = ["Mul", "BatchNormalization", "Mul", "Sigmoid", "Mul"]
NUMBERS = {
    "half": np.float32(0.5),
    "one": np.float32(1),
    "cubed": np.float32(3),
    "c": np.float32(0.044715),
    "k": np.float32(math.sqrt(2 / math.pi)),
    "root": np.float32(math.sqrt(2)),
    "inverse": np.float32(math.sqrt(0.5)),
}
CUBE = [node("Pow", "x cubed", "p")]
PRODUCTS = [node("Mul", "x x", "s"), node("Mul", "s x", "p")]
INNER = [node("Mul", "p c", "q"), node("Add", "x q", "i"), node("Mul", "i k", "z")]
# k x (1 + c x²), as Keras writes it
NESTED = [
    node("Mul", "x x", "s"),
    node("Mul", "c s", "q"),
    node("Add", "one q", "i"),
    node("Mul", "k x", "w"),
    node("Mul", "w i", "z"),
]
TANH = [node("Tanh", "z", "t"), node("Add", "t one", "o")]
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


def test_the_operator():
    model = net([node("Gelu", "x", "y", approximate="tanh")], {"x": SHAPE}, ["y"], opset=20)
    after = assert_rewrites(model, "gelu-tanh")
    assert ops(after) == FORM
    on_dla(after)


@pytest.mark.parametrize("front", [CUBE + INNER, PRODUCTS + INNER, NESTED])
@pytest.mark.parametrize("end", ENDS)
def test_forms_of_exporters(front, end):
    after = assert_rewrites(gelu_net([*front, *TANH, *end]), "gelu-tanh")
    assert ops(after) == FORM
    on_dla(after)


@settings(max_examples=tries(15), derandomize=True)
@given(
    c=st.floats(0.015625, 0.25, width=32),
    k=st.floats(0.25, 2, width=32),
    half=st.floats(0.25, 2, width=32),
    channels=st.integers(1, 5),
)
def test_any_numbers_in_that_form(c, k, half, channels):
    model = gelu_net(
        [*CUBE, *INNER, *TANH, *ENDS[0]],
        shape=(1, channels, 2, 2),
        c=np.float32(c),
        k=np.float32(k),
        half=np.float32(half),
    )
    assert_rewrites(model, "gelu-tanh", gone=["Tanh", "Pow"])


def test_large_inputs_do_not_spoil_it():
    model = gelu_net([*CUBE, *INNER, *TANH, *ENDS[0]])
    x = np.linspace(-3e4, 3e4, math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    made = session(rewritten(model, "gelu-tanh")).run(None, {"x": x})[0]
    assert np.abs(made - np.maximum(x, 0)).max() <= 1e-3


def test_what_is_no_gelu_stays():
    whole = [*CUBE, *INNER, *TANH, *ENDS[0]]
    square = [node("Mul", "x x", "p"), *INNER, *TANH, *ENDS[0]]
    plain = [node("Mul", "x k", "z"), *TANH, *ENDS[0]]
    other = [*CUBE, *INNER, *TANH, node("Exp", "x", "e"), node("Mul", "e o", "y")]
    for model in (
        gelu_net(whole, outputs=["y", "t"]),
        gelu_net(whole, outputs=["y", "p"]),
        gelu_net(whole, one=np.float32(2)),
        gelu_net(square),
        gelu_net(plain),
        gelu_net(other),
        gelu_net(whole, shape=(2, 6)),
        net([node("Gelu", "x", "y")], {"x": SHAPE}, ["y"], opset=20),
    ):
        assert_untouched(model, "gelu-tanh")


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
        gelu_net([*ERF[0], node("Erf", "z", "t"), TANH[1], *ENDS[1]]), item, proved=False
    )
    on_dla(small)


def test_other_error_functions_stay():
    nodes = [*ERF[0], node("Erf", "z", "t"), node("Add", "t one", "o"), *ENDS[1]]
    for model in (gelu_net(nodes, root=np.float32(2)), gelu_net(nodes, outputs=["y", "t"])):
        assert_untouched(model, "approx-gelu-erf")
