"""Reshapes that merge or move to the other side of an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.layout.views import (
    ALONG,
    BROADCASTING,
    REDUCTIONS,
    RESHAPES,
    SINGLE,
    Carried,
    Operand,
    View,
    again,
    is_reshape,
    lowered,
    moves_ones,
    parameters,
    permutation,
    reduced_axes,
    reduces_by_input,
    reshaped,
    view,
    write,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


#: Operators whose result has the shape of what they read.
KEEPING = (*SINGLE, *BROADCASTING, *ALONG, "BatchNormalization")
#: All operators that :func:`carried` knows.
CARRIED = (*KEEPING, *REDUCTIONS, "Concat", "Pad", "Slice", "Split", "Transpose")


def carried(graph: RewriteGraph, node: Node, by: View) -> Carried | None:
    """Returns ``node``, which works on shape ``by.y``, as it is on shape ``by.x``.

    None if the operation on ``by.x`` is not the same. Its results have to be given the old
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


def _shaped(
    graph: RewriteGraph, tensor: str, shape: tuple[int, ...]
) -> tuple[Operand, tuple[Node, ...]]:
    """A tensor in another shape: without the reshape that it comes from where that had it."""
    node = graph.producer(tensor)
    if node is not None and is_reshape(graph, node):
        source = node.inputs[0]
        return Operand(source, shape if graph.shape(source) != shape else None), (node,)
    return Operand(tensor, shape if graph.shape(tensor) != shape else None), ()


def _broadcasting(graph: RewriteGraph, node: Node, by: View) -> Carried | None:
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


def _concat(graph: RewriteGraph, node: Node, by: View) -> Carried | None:
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
    graph: RewriteGraph, node: Node, by: View, data: Operand, passed: tuple[Node, ...]
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
    graph: RewriteGraph, node: Node, by: View, data: Operand, passed: tuple[Node, ...]
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


class MergeReshapes:
    """Reshape, Reshape -> Reshape; of Reshape, Flatten, Squeeze and Unsqueeze.

    A Transpose that moves only dimensions of size 1 is a reshape too, next to one. The second
    reads what the first read, so every application shortens a chain. The first stays for others
    that read it. One that changes nothing is left to ``identity-removal``.
    """

    name = "merge-reshapes"
    reason = (
        "a reshape is a layer of its own, which the DLA mostly refuses: one stands for several, "
        "and pairs that cancel go away"
    )
    operators: tuple[str, ...] = (*RESHAPES, "Transpose")
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Looks whether a reshape reads a reshape."""
        first = graph.producer(node.inputs[0])
        if first is None or not _reshapes(graph, node) or not _reshapes(graph, first):
            return None
        if node.op == "Transpose" and first.op == "Transpose":
            return None
        return Match((node, first))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes one Reshape from the first one's source."""
        node, first = match.nodes
        again(graph, new, (first,), (node,))
        output = node.outputs[0]
        reshaped(new, first.inputs[0], graph.shape(output), output=output)


def _reshapes(graph: RewriteGraph, node: Node) -> bool:
    if node.op == "Transpose" and not node.domain:
        return moves_ones(graph.shape(node.inputs[0]), permutation(graph, node))
    return is_reshape(graph, node)


_DLA_RANK = 4


