"""Vertical fusion."""

from __future__ import annotations

from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.kernels import fuse, join

HEADS, TAILS = ["CONVOLUTION"], ["ACTIVATION", "ELEMENTWISE"]


def make(*rows: tuple[str, str, str, str], outputs: str) -> Network:
    """Rows are name, kind, inputs and output; tensors are single letters."""
    layers = tuple(
        Layer(name, kind, kind.title(), (name,), (name,), tuple(ins), (out,))
        for name, kind, ins, out in rows
    )
    names = {n for layer in layers for n in (*layer.inputs, *layer.outputs)}
    tensors = {n: Tensor(n, (1, 8, 4, 4), "float32") for n in sorted(names)}
    made = {n for layer in layers for n in layer.outputs}
    return Network("n", layers, tensors, tuple(sorted(names - made)), tuple(outputs))


def residual() -> Network:
    return make(
        ("c1", "CONVOLUTION", "a", "b"),
        ("c2", "CONVOLUTION", "a", "c"),
        ("add", "ELEMENTWISE", "bc", "d"),
        ("relu", "ACTIVATION", "d", "e"),
        outputs="e",
    )


def test_addition_joins_the_later_convolution() -> None:
    first, second = fuse(residual(), HEADS, TAILS, lambda _: None)
    assert first.layers == (0,)
    assert second.layers == (1, 2, 3)
    assert second.inputs == ("a", "b")
    assert second.outputs == ("e",)
    assert join(residual(), (1, 2, 3)) == second


def test_a_tensor_that_others_read_is_not_fused_away() -> None:
    net = make(
        ("c", "CONVOLUTION", "a", "b"),
        ("relu", "ACTIVATION", "b", "c"),
        ("pool", "POOLING", "b", "d"),
        outputs="cd",
    )
    assert [k.layers for k in fuse(net, HEADS, TAILS, lambda _: None)] == [(0,), (1,), (2,)]


def test_a_network_output_is_not_fused_away() -> None:
    net = make(("c", "CONVOLUTION", "a", "b"), ("relu", "ACTIVATION", "b", "c"), outputs="bc")
    assert [k.layers for k in fuse(net, HEADS, TAILS, lambda _: None)] == [(0,), (1,)]
