"""Operations on the other side of a reshape."""

from __future__ import annotations

from collections.abc import Sequence
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
from edgekit.rewrite.layout._views import View, is_reshape, lowered, permutation, view

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["CARRIED", "KEEPING", "carried"]

#: Operators whose result has the shape of what they read.
KEEPING = (*SINGLE, *BROADCASTING, *ALONG, "BatchNormalization")
#: All operators that :func:`carried` knows.
CARRIED = (*KEEPING, *REDUCTIONS, "Concat", "Pad", "Slice", "Split", "Transpose")


def carried(graph: Graph, node: Node, by: View) -> Carried | None:
    """Returns ``node``, which works on shape ``by.y``, as it is on shape ``by.x``.

    None where the operation on ``by.x`` is not the same. Its results have to be given the old
    shapes afterwards.
    """
    if node.op in BROADCASTING:
        return _broadcasting(graph, node, by)
    if node.op == "Concat":
        return _concat(graph, node, by)
    if graph.shape(node.inputs[0]) != by.y:
        return None
    data, passed = _shaped(graph, node.inputs[0], by.x)
    if node.op in SINGLE and parameters(graph, node, 1):
        rest = tuple(Operand(name) for name in node.inputs[1:])
        return Carried((data, *rest), node.attrs, passed)
    if node.op in ALONG:
        axis = by.axis(node.attrs.get("axis", -1))
        return None if axis is None else Carried((data,), {**node.attrs, "axis": axis}, passed)
    if node.op == "BatchNormalization" and not node.attrs.get("training_mode"):
        if by.x[:2] != by.y[:2] or any(node.outputs[1:]):
            return None
        return Carried((data, *map(Operand, node.inputs[1:])), node.attrs, passed)
    if node.op in REDUCTIONS:
        return _reduction(graph, node, by, data, passed)
    if node.op == "Transpose":
        perm = _blocks(by, permutation(graph, node))
        return None if perm is None else Carried((data,), {"perm": perm}, passed)
    if node.op in {"Pad", "Slice", "Split"}:
        return _along(graph, node, by, data, passed)
    return None


def _shaped(graph: Graph, tensor: str, shape: tuple[int, ...]) -> tuple[Operand, tuple[Node, ...]]:
    """A tensor in another shape: without the reshape that it comes from where that had it."""
    node = graph.producer(tensor)
    if node is not None and is_reshape(graph, node):
        source = node.inputs[0]
        return Operand(source, shape if graph.shape(source) != shape else None), (node,)
    return Operand(tensor, shape if graph.shape(tensor) != shape else None), ()


def _broadcasting(graph: Graph, node: Node, by: View) -> Carried | None:
    if graph.shape(node.outputs[0]) != by.y:
        return None
    operands: list[Operand] = []
    passed: dict[str, Node] = {}
    for name in node.inputs:
        shape = by.operand(graph.shape(name))
        if shape is None:
            return None
        if graph.constant(name) and all(side == 1 for side in shape):
            operands.append(Operand(name))
            continue
        operand, through = _shaped(graph, name, shape)
        operands.append(operand)
        passed |= {item.name: item for item in through}
    return Carried(tuple(operands), node.attrs, tuple(passed.values()))


def _concat(graph: Graph, node: Node, by: View) -> Carried | None:
    axis = node.attrs["axis"] % len(by.y)
    along = by.joined(axis)
    views: list[View] = []
    for name in node.inputs:
        source = lowered(graph, name)
        shape = graph.shape(name)
        seen = view(graph.shape(source.inputs[0]), shape) if source is not None else None
        if seen is None:
            # along one dimension of x: there it has its own size, and x's elsewhere
            whole = by.axis(axis)
            if whole is None:
                return None
            wide = list(by.x)
            wide[whole] = shape[axis]
            seen = view(wide, shape)
        if seen is None:
            return None
        views.append(seen)
        along &= seen.joined(axis)
    for chosen in sorted(along, key=lambda i: (i != 1, i)):
        if len({(*v.x[:chosen], *v.x[chosen + 1 :]) for v in views}) == 1:
            break
    else:
        return None
    found = [_shaped(graph, name, v.x) for name, v in zip(node.inputs, views, strict=True)]
    passed = {item.name: item for _, through in found for item in through}
    operands = tuple(operand for operand, _ in found)
    return Carried(operands, {"axis": chosen}, tuple(passed.values()))


def _reduction(
    graph: Graph, node: Node, by: View, data: Operand, passed: tuple[Node, ...]
) -> Carried | None:
    axes = reduced_axes(graph, node)
    if axes is None:
        return None
    found: list[int] = []
    for xs, ys in by.groups:
        inside = [i in axes for i in ys if by.y[i] != 1]
        if inside and any(inside) != all(inside):
            return None
        if any(i in axes for i in ys) and all(inside):
            found += xs
    if not found:
        return None
    # all dimensions are kept; a reshape drops them
    if reduces_by_input(node.op, graph.opset):
        return Carried((data, Operand(numbers=tuple(found))), {"keepdims": 1}, passed)
    return Carried((data,), {"keepdims": 1, "axes": found}, passed)


def _blocks(by: View, perm: Sequence[int]) -> list[int] | None:
    """The permutation of x's dimensions when y's move in whole groups."""
    left = list(perm)
    found: list[int] = []
    while left:
        xs, ys = next(group for group in by.groups if left[0] in group[1])
        if tuple(left[: len(ys)]) != ys:
            return None
        del left[: len(ys)]
        found += xs
    return found


def _along(
    graph: Graph, node: Node, by: View, data: Operand, passed: tuple[Node, ...]
) -> Carried | None:
    rank = len(by.y)
    if node.op == "Split":
        axis = by.axis(node.attrs.get("axis", 0))
        if axis is None or (node.input(1) and not graph.constant(node.inputs[1])):
            return None
        rest = tuple(Operand(name) for name in node.inputs[1:])
        return Carried((data, *rest), {**node.attrs, "axis": axis}, passed)
    given = [graph.ints(name) if name else None for name in node.inputs[1:]]
    unknown = any(name and not graph.constant(name) for name in node.inputs[1:])
    if node.op == "Slice":
        starts, ends, axes, steps = (*given, None, None, None, None)[:4]
        if starts is None or ends is None or unknown:
            return None
        at = [by.axis(axis) for axis in axes or range(len(starts))]
        if any(axis is None for axis in at):
            return None
        numbers = [starts, ends, [a for a in at if a is not None], steps or [1] * len(starts)]
        return Carried((data, *(Operand(numbers=tuple(n)) for n in numbers)), node.attrs, passed)
    pads = given[0]
    if pads is None or unknown:
        return None
    axes = (given[2] if node.input(3) else None) or list(range(rank))
    wide = [0] * (2 * len(by.x))
    for index, axis in enumerate(axes):
        before, after = pads[index], pads[index + len(axes)]
        if before == after == 0:
            continue
        target = by.axis(axis)
        if target is None:
            return None
        wide[target], wide[target + len(by.x)] = before, after
    value = (Operand(node.inputs[2]),) if node.input(2) else ()
    return Carried((data, Operand(numbers=tuple(wide)), *value), node.attrs, passed)
