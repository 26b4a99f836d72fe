"""Operations on the other side of a transposition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from edgekit.rewrite.layout._carried import Carried, Operand
from edgekit.rewrite.layout._operators import (
    ALONG,
    BROADCASTING,
    REDUCTIONS,
    SINGLE,
    parameters,
    reduced_axes,
    reduces_by_input,
)
from edgekit.rewrite.layout._transposed_axes import with_axes
from edgekit.rewrite.layout._views import moves_ones, permutation

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["TURNED", "turned"]

_ARG = ("ArgMax", "ArgMin")
_AXES = ("Pad", "Slice", "Split", "Tile", "Resize", "Gather")
#: All operators that :func:`turned` knows.
TURNED = (
    *SINGLE,
    *BROADCASTING,
    *ALONG,
    *REDUCTIONS,
    *_ARG,
    *_AXES,
    "Concat",
    "BatchNormalization",
)
_LOOKED_AT = 16


def turned(graph: Graph, node: Node, perm: tuple[int, ...]) -> Carried | None:
    """Returns ``node``, which reads a tensor transposed by ``perm``, as it is without that.

    None where another tensor that it reads is no constant and not transposed in the same way, or
    where the operation has no such form. ``Carried.perm`` makes the old results of the new ones;
    it is the identity where the axes that moved are gone.
    """
    if node.op in BROADCASTING or node.op == "Concat":
        return _joining(graph, node, perm)
    source = graph.producer(node.inputs[0])
    assert source is not None
    data, passed = Operand(source.inputs[0]), (source,)
    if node.op in SINGLE and parameters(graph, node, 1):
        rest = tuple(Operand(name) for name in node.inputs[1:])
        return Carried((data, *rest), node.attrs, passed, perm)
    if node.op in ALONG:
        axis = perm[node.attrs.get("axis", -1)]
        return Carried((data,), {**node.attrs, "axis": axis}, passed, perm)
    if node.op == "BatchNormalization" and perm[:2] == (0, 1):
        if node.attrs.get("training_mode") or any(node.outputs[1:]):
            return None
        return Carried((data, *map(Operand, node.inputs[1:])), node.attrs, passed, perm)
    if node.op in REDUCTIONS:
        return _reduction(graph, node, perm, data, passed)
    if node.op in _ARG:
        axis = perm[node.attrs.get("axis", 0)]
        keeps = bool(node.attrs.get("keepdims", 1))
        after = perm if keeps else _left(perm, {axis})
        return Carried((data,), {**node.attrs, "axis": axis}, passed, after)
    if node.op not in _AXES:
        return None
    found = with_axes(graph, node, perm)
    if found is None:
        return None
    rest, attrs, gone = found
    return Carried((data, *rest), attrs, passed, _left(perm, gone))


def _joining(graph: Graph, node: Node, perm: tuple[int, ...]) -> Carried | None:
    """An operation of several tensors of equal standing."""
    if graph.rank(node.outputs[0]) != len(perm):
        return None
    operands: list[Operand] = []
    passed: dict[str, Node] = {}
    before = [graph.producer(name) for name in node.inputs]
    plain = {item.inputs[0] for item in before if item and _transposes(graph, item, perm)}
    # a sum of an input and its own transposition would turn for ever
    fed = frozenset() if plain & set(graph.inputs) else frozenset(graph.inputs)
    for name in node.inputs:
        found = _other(graph, name, perm, fed, scalars=node.op != "Concat")
        if found is None:
            return None
        operands.append(found[0])
        passed |= {item.name: item for item in found[1]}
    attrs = dict(node.attrs)
    if node.op == "Concat":
        attrs["axis"] = perm[attrs["axis"]]
        if len(perm) == 4 and attrs["axis"] != 1 and node.attrs["axis"] % 4 == 1:
            # the DLA joins channels only, which is what the transpositions may be there for
            return None
    return Carried(tuple(operands), attrs, tuple(passed.values()), perm)


def _other(
    graph: Graph, name: str, perm: tuple[int, ...], fed: frozenset[str], *, scalars: bool
) -> tuple[Operand, tuple[Node, ...]] | None:
    """An operand as it is before the transposition."""
    shape = graph.shape(name)
    if scalars and all(side == 1 for side in shape) and (len(shape) < 2 or graph.constant(name)):
        return Operand(name), ()
    if len(shape) > len(perm):
        return None
    source = graph.producer(name)
    if source is not None and _transposes(graph, source, perm):
        return Operand(source.inputs[0]), (source,)
    back = tuple(sorted(range(len(perm)), key=lambda i: perm[i]))
    for reader in islice(graph.readers(name) if name in fed else (), _LOOKED_AT):
        # it is transposed back for another reader already
        if _transposes(graph, reader, back):
            return Operand(reader.outputs[0]), (reader,)
    wide = (*(1,) * (len(perm) - len(shape)), *shape)
    if moves_ones(wide, back):
        target = tuple(wide[i] for i in back)
        return Operand(name, target if target != shape else None), ()
    if not graph.constant(name):
        return None
    return Operand(name, wide if wide != shape else None, back), ()


def _transposes(graph: Graph, node: Node, perm: tuple[int, ...]) -> bool:
    return node.op == "Transpose" and not node.domain and permutation(graph, node) == perm


def _reduction(
    graph: Graph, node: Node, perm: tuple[int, ...], data: Operand, passed: tuple[Node, ...]
) -> Carried | None:
    axes = reduced_axes(graph, node)
    if axes is None:
        return None
    keeps = node.attrs.get("keepdims", 1)
    there = tuple(sorted(perm[axis] for axis in axes))
    after = perm if keeps else _left(perm, set(there))
    if reduces_by_input(node.op, graph.opset):
        return Carried((data, Operand(numbers=there)), {"keepdims": keeps}, passed, after)
    return Carried((data,), {"keepdims": keeps, "axes": list(there)}, passed, after)


def _left(perm: Sequence[int], gone: set[int]) -> tuple[int, ...]:
    """The permutation of the dimensions that are left."""
    kept = [i for i in perm if i not in gone]
    return tuple(sorted(kept).index(i) for i in kept)
