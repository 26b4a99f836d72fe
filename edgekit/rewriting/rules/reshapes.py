"""Reshapes, operations that change nothing, and shared layouts.

Reshapes merge, or move to the other side of an operation: they are read as views (:class:`View`),
and :class:`Carried` is an operation written on the other side of one. Operations that change
nothing or stand twice go away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from itertools import islice, pairwise
from typing import NamedTuple

from edgekit.network.graph import Attributes, Node
from edgekit.network.lowering.pointwise import ACTIVATIONS, ELEMENTWISE, UNARY
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import reshape
from edgekit_device.protocol.codec import document

#: Operators that change a shape and move nothing.
RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_DLA_RANK = 4
# one activation, element by element; what else they read has one element
SINGLE = (
    *ACTIVATIONS,
    *UNARY,
    "Celu",
    "HardSwish",
    "IsInf",
    "Mish",
    "Swish",
    "Shrink",
    "Cast",
    "QuantizeLinear",
    "DequantizeLinear",
)
# element by element, all operands broadcast
BROADCASTING = (*ELEMENTWISE, "GreaterOrEqual", "LessOrEqual", "Mean", "Mod", "Where", "PRelu")
ALONG = ("Softmax", "LogSoftmax", "Hardmax")
REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
_SUM_AXES_INPUT = 13
_AXES_INPUT = 18
# whichever neighbour is written again is proved again: rather the one with few weights
_HEAVY = 1 << 20
# the constant on the right, or on either side, with which nothing changes
_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0, "Pow": 1.0}
_EITHER_SIDE = {"Mul", "Add"}
_OF_ONE = {"Concat", "Sum", "Max", "Min", "Mean"}
_POOLS = {"AveragePool", "MaxPool"}
_GLOBAL_POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
# a maximum over one NaN is no NaN in ONNX Runtime, so that it is not the operation's input
_MAXIMA = {"MaxPool", "GlobalMaxPool"}
_MAKE_NAN = {"Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Mod", "Pow", "Reciprocal", "Sqrt"}
_REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}
# with one input that is an activation, those of the same shape and type change nothing
_BY_SHAPE = {"Identity", "Expand", "Tile", "Cast", "Split", "DepthToSpace", "SpaceToDepth"}
_LOOKED_AT = 16
#: Operators whose result has the shape of what they read.
KEEPING = (*SINGLE, *BROADCASTING, *ALONG, "BatchNormalization")
#: All operators that :func:`carried` knows.
CARRIED = (*KEEPING, *REDUCTIONS, "Concat", "Pad", "Slice", "Split", "Transpose")


def cut_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """Cuts dimensions where another shape of the same elements has its borders.

    Dimensions of size 1 have no parts; None if a border does not divide.
    """
    borders = {math.prod(shape[index:]) for index in range(len(shape) + 1)}
    high, found = math.prod(sizes), []
    for size in sizes:
        low = high // size
        points = [high, *sorted((b for b in borders if low < b < high), reverse=True), low]
        pairs = list(pairwise(points))
        if any(above % below for above, below in pairs):
            return None
        found.append([above // below for above, below in pairs if above != below])
        high = low
    return found


def dimensions_of(sizes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the dimension of ``shape`` that each atom lies in."""
    found, dim, left = [], 0, shape[0] if shape else 1
    for size in sizes:
        while left == 1:
            dim += 1
            left = shape[dim]
        found.append(dim)
        left //= size
    return tuple(found)


