"""Reshapes, operations without effect, and shared layouts.

Reshapes merge, or move to the other side of an operation: they are read as views (:class:`View`),
and :class:`Carried` is an operation written on the other side of a reshape. Operations without
effect and duplicates are removed.
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

#: Operators that change a shape without moving elements.
RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_DLA_RANK = 4
# element by element on one activation; other inputs have one element
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
# ai.onnx opset from which a reduction reads its axes as an input: ReduceSum, and all others
_SUM_AXES_INPUT = 13
_AXES_INPUT = 18
# a neighbour that is written again is proved again, so a neighbour with few weights is preferred
_HEAVY = 1 << 20
# the neutral constant, on the right or on either side
_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0, "Pow": 1.0}
_EITHER_SIDE = {"Mul", "Add"}
_OF_ONE = {"Concat", "Sum", "Max", "Min", "Mean"}
_POOLS = {"AveragePool", "MaxPool"}
_GLOBAL_POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
# a maximum over one NaN is not a NaN in ONNX Runtime, so it differs from the operation's input
_MAXIMA = {"MaxPool", "GlobalMaxPool"}
_MAKE_NAN = {"Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Mod", "Pow", "Reciprocal", "Sqrt"}
_REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}
# with one activation as input, they have no effect if shape and type stay
_BY_SHAPE = {"Identity", "Expand", "Tile", "Cast", "Split", "DepthToSpace", "SpaceToDepth"}
_LOOKED_AT = 16
#: Operators whose result has the shape of their input.
KEEPING = (*SINGLE, *BROADCASTING, *ALONG, "BatchNormalization")
#: All operators that :func:`carry` supports.
CARRIED = (*KEEPING, *REDUCTIONS, "Concat", "Pad", "Slice", "Split", "Transpose")


def cut_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """Cuts dimensions at the borders of another shape of the same elements.

    Dimensions of size 1 have no parts; None if a border does not divide a dimension.
    """
    # a border is the number of elements after it, so equal borders match in both shapes
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


def atom_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the dimension of ``shape`` that contains each atom."""
    found, dim, left = [], 0, shape[0] if shape else 1
    for size in sizes:
        # dimensions of size 1 contain no atom
        while left == 1:
            dim += 1
            left = shape[dim]
        found.append(dim)
        left //= size
    return tuple(found)