class HoistReshape:
    """Operation, Reshape (to 4-D) -> Reshape, operation in 4-D.

    For what stands between a graph input of fewer dimensions, or something that cannot work in
    4-D, and the first 4-D layer: nothing can sink there. Only where the reshape alone reads the
    result, so that no reshape back is needed. Every application leaves one operation fewer that
    does not work on four dimensions, as with ``sink-reshape``.
    """

    name = "hoist-reshape"
    reason = (
        "the DLA computes on N, C, H, W only: the reshape to 4-D stands before the operation, "
        "at the network's input in the end"
    )
    operators: tuple[str, ...] = RESHAPES
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Looks at the producer of what a reshape makes 4-D."""
        if not is_reshape(graph, node) or graph.rank(node.outputs[0]) != _DLA_RANK:
            return None
        made = graph.only_reader(node.inputs[0]) and graph.producer(node.inputs[0])
        if made is None or made.op not in KEEPING or made.domain or len(made.outputs) != 1:
            return None
        low = graph.shape(node.inputs[0])
        by = view(graph.shape(node.outputs[0]), low) if len(low) != _DLA_RANK else None
        there = carried(graph, made, by) if by is not None else None
        return Match((node, made, *there.passed), there) if there is not None else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the operation in 4-D; it writes what the reshape wrote."""
        node, made, *passed = match.nodes
        again(graph, new, tuple(passed), (made,))
        write(new, made, match.facts, [node.outputs[0]])


class SinkReshape:
    """Reshape (4-D to another rank), operation -> operation in 4-D, Reshape.

    The operation is element-wise, a softmax, a reduction, or works along an axis that the 4-D
    tensor has as well; other tensors that it reads are reshaped too. Every application leaves
    one operation fewer that does not work on four dimensions, and no rewrite of this package adds
    one, so it ends.
    """

    name = "sink-reshape"
    reason = (
        "the DLA computes on N, C, H, W only: the operation works on the 4-D tensor before the "
        "reshape, and the reshape stands behind it"
    )
    operators: tuple[str, ...] = CARRIED
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Looks for an operand that a reshape makes of a 4-D tensor."""
        several = node.op in BROADCASTING or node.op == "Concat"
        for name in dict.fromkeys(node.inputs if several else node.inputs[:1]):
            reshape = lowered(graph, name)
            if reshape is None:
                continue
            by = view(graph.shape(reshape.inputs[0]), graph.shape(name))
            there = carried(graph, node, by) if by is not None else None
            if there is not None:
                return Match((node, *there.passed), there)
        return None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the operation in 4-D and a Reshape after each of its results."""
        node, *passed = match.nodes
        again(graph, new, tuple(passed), (node,))
        made = write(new, node, match.facts, [""] * len(node.outputs))
        gone = [item.name for item in passed if graph.inner(item.outputs[0], (node,))]
        for wide, old in zip(made, node.outputs, strict=True):
            name = gone.pop() if gone else f"{node.name}:reshape"
            reshaped(new, wide, graph.shape(old), output=old, name=name)


_RANKS = {2, 3}


class Softmax4d:
    """Softmax on [N, C] or [N, C, L] -> Reshape to 4-D, Softmax, Reshape.

    The new dimensions have size 1 and stand last, so the axis is the same one. Where the tensor
    comes from a 4-D one that has the axis, ``sink-reshape`` does it with one reshape. It ends as
    that does.
    """

    name = "softmax-4d"
    reason = (
        "a softmax runs on Orin's DLA when its tensor has four dimensions: the classes are the "
        "channels, and the reshape to the result stands behind"
    )
    operators: tuple[str, ...] = ALONG
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Takes those of two or three dimensions."""
        shape = graph.shape(node.inputs[0])
        if len(shape) not in _RANKS or _sinks(graph, node):
            return None
        by = view((*shape, *(1,) * (_DLA_RANK - len(shape))), shape)
        there = carried(graph, node, by) if by is not None else None
        return Match((node, *there.passed), there) if there is not None else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the softmax between two reshapes."""
        node, *passed = match.nodes
        again(graph, new, tuple(passed), (node,))
        made = write(new, node, match.facts, [""])[0]
        old = node.outputs[0]
        reshaped(new, made, graph.shape(old), output=old, name=f"{node.name}:reshape")


def _sinks(graph: RewriteGraph, node: Node) -> bool:
    reshape = lowered(graph, node.inputs[0])
    if reshape is None:
        return False
    by = view(graph.shape(reshape.inputs[0]), graph.shape(node.inputs[0]))
    return by is not None and carried(graph, node, by) is not None