class View(NamedTuple):
    """The dimensions of shape ``x`` that hold the elements of those of shape ``y``.

    Attributes:
        x: One shape, usually N, C, H, W.
        y: The other, with the same elements in the same order.
        groups: Pairs of index lists: the dimensions of ``x`` and those of ``y`` with the same
            product, as small as can be, in order.
    """

    x: tuple[int, ...]
    y: tuple[int, ...]
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def operand(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Returns the shape that broadcasts to ``x`` as ``shape`` does to ``y``; None if none."""
        if len(shape) > len(self.y):
            return None
        wide = (*(1,) * (len(self.y) - len(shape)), *shape)
        found = [1] * len(self.x)
        for xs, ys in self.groups:
            part, whole = [wide[i] for i in ys], [self.y[i] for i in ys]
            if part == whole:
                for i in xs:
                    found[i] = self.x[i]
            elif math.prod(part) != 1:
                return None
        return tuple(found)

    def axis(self, y: int) -> int | None:
        """Returns the dimension of ``x`` that is dimension ``y`` of ``y`` and nothing else."""
        for xs, ys in self.groups:
            if y % len(self.y) not in ys:
                continue
            size = self.y[y]
            if not xs or math.prod(self.y[i] for i in ys) != size:
                return None
            return next((i for i in xs if self.x[i] == size), None)
        return None

    def joined(self, y: int) -> frozenset[int]:
        """Returns the dimensions of ``x`` along which joining is joining along ``y``.

        Only where ``y`` has the dimension alone: those up to the first that is not 1, for what
        stands after is repeated as it is.
        """
        for xs, ys in self.groups:
            if ys != (y % len(self.y),):
                continue
            wide = next((k for k, i in enumerate(xs) if self.x[i] != 1), len(xs) - 1)
            return frozenset(xs[: wide + 1])
        return frozenset()


def view(x: Sequence[int], y: Sequence[int]) -> View | None:
    """Returns how a tensor of shape ``x`` is seen as one of shape ``y``; None if it cannot be."""
    if math.prod(x) != math.prod(y) or math.prod(x) == 0:
        return None
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(x) and j < len(y):
        first, second = i, j
        left, right = x[i], y[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * x[i], i + 1
            else:
                right, j = right * y[j], j + 1
        groups.append((tuple(range(first, i)), tuple(range(second, j))))
    # what is left has size 1 and belongs to the last group
    xs, ys = groups.pop() if groups else ((), ())
    groups.append(((*xs, *range(i, len(x))), (*ys, *range(j, len(y)))))
    return View(tuple(x), tuple(y), tuple(groups))


def is_reshape(graph: RewriteGraph, node: Node | None) -> bool:
    """Whether a node only gives an activation another shape."""
    if node is None or node.op not in RESHAPES or node.domain:
        return False
    return not node.input(1) or graph.constant(node.input(1))


def lowered(graph: RewriteGraph, tensor: str) -> Node | None:
    """Returns the reshape that makes ``tensor`` of a 4-D tensor, itself of another rank."""
    node = graph.producer(tensor)
    if node is None or not is_reshape(graph, node) or graph.rank(tensor) == _DLA_RANK:
        return None
    return node if graph.rank(node.inputs[0]) == _DLA_RANK else None


def permutation(graph: RewriteGraph, node: Node) -> tuple[int, ...]:
    """Returns the permutation of a Transpose."""
    rank = graph.rank(node.inputs[0])
    return tuple(node.attrs.get("perm") or reversed(range(rank)))


def moves_ones(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether a transposition of ``shape`` leaves all elements in their order."""
    remaining = [i for i in perm if shape[i] != 1]
    return remaining == sorted(remaining)


def normal(node: Node) -> bool:
    """Whether a node can be written again: of ai.onnx, without graphs inside."""
    return not node.domain and node.op not in {"If", "Loop", "Scan", "SequenceMap"}


def parameters(graph: RewriteGraph, node: Node, first: int) -> bool:
    """Whether the inputs from ``first`` on are left out or constants of one element."""
    return all(
        not name or (graph.constant(name) and all(side == 1 for side in graph.shape(name)))
        for name in node.inputs[first:]
    )


def reduces_by_input(op: str, opset: int) -> bool:
    """Whether a reduction reads its axes as an input."""
    return opset >= (_SUM_AXES_INPUT if op == "ReduceSum" else _AXES_INPUT)


def reduced_axes(graph: RewriteGraph, node: Node) -> tuple[int, ...] | None:
    """Returns the axes of a reduction from 0 on; None if they are computed or there are none."""
    rank = graph.rank(node.inputs[0])
    if node.input(1):
        given = graph.ints(node.inputs[1])
        if given is None:
            return None
    else:
        given = list(node.attrs.get("axes") or ())
    if not given and node.attrs.get("noop_with_empty_axes"):
        return None
    return tuple(sorted(axis % rank for axis in given or range(rank)))


class Operand(NamedTuple):
    """What an operation reads there.

    Attributes:
        tensor: Read as it is, or through what the other attributes say; "" for one left out.
        shape: Shape to be given to it first.
        perm: Permutation to be applied to it then.
        numbers: To be read instead of a tensor; fractions get the type of ``tensor``.
    """

    tensor: str = ""
    shape: tuple[int, ...] | None = None
    perm: tuple[int, ...] | None = None
    numbers: tuple[float, ...] | None = None


@document(frozen=True)
class Carried:
    """An operation on the other side.

    Attributes:
        operands: By input.
        attrs: All attributes.
        passed: Nodes whose results the operation read and no longer reads, or now reads.
        perm: Permutation that makes the old results of the new ones; None for another shape only.
    """

    operands: tuple[Operand, ...]
    attrs: Attributes
    passed: tuple[Node, ...] = field(default=())
    perm: tuple[int, ...] | None = None


def put(new: Writer, operand: Operand) -> str:
    """Writes what makes an operand and returns its tensor."""
    if operand.numbers is not None:
        return new.constant(list(operand.numbers), like=operand.tensor, role="numbers")
    tensor = operand.tensor
    if operand.shape is not None:
        tensor = reshape(new, tensor, operand.shape)
    if operand.perm is not None:
        tensor = new.node("Transpose", [tensor], perm=list(operand.perm))
    return tensor


def write(new: Writer, node: Node, carried: Carried, outputs: list[str]) -> list[str]:
    """Writes ``node`` on the other side, under its name, and returns what it writes."""
    read = [put(new, operand) for operand in carried.operands]
    return new.many(node.op, read, outputs, name=node.name, **carried.attrs)


def again(
    graph: RewriteGraph,
    new: Writer,
    nodes: tuple[Node, ...],
    gone: tuple[Node, ...],
    carried: Carried | None = None,
) -> None:
    """Writes those of ``nodes`` again, as they are, whose results are still needed.

    Nodes other than ``gone`` need them, or the operation on the other side does.
    """
    read = {operand.tensor for operand in carried.operands} if carried else set()
    for node in nodes:
        named = [name for name in node.outputs if name]
        if not all(graph.inner(name, gone) and name not in read for name in named):
            new.many(node.op, node.inputs, node.outputs, name=node.name, **node.attrs)


def forward(graph: RewriteGraph, node: Node, source: str) -> Replacement:
    """The removal of a node whose only used result equals ``source``, which it reads.

    What writes ``source`` writes the result instead when nothing else reads ``source``; else one
    of the readers reads ``source``, the others in further applications. None when both is
    impossible: a result that is returned, of a source that others need.
    """
    output = node.outputs[0]
    if any(name and (graph.readers(name) or graph.returned(name)) for name in node.outputs[1:]):
        return
    producer = graph.producer(source)
    reader = a_reader(graph, node)
    if (
        producer is not None
        and normal(producer)
        and graph.inner(source, (node,))
        and (reader is None or _weight(graph, producer) <= max(_HEAVY, _weight(graph, reader)))
    ):
        new = yield (node, producer)
        outputs = [output if name == source else name for name in producer.outputs]
        new.many(producer.op, producer.inputs, outputs, name=producer.name, **producer.attrs)
    elif reader is not None and not graph.returned(output):
        new = yield (node, reader)
        again(graph, new, (node,), (reader,))
        read_instead(new, reader, output, source)


def a_reader(graph: RewriteGraph, node: Node) -> Node | None:
    """Returns the first node that reads a node's first result and can be written again."""
    return next((item for item in graph.readers(node.outputs[0]) if normal(item)), None)


def read_instead(new: Writer, reader: Node, was: str, now: str) -> None:
    """Writes a node again, reading ``now`` where it read ``was``."""
    inputs = [now if name == was else name for name in reader.inputs]
    new.many(reader.op, inputs, reader.outputs, name=reader.name, **reader.attrs)


def _weight(graph: RewriteGraph, node: Node) -> int:
    return sum(math.prod(graph.shape(n)) for n in node.inputs if n and graph.constant(n))


@rewrite(
    "identity-removal",
    operators=(
        *RESHAPES,
        *sorted(_BY_SHAPE | _OF_ONE | _NEUTRAL.keys() | _POOLS | _GLOBAL_POOLS | _REDUCTIONS),
        *("Transpose", "Slice", "Clip", "Pad", "Resize"),
    ),
    reason="an operation that changes nothing may still be a layer that the DLA refuses",
    enabling=True,
)
def identity_removal(graph: RewriteGraph, node: Node) -> Replacement:
    """What gives back its input -> nothing.

    Reshapes to the same shape, transpositions that move nothing, whole Slices, a Concat, Sum, Max,
    Min or Mean of one tensor, multiplication by the scalar 1, addition of the scalar 0, Clip
    without bounds, pools of one element, reductions over dimensions of size 1, Resize by 1,
    Expand and Cast to what it is. A result that the graph returns, of a tensor that others need
    too, stays.

    Looks whether the result is an input.
    """
    source = _source(graph, node)
    if source is None or graph.constant(source):
        return
    same = graph.shape(source) == graph.shape(node.outputs[0])
    if not same or graph.dtype(source) != graph.dtype(node.outputs[0]):
        return
    before = graph.producer(source)
    if node.op in _MAXIMA and before is not None and before.op in _MAKE_NAN:
        return
    yield from forward(graph, node, source)


def _source(graph: RewriteGraph, node: Node) -> str | None:
    """The input that the result equals if it has the same shape and type."""
    if node.op in _NEUTRAL:
        return _neutral(graph, node)
    return node.inputs[0] if _idle(graph, node) else None


def _neutral(graph: RewriteGraph, node: Node) -> str | None:
    pairs = [(node.inputs[0], node.inputs[1])]
    if node.op in _EITHER_SIDE:
        pairs.append((node.inputs[1], node.inputs[0]))
    for data, factor in pairs:
        known = graph.constant(factor) and not graph.recipe(factor)
        if known and graph.scalar(factor) == _NEUTRAL[node.op]:
            return data
    return None


def _idle(graph: RewriteGraph, node: Node) -> bool:
    if node.op in _BY_SHAPE or is_reshape(graph, node) or node.op in _GLOBAL_POOLS:
        return True
    if node.op in _OF_ONE:
        return len(node.inputs) == 1
    if node.op == "Transpose":
        return moves_ones(graph.shape(node.inputs[0]), permutation(graph, node))
    if node.op == "Slice":
        steps = graph.ints(node.input(4)) if node.input(4) else [1]
        return steps is not None and all(step == 1 for step in steps)
    if node.op == "Pad":
        return not any(graph.ints(node.inputs[1]) or [1])
    if node.op == "Clip":
        return not any(node.inputs[1:])
    if node.op in _POOLS:
        ones = (*node.attrs["kernel_shape"], *node.attrs.get("strides", ()))
        return all(number == 1 for number in ones) and not any(node.attrs.get("pads", ()))
    if node.op == "Resize":
        return _resizes_by_one(graph, node)
    axes = reduced_axes(graph, node) if node.op in _REDUCTIONS else None
    return axes is not None and all(graph.shape(node.inputs[0])[axis] == 1 for axis in axes)


def _resizes_by_one(graph: RewriteGraph, node: Node) -> bool:
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return False
    if node.input(3):
        return graph.constant(node.inputs[3])
    scales = graph.value(node.inputs[2]) if node.input(2) else None
    return scales is not None and all(float(item) == 1 for item in scales.reshape(-1))


@rewrite(
    "share-layout",
    operators=(*RESHAPES, "Transpose"),
    reason="if several branches reshape or transpose a tensor in the same way, for example the "
    "network's input, doing it once is enough",
    enabling=True,
)
def share_layout(graph: RewriteGraph, node: Node) -> Replacement:
    """Two equal Reshapes, or Transposes, of the same tensor -> one, which all readers read.

    One reader changes over at a time; a transposition or reshape that nothing reads is gone, so
    it ends. One that the graph returns is kept, otherwise the first.

    Looks for a node equal to ``node`` and for a node that can read that one.
    """
    if graph.returned(node.outputs[0]) or not _moves(graph, node):
        return
    equal = [
        item
        for item in islice(graph.readers(node.inputs[0]), _LOOKED_AT)
        if item is node or _equal(graph, item, node)
    ]
    retained = next((item for item in equal if graph.returned(item.outputs[0])), None)
    retained = retained or next(iter(equal), node)
    reader = a_reader(graph, node)
    if retained is node or reader is None:
        return
    new = yield (node, retained, reader)
    new.many(retained.op, retained.inputs, retained.outputs, name=retained.name, **retained.attrs)
    again(graph, new, (node,), (reader,))
    read_instead(new, reader, node.outputs[0], retained.outputs[0])


def _moves(graph: RewriteGraph, node: Node) -> bool:
    return is_reshape(graph, node) or (node.op == "Transpose" and not node.domain)


def _equal(graph: RewriteGraph, one: Node, other: Node) -> bool:
    if not _moves(graph, one) or one.inputs[0] != other.inputs[0]:
        return False
    if (one.op == "Transpose") != (other.op == "Transpose"):
        return False
    if one.op == "Transpose":
        return permutation(graph, one) == permutation(graph, other)
    return graph.shape(one.outputs[0]) == graph.shape(other.outputs[0])


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


@rewrite(
    "merge-reshapes",
    operators=(*RESHAPES, "Transpose"),
    reason="the DLA refuses most reshapes: one reshape replaces several, and pairs that cancel are "
    "removed",
    enabling=True,
)
def merge_reshapes(graph: RewriteGraph, node: Node) -> Replacement:
    """Reshape, Reshape -> Reshape; of Reshape, Flatten, Squeeze and Unsqueeze.

    A Transpose that moves only dimensions of size 1 is a reshape too, next to one. The second
    reads what the first read, so every application shortens a chain. The first stays for others
    that read it. One that changes nothing is left to ``identity-removal``.

    Looks whether a reshape reads a reshape.
    """
    first = graph.producer(node.inputs[0])
    if first is None or not _reshapes(graph, node) or not _reshapes(graph, first):
        return
    if node.op == "Transpose" and first.op == "Transpose":
        return
    new = yield (node, first)
    again(graph, new, (first,), (node,))
    output = node.outputs[0]
    reshape(new, first.inputs[0], graph.shape(output), output=output)


def _reshapes(graph: RewriteGraph, node: Node) -> bool:
    if node.op == "Transpose" and not node.domain:
        return moves_ones(graph.shape(node.inputs[0]), permutation(graph, node))
    return is_reshape(graph, node)


@rewrite(
    "hoist-reshape",
    operators=RESHAPES,
    reason="the DLA computes on N, C, H, W only: the reshape to 4-D moves before the operation, up "
    "to the network's input",
    enabling=True,
)
def hoist_reshape(graph: RewriteGraph, node: Node) -> Replacement:
    """Operation, Reshape (to 4-D) -> Reshape, operation in 4-D.

    For what stands between a graph input of fewer dimensions, or something that cannot work in
    4-D, and the first 4-D layer: nothing can sink there. Only where the reshape alone reads the
    result, so that no reshape back is needed. Every application leaves one operation fewer that
    does not work on four dimensions, as with ``sink-reshape``.

    Looks at the producer of what a reshape makes 4-D.
    """
    if not is_reshape(graph, node) or graph.rank(node.outputs[0]) != _DLA_RANK:
        return
    made = graph.only_reader(node.inputs[0]) and graph.producer(node.inputs[0])
    if made is None or made.op not in KEEPING or made.domain or len(made.outputs) != 1:
        return
    low = graph.shape(node.inputs[0])
    by = view(graph.shape(node.outputs[0]), low) if len(low) != _DLA_RANK else None
    there = carried(graph, made, by) if by is not None else None
    if there is None:
        return
    new = yield (node, made, *there.passed)
    again(graph, new, there.passed, (made,))
    write(new, made, there, [node.outputs[0]])


@rewrite(
    "sink-reshape",
    operators=CARRIED,
    reason="the DLA computes on N, C, H, W only: the reshape moves after the operation, which then "
    "works on the 4-D tensor",
    enabling=True,
)
def sink_reshape(graph: RewriteGraph, node: Node) -> Replacement:
    """Reshape (4-D to another rank), operation -> operation in 4-D, Reshape.

    The operation is element-wise, a softmax, a reduction, or works along an axis that the 4-D
    tensor has as well; other tensors that it reads are reshaped too. Every application leaves
    one operation fewer that does not work on four dimensions, and no rewrite of this package adds
    one, so it ends.

    Looks for an operand that a reshape makes of a 4-D tensor.
    """
    several = node.op in BROADCASTING or node.op == "Concat"
    for name in dict.fromkeys(node.inputs if several else node.inputs[:1]):
        made = lowered(graph, name)
        if made is None:
            continue
        by = view(graph.shape(made.inputs[0]), graph.shape(name))
        there = carried(graph, node, by) if by is not None else None
        if there is not None:
            break
    else:
        return
    new = yield (node, *there.passed)
    again(graph, new, there.passed, (node,))
    results = write(new, node, there, [""] * len(node.outputs))
    gone = [item.name for item in there.passed if graph.inner(item.outputs[0], (node,))]
    for wide, old in zip(results, node.outputs, strict=True):
        name = gone.pop() if gone else f"{node.name}:reshape"
        reshape(new, wide, graph.shape(old), output=old, name=name)