class View(NamedTuple):
    """Mapping of the dimensions of shape ``x`` to the dimensions of shape ``y``.

    Attributes:
        x: A shape, usually N, C, H, W.
        y: Another shape with the same elements in the same order.
        groups: Pairs of index lists: the dimensions of ``x`` and the dimensions of ``y`` with the
            same product, as small as possible, in order.
    """

    x: tuple[int, ...]
    y: tuple[int, ...]
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def operand(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Returns the shape that broadcasts to ``x`` like ``shape`` to ``y``; None if none."""
        if len(shape) > len(self.y):
            return None
        wide = (*(1,) * (len(self.y) - len(shape)), *shape)
        found = [1] * len(self.x)
        for xs, ys in self.groups:
            part, whole = [wide[i] for i in ys], [self.y[i] for i in ys]
            # a group matches as a whole or broadcasts as a whole; a part of it has no equal in x
            if part == whole:
                for i in xs:
                    found[i] = self.x[i]
            elif math.prod(part) != 1:
                return None
        return tuple(found)

    def axis(self, y: int) -> int | None:
        """Returns the dimension of ``x`` equal to dimension ``y`` of ``y``; None if none."""
        for xs, ys in self.groups:
            if y % len(self.y) not in ys:
                continue
            size = self.y[y]
            if not xs or math.prod(self.y[i] for i in ys) != size:
                return None
            return next((i for i in xs if self.x[i] == size), None)
        return None

    def joined(self, y: int) -> frozenset[int]:
        """Returns the dimensions of ``x`` along which joining equals joining along ``y``.

        Only if the dimension is alone in its group of ``y``: the dimensions up to the first that is
        not 1, since later dimensions are repeated unchanged.
        """
        for xs, ys in self.groups:
            if ys != (y % len(self.y),):
                continue
            wide = next((k for k, i in enumerate(xs) if self.x[i] != 1), len(xs) - 1)
            return frozenset(xs[: wide + 1])
        return frozenset()


def view(x: Sequence[int], y: Sequence[int]) -> View | None:
    """Returns the view of shape ``x`` as shape ``y``; None if there is none."""
    # with no elements, every group of dimensions has the product 0
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
    # remaining dimensions have size 1 and belong to the last group
    xs, ys = groups.pop() if groups else ((), ())
    groups.append(((*xs, *range(i, len(x))), (*ys, *range(j, len(y)))))
    return View(tuple(x), tuple(y), tuple(groups))


def is_reshape(graph: RewriteGraph, node: Node | None) -> bool:
    """Returns True if a node only changes an activation's shape."""
    if node is None or node.op not in RESHAPES or node.domain:
        return False
    return not node.input(1) or graph.constant(node.input(1))


def reshape_of_image(graph: RewriteGraph, tensor: str) -> Node | None:
    """Returns the reshape of a 4-D tensor to ``tensor``, if that has another rank; else None."""
    node = graph.producer(tensor)
    if node is None or not is_reshape(graph, node) or graph.rank(tensor) == _DLA_RANK:
        return None
    return node if graph.rank(node.inputs[0]) == _DLA_RANK else None


def permutation(graph: RewriteGraph, node: Node) -> tuple[int, ...]:
    """Returns the permutation of a Transpose."""
    rank = graph.rank(node.inputs[0])
    return tuple(node.attrs.get("perm") or reversed(range(rank)))


def moves_ones(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Returns True if a transposition of ``shape`` keeps the order of all elements."""
    remaining = [i for i in perm if shape[i] != 1]
    return remaining == sorted(remaining)


def can_write_again(node: Node) -> bool:
    """Returns True if a node can be written again: of ai.onnx, without subgraphs."""
    return not node.domain and node.op not in {"If", "Loop", "Scan", "SequenceMap"}


def parameters(graph: RewriteGraph, node: Node, first: int) -> bool:
    """Returns True if the inputs from ``first`` on are omitted or constants of one element."""
    return all(
        not name or (graph.constant(name) and all(side == 1 for side in graph.shape(name)))
        for name in node.inputs[first:]
    )


def reduces_by_input(op: str, opset: int) -> bool:
    """Returns True if a reduction reads its axes as an input."""
    return opset >= (_SUM_AXES_INPUT if op == "ReduceSum" else _AXES_INPUT)


def reduced_axes(graph: RewriteGraph, node: Node) -> tuple[int, ...] | None:
    """Returns the non-negative axes of a reduction; None if they are computed or missing."""
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
    """An input of an operation on the other side.

    Attributes:
        tensor: The tensor that is read, after the changes below; "" for an omitted input.
        shape: New shape of the tensor, applied first; None for no change.
        perm: Permutation, applied second; None for no change.
        numbers: Constant to read instead of a tensor; fractions get the type of ``tensor``.
    """

    tensor: str = ""
    shape: tuple[int, ...] | None = None
    perm: tuple[int, ...] | None = None
    numbers: tuple[float, ...] | None = None


@document(frozen=True)
class Carried:
    """An operation on the other side.

    Attributes:
        operands: The operands by input.
        attrs: All attributes.
        passed: Nodes whose results the operation no longer reads, or now reads.
        perm: Permutation from the new results to the old results; None if only the shape differs.
    """

    operands: tuple[Operand, ...]
    attrs: Attributes
    passed: tuple[Node, ...] = field(default=())
    perm: tuple[int, ...] | None = None


def write_operand(new: Writer, operand: Operand) -> str:
    """Writes the nodes of an operand and returns its tensor."""
    if operand.numbers is not None:
        return new.constant(list(operand.numbers), like=operand.tensor, role="numbers")
    tensor = operand.tensor
    if operand.shape is not None:
        tensor = reshape(new, tensor, operand.shape)
    if operand.perm is not None:
        tensor = new.node("Transpose", [tensor], perm=list(operand.perm))
    return tensor


def write(new: Writer, node: Node, carried: Carried, outputs: list[str]) -> list[str]:
    """Writes ``node`` on the other side, with its name, and returns its outputs."""
    read = [write_operand(new, operand) for operand in carried.operands]
    return new.many(node.op, read, outputs, name=node.name, **carried.attrs)


def write_needed(
    graph: RewriteGraph,
    new: Writer,
    nodes: tuple[Node, ...],
    gone: tuple[Node, ...],
    carried: Carried | None = None,
) -> None:
    """Writes the nodes of ``nodes`` again, unchanged, whose results are still needed.

    Results are needed by nodes other than ``gone``, or by the operation on the other side.
    """
    read = {operand.tensor for operand in carried.operands} if carried else set()
    for node in nodes:
        named = [name for name in node.outputs if name]
        if not all(graph.inner(name, gone) and name not in read for name in named):
            new.many(node.op, node.inputs, node.outputs, name=node.name, **node.attrs)


def forward(graph: RewriteGraph, node: Node, source: str) -> Replacement:
    """Removes a node whose only used result equals its input ``source``.

    Without other readers of ``source``, its writer writes the result instead. Otherwise a reader of
    the result reads ``source`` instead, other readers in further applications. Does not apply if
    both are impossible: the graph returns the result, and others need the source.
    """
    output = node.outputs[0]
    if any(name and (graph.readers(name) or graph.returned(name)) for name in node.outputs[1:]):
        return
    producer = graph.producer(source)
    reader = a_reader(graph, node)
    if (
        producer is not None
        and can_write_again(producer)
        and graph.inner(source, (node,))
        and (reader is None or _weight(graph, producer) <= max(_HEAVY, _weight(graph, reader)))
    ):
        new = yield (node, producer)
        outputs = [output if name == source else name for name in producer.outputs]
        new.many(producer.op, producer.inputs, outputs, name=producer.name, **producer.attrs)
    elif reader is not None and not graph.returned(output):
        new = yield (node, reader)
        write_needed(graph, new, (node,), (reader,))
        read_instead(new, reader, output, source)


def a_reader(graph: RewriteGraph, node: Node) -> Node | None:
    """Returns the first node that reads a node's first result and can be written again."""
    return next((item for item in graph.readers(node.outputs[0]) if can_write_again(item)), None)


def read_instead(new: Writer, reader: Node, was: str, now: str) -> None:
    """Writes a node again, reading ``now`` instead of ``was``."""
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
    reason="an operation without effect may still be a layer that the DLA refuses",
    enabling=True,
)
def identity_removal(graph: RewriteGraph, node: Node) -> Replacement:
    """Removes a node that returns its input.

    Reshapes to the same shape, transpositions without movement, whole Slices, a Concat, Sum, Max,
    Min or Mean of one tensor, multiplication by the scalar 1, addition of the scalar 0, Clip
    without bounds, pools of one element, reductions over dimensions of size 1, Resize by 1,
    Expand to the same shape and Cast to the same type. Stays if the graph returns the result, and
    others need the input.

    At a node whose result equals an input.
    """
    if node.op in _NEUTRAL:
        source = _neutral(graph, node)
    else:
        source = node.inputs[0] if _does_nothing(graph, node) else None
    if source is None or graph.constant(source):
        return
    same = graph.shape(source) == graph.shape(node.outputs[0])
    if not same or graph.dtype(source) != graph.dtype(node.outputs[0]):
        return
    before = graph.producer(source)
    if node.op in _MAXIMA and before is not None and before.op in _MAKE_NAN:
        return
    yield from forward(graph, node, source)


def _neutral(graph: RewriteGraph, node: Node) -> str | None:
    pairs = [(node.inputs[0], node.inputs[1])]
    if node.op in _EITHER_SIDE:
        pairs.append((node.inputs[1], node.inputs[0]))
    for data, factor in pairs:
        # a derived factor follows the weights: after a refit it may have another value
        known = graph.constant(factor) and not graph.recipe(factor)
        if known and graph.scalar(factor) == _NEUTRAL[node.op]:
            return data
    return None


def _does_nothing(graph: RewriteGraph, node: Node) -> bool:
    if node.op in _BY_SHAPE or is_reshape(graph, node) or node.op in _GLOBAL_POOLS:
        return True
    if node.op in _OF_ONE:
        return len(node.inputs) == 1
    if node.op == "Transpose":
        return moves_ones(graph.shape(node.inputs[0]), permutation(graph, node))
    if node.op == "Slice":
        # the caller compares the shapes: of the same size and with step 1, it is the whole tensor
        steps = graph.ints(node.input(4)) if node.input(4) else [1]
        return steps is not None and all(step == 1 for step in steps)
    if node.op == "Pad":
        # computed pads are unknown, hence not zero
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
    # it may crop and enlarge to the same size
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return False
    if node.input(3):
        # sizes equal to the input's, which the caller compares
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
    """Merges two equal Reshapes, or Transposes, of the same tensor.

    Each application changes one reader; a transposition or reshape without readers is removed, so
    it ends. A node that the graph returns is kept, otherwise the first node.

    At a node with an equal node, and with a reader that can read the equal node instead.
    """
    if graph.returned(node.outputs[0]) or not _moves(graph, node):
        return
    equal = [
        item
        # each reader is tried as ``node``: comparing it with all others would be quadratic
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
    write_needed(graph, new, (node,), (reader,))
    read_instead(new, reader, node.outputs[0], retained.outputs[0])


def _moves(graph: RewriteGraph, node: Node) -> bool:
    return is_reshape(graph, node) or (node.op == "Transpose" and not node.domain)


def _equal(graph: RewriteGraph, first: Node, second: Node) -> bool:
    if not _moves(graph, first) or first.inputs[0] != second.inputs[0]:
        return False
    if (first.op == "Transpose") != (second.op == "Transpose"):
        return False
    if first.op == "Transpose":
        return permutation(graph, first) == permutation(graph, second)
    return graph.shape(first.outputs[0]) == graph.shape(second.outputs[0])


def carry(graph: RewriteGraph, node: Node, by: View) -> Carried | None:
    """Returns ``node``, which works on shape ``by.y``, as an operation on shape ``by.x``.

    None if there is no equal operation on ``by.x``. The caller must reshape its results to the old
    shapes.
    """
    if node.op in BROADCASTING:
        return _carry_broadcasting(graph, node, by)
    if node.op == "Concat":
        return _carry_concat(graph, node, by)
    if graph.shape(node.inputs[0]) != by.y:
        return None
    data, passed = _reshaped_operand(graph, node.inputs[0], by.x)
    if node.op in SINGLE and parameters(graph, node, 1):
        rest = tuple(Operand(name) for name in node.inputs[1:])
        return Carried((data, *rest), node.attrs, passed)
    if node.op in ALONG:
        axis = by.axis(node.attrs.get("axis", -1))
        return None if axis is None else Carried((data,), {**node.attrs, "axis": axis}, passed)
    if node.op == "BatchNormalization" and not node.attrs.get("training_mode"):
        # its vectors are by channel, the second dimension
        if by.x[:2] != by.y[:2] or any(node.outputs[1:]):
            return None
        return Carried((data, *map(Operand, node.inputs[1:])), node.attrs, passed)
    if node.op in REDUCTIONS:
        return _carry_reduction(graph, node, by, data, passed)
    if node.op == "Transpose":
        perm = _blocks(by, permutation(graph, node))
        return None if perm is None else Carried((data,), {"perm": perm}, passed)
    if node.op in {"Pad", "Slice", "Split"}:
        return _carry_along_axes(graph, node, by, data, passed)
    return None


def _reshaped_operand(
    graph: RewriteGraph, tensor: str, shape: tuple[int, ...]
) -> tuple[Operand, tuple[Node, ...]]:
    """Returns a tensor in another shape, reading the source of a reshape that wrote it."""
    node = graph.producer(tensor)
    if node is not None and is_reshape(graph, node):
        source = node.inputs[0]
        return Operand(source, shape if graph.shape(source) != shape else None), (node,)
    return Operand(tensor, shape if graph.shape(tensor) != shape else None), ()


def _carry_broadcasting(graph: RewriteGraph, node: Node, by: View) -> Carried | None:
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
        operand, through = _reshaped_operand(graph, name, shape)
        operands.append(operand)
        passed |= {item.name: item for item in through}
    return Carried(tuple(operands), node.attrs, tuple(passed.values()))


def _carry_concat(graph: RewriteGraph, node: Node, by: View) -> Carried | None:
    axis = node.attrs["axis"] % len(by.y)
    along = by.joined(axis)
    views: list[View] = []
    for name in node.inputs:
        source = reshape_of_image(graph, name)
        shape = graph.shape(name)
        seen = view(graph.shape(source.inputs[0]), shape) if source is not None else None
        if seen is None:
            # along one dimension of x: its own size there, x's sizes elsewhere
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
    # along C if possible: the DLA concatenates along no other axis
    for chosen in sorted(along, key=lambda i: (i != 1, i)):
        if len({(*v.x[:chosen], *v.x[chosen + 1 :]) for v in views}) == 1:
            break
    else:
        return None
    found = [
        _reshaped_operand(graph, name, v.x) for name, v in zip(node.inputs, views, strict=True)
    ]
    passed = {item.name: item for _, through in found for item in through}
    operands = tuple(operand for operand, _ in found)
    return Carried(operands, {"axis": chosen}, tuple(passed.values()))


def _carry_reduction(
    graph: RewriteGraph, node: Node, by: View, data: Operand, passed: tuple[Node, ...]
) -> Carried | None:
    axes = reduced_axes(graph, node)
    if axes is None:
        return None
    found: list[int] = []
    for xs, ys in by.groups:
        inside = [i in axes for i in ys if by.y[i] != 1]
        # x cannot reduce a part of a group
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
    """Returns the permutation of x's dimensions if y's move in whole groups; else None."""
    left = list(perm)
    found: list[int] = []
    while left:
        xs, ys = next(group for group in by.groups if left[0] in group[1])
        if tuple(left[: len(ys)]) != ys:
            return None
        del left[: len(ys)]
        found += xs
    return found


def _carry_along_axes(
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

    A Transpose that moves only dimensions of size 1 counts as a reshape next to a reshape. The
    second node reads the first node's input, so every application shortens a chain. The first stays
    for other readers. ``identity-removal`` removes a reshape without effect.

    At a reshape that reads a reshape.
    """
    first = graph.producer(node.inputs[0])
    if first is None or not _reshapes(graph, node) or not _reshapes(graph, first):
        return
    # ``merge-transposes`` does that
    if node.op == "Transpose" and first.op == "Transpose":
        return
    new = yield (node, first)
    write_needed(graph, new, (first,), (node,))
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

    For operations between a graph input of fewer dimensions, or an operation without a 4-D form,
    and the first 4-D layer: ``sink-reshape`` does not apply there. Only if the reshape is the only
    reader of the result, so that no reshape back is needed. Every application leaves one operation
    fewer that does not work on four dimensions, as with ``sink-reshape``.

    At the writer of a tensor that a reshape makes 4-D.
    """
    if not is_reshape(graph, node) or graph.rank(node.outputs[0]) != _DLA_RANK:
        return
    made = graph.only_reader(node.inputs[0]) and graph.producer(node.inputs[0])
    if made is None or made.op not in KEEPING or made.domain or len(made.outputs) != 1:
        return
    low = graph.shape(node.inputs[0])
    by = view(graph.shape(node.outputs[0]), low) if len(low) != _DLA_RANK else None
    there = carry(graph, made, by) if by is not None else None
    if there is None:
        return
    new = yield (node, made, *there.passed)
    write_needed(graph, new, there.passed, (made,))
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
    tensor has as well; its other inputs are reshaped too. Every application leaves one operation
    fewer that does not work on four dimensions, and no rewrite of this package adds such an
    operation, so it ends.

    At an operation with an operand reshaped from a 4-D tensor.
    """
    several = node.op in BROADCASTING or node.op == "Concat"
    for name in dict.fromkeys(node.inputs if several else node.inputs[:1]):
        made = reshape_of_image(graph, name)
        if made is None:
            continue
        by = view(graph.shape(made.inputs[0]), graph.shape(name))
        there = carry(graph, node, by) if by is not None else None
        if there is not None:
            break
    else:
        return
    new = yield (node, *there.passed)
    write_needed(graph, new, there.passed, (node,))
    results = write(new, node, there, [""] * len(node.outputs))
    gone = [item.name for item in there.passed if graph.inner(item.outputs[0], (node,))]
    for wide, old in zip(results, node.outputs, strict=True):
        # the reshape moves, so it keeps its name
        name = gone.pop() if gone else f"{node.name}:reshape"
        reshape(new, wide, graph.shape(old), output=old, name=name)
