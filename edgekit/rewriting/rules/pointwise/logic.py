"""Truth values as numbers 0 and 1: Where, logic and comparisons with constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pointwise.broadcasting import broadcasts, spread, spreadable
from edgekit.rewriting.rules.pointwise.operands import (
    LARGEST_FP16,
    channels,
    form,
    image,
    number,
    scaled,
    to_shape,
    vector,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


LOGICAL = frozenset({"And", "Or", "Xor", "Not"})
# not (a < b), which only differs for what is not a number
NEGATED = {"GreaterOrEqual": "Less", "LessOrEqual": "Greater"}
_LARGEST_TREE = 16
_RANK = 4


def elem_type(dtype: str) -> int:
    """Returns ONNX's number of a NumPy type name."""
    import numpy as np
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class Tree(NamedTuple):
    """The nodes that compute a truth value.

    Attributes:
        nodes: And, Or, Xor, Not, GreaterOrEqual and LessOrEqual.
        again: Those of them that others read too, with what computes them, producers first.
    """

    nodes: tuple[Node, ...]
    again: tuple[Node, ...]


def tree(graph: RewriteGraph, root: str, reader: Node | None) -> Tree | None:
    """Returns the nodes that compute the truth value ``root``, down to comparisons and inputs.

    None if one of the tensors is not N x C x H x W, or there is too much of it.

    Args:
        graph: The graph.
        root: A tensor of truth values.
        reader: The node that is to read numbers in its place; None when ``root`` is written anew
            from numbers, for all that read it.
    """
    found: dict[str, Node] = {}
    waiting = [root]
    while waiting:
        tensor = waiting.pop()
        if graph.constant(tensor):
            continue
        node = graph.producer(tensor)
        if graph.rank(tensor) != _RANK:
            return None
        if node is None or node.domain or node.op not in {*LOGICAL, *NEGATED}:
            continue
        if node.name in found:
            continue
        found[node.name] = node
        if len(found) > _LARGEST_TREE:
            return None
        if node.op in NEGATED:
            if not all(image(graph, name) for name in node.inputs):
                return None
            continue
        if all(graph.constant(name) for name in node.inputs):
            return None
        waiting += node.inputs
    return Tree(tuple(found.values()), _shared(graph, found, root, reader))


def _shared(
    graph: RewriteGraph, found: Mapping[str, Node], root: str, reader: Node | None
) -> tuple[Node, ...]:
    """Nodes whose truth values others need, in topological order."""
    inside = [*found.values(), *([reader] if reader is not None else [])]
    ordered: dict[str, Node] = {}

    def add(node: Node) -> None:
        for name in node.inputs:
            before = graph.producer(name)
            if before is not None and before.name in found and before.name not in ordered:
                add(before)
        ordered[node.name] = node

    for node in found.values():
        output = node.outputs[0]
        anew = reader is None and output == root
        if not anew and not graph.inner(output, inside):
            add(node)
    return tuple(ordered.values())


class Mask:
    """Writes the numbers of truth values.

    NVIDIA's recipes (github.com/NVIDIA/Deep-Learning-Accelerator-SW, operators/op_reconstruction):
    And is the product, Or the maximum, Not 1 - a, Xor |a - b|.
    """

    def __init__(self, graph: RewriteGraph, new: Writer, dtype: str) -> None:
        self._graph, self._new, self._dtype = graph, new, dtype
        self._known: dict[str, str] = {}

    def repeat(self, nodes: Sequence[Node]) -> None:
        """Writes logic again as it was, for those that still read its truth values."""
        for node in nodes:
            self._new.node(node.op, node.inputs, output=node.outputs[0], name=node.name)

    def of(self, tensor: str, output: str = "") -> str:
        """Returns a tensor of the numbers of ``tensor``, in its shape."""
        if tensor in self._known and not output:
            return self._known[tensor]
        node = None if self._graph.constant(tensor) else self._graph.producer(tensor)
        if node is not None and not node.domain and node.op in LOGICAL:
            made = self._logical(node, output)
        elif node is not None and not node.domain and node.op in NEGATED:
            compared = self._new.node(NEGATED[node.op], node.inputs, role="compared")
            made = self._not(self._cast(compared), self._channels(tensor), output)
        else:
            made = self._cast(tensor, output)
        self._known[tensor] = made
        return made

    def _logical(self, node: Node, output: str) -> str:
        new, shape = self._new, self._graph.shape(node.outputs[0])
        if node.op == "Not":
            return self._not(self.of(node.inputs[0]), shape[1], output)
        fixed = [self._graph.constant(name) for name in node.inputs]
        if any(fixed):
            return self._with_constant(node, fixed.index(True), output)
        left, right = (self.of(name) for name in node.inputs)
        if node.op == "Xor":
            apart = new.node("Sub", [left, right], role="difference")
            return new.node("Abs", [apart], output=output)
        return new.node("Mul" if node.op == "And" else "Max", [left, right], output=output)

    def _with_constant(self, node: Node, place: int, output: str) -> str:
        """A constant operand as factor and shift, so that it is no layer of its own."""
        new = self._new
        constant, source = node.inputs[place], node.inputs[1 - place]
        fixed = self._cast(to_shape(self._graph, new, constant, self._graph.shape(source)))
        mask = self.of(source)
        if node.op == "And":
            return new.node("Mul", [mask, fixed], output=output)
        # a or 1 = 1, a xor 1 = 1 - a
        less = new.constant(1.0 if node.op == "Or" else 2.0)
        rest = new.node("Sub", [new.constant(1.0), new.node("Mul", [fixed, less])], role="rest")
        masked = new.node("Mul", [mask, rest], role="kept")
        return new.node("Add", [masked, fixed], output=output)

    def _not(self, mask: str, count: int, output: str) -> str:
        return scaled(self._new, mask, -1.0, 1.0, count, output=output, role="not")

    def _cast(self, tensor: str, output: str = "") -> str:
        to = elem_type(self._dtype)
        return self._new.node("Cast", [tensor], output=output, role="number", to=to)

    def _channels(self, tensor: str) -> int:
        return self._graph.shape(tensor)[1]


class Where:
    """c a + (1 - c) b for c of 0 and 1: differs where a or b is infinite or not a number."""

    name = "where"
    reason = (
        "the DLA has no selection; c a + (1 - c) b with a condition of 0 and 1 is the same for "
        "finite numbers"
    )
    operators: tuple[str, ...] = ("Where",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Where of images and constants that FP16 can hold."""
        condition, *branches = node.inputs
        output = node.outputs[0]
        whole = graph.shape(output)
        if not graph.floats(output) or len(whole) != _RANK:
            return None
        if not all(_branch(graph, name, whole) for name in branches):
            return None
        fixed = graph.constant(condition)
        if fixed:
            fits = form(graph.shape(condition), whole)
            moving = [name for name in branches if not graph.constant(name)]
            if not fits or not moving or not all(_within(graph, name) for name in branches):
                return None
            return Match((node,))
        found = tree(graph, condition, node)
        if found is None or graph.dtype(condition) != "bool":
            return None
        if not _fits(graph, condition, branches, whole):
            return None
        if not all(_within(graph, name) for name in branches):
            return None
        return Match((node, *found.nodes), found.again)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the products and their sum, or the scale that they amount to."""
        node = match.nodes[0]
        if graph.constant(node.inputs[0]):
            _by_constant(graph, new, node)
        else:
            _by_mask(graph, new, node, match.facts)


def _branch(graph: RewriteGraph, name: str, whole: Sequence[int]) -> bool:
    if not graph.constant(name):
        return image(graph, name) and graph.shape(name) == tuple(whole)
    return bool(form(graph.shape(name), whole))


def _within(graph: RewriteGraph, name: str) -> bool:
    """Whether a constant is within FP16: 0 times what is not (a mask of -inf) is no number.

    The one place where the values of an array decide, looked at when all else fits.
    """
    import numpy as np

    value = graph.value(name)
    return value is None or bool((np.abs(value) <= LARGEST_FP16).all())


def _fits(
    graph: RewriteGraph, condition: str, branches: Sequence[str], whole: Sequence[int]
) -> bool:
    shape = graph.shape(condition)
    if shape == tuple(whole):
        return True
    if not all(graph.constant(name) for name in branches) and broadcasts(shape, whole):
        return True
    return graph.dtype(branches[0]) == "float32" and spreadable(shape, whole)


def _by_mask(graph: RewriteGraph, new: Writer, node: Node, again: Sequence[Node]) -> None:
    condition, *branches = node.inputs
    output = node.outputs[0]
    whole = graph.shape(output)
    shape = graph.shape(condition)
    masks = Mask(graph, new, graph.dtype(output))
    masks.repeat(again)
    mask = masks.of(condition)
    arrays = [n for n in branches if graph.constant(n) and number(graph, n) is None]
    moving = [n for n in branches if not graph.constant(n)]
    if shape != whole and (arrays or not moving or not broadcasts(shape, whole)):
        mask, shape = spread(new, mask, shape, whole), whole
    yes, no = (None if not graph.constant(n) else number(graph, n) for n in branches)
    if yes is not None and no is not None:
        scaled(new, mask, yes - no, no, shape[1], output=output)
        return
    if no == 0.0 or yes == 0.0:
        # half of it is nothing
        part = mask if no == 0.0 else scaled(new, mask, -1.0, 1.0, shape[1], role="not")
        operand = branches[0] if no == 0.0 else branches[1]
        _product(graph, new, part, operand, whole, output)
        return
    parts = []
    for name, value, factor, shift in (
        (branches[0], yes, 1.0, 0.0),
        (branches[1], no, -1.0, 1.0),
    ):
        if value is not None:
            line = (factor * value, shift * value)
            parts.append(scaled(new, mask, *line, shape[1], role="number"))
            continue
        part = mask if factor > 0 else scaled(new, mask, factor, shift, shape[1], role="not")
        parts.append(_product(graph, new, part, name, whole, ""))
    new.node("Add", parts, output=output)


def _product(
    graph: RewriteGraph, new: Writer, mask: str, operand: str, whole: Sequence[int], output: str
) -> str:
    if graph.constant(operand):
        operand = to_shape(graph, new, operand, whole)
    return new.node("Mul", [mask, operand], output=output)


def _by_constant(graph: RewriteGraph, new: Writer, node: Node) -> None:
    """The condition is known: factors and shifts of 0 and 1."""
    condition, *branches = node.inputs
    output = node.outputs[0]
    whole = graph.shape(output)
    to = elem_type(graph.dtype(output))
    mask = new.node("Cast", [to_shape(graph, new, condition, whole)], role="number", to=to)
    rest = new.node("Sub", [new.constant(1.0), mask], role="not")
    moving = [
        new.node(
            "Mul",
            [name, part],
            output=output if any(number(graph, n) == 0.0 for n in branches) else "",
            role="part",
        )
        for name, part in zip(branches, (mask, rest), strict=True)
        if not graph.constant(name)
    ]
    if len(moving) == 1:
        (fixed,) = (n for n in branches if graph.constant(n))
        if number(graph, fixed) == 0.0:
            return
        part = mask if fixed == branches[0] else rest
        moving.append(_passed(graph, new, fixed, part, whole))
    new.node("Add", moving, output=output)


def _passed(graph: RewriteGraph, new: Writer, fixed: str, part: str, whole: Sequence[int]) -> str:
    """Returns the constant that is added where the condition lets it through, in full."""
    product = new.node("Mul", [fixed, part], role="fixed")
    return new.node("Expand", [product, new.constant([1, *whole[1:]])], role="repeated")


class Logic:
    """Casts stand right after the comparisons, as the DLA wants them; the rest is in numbers.

    Equal to the truth values except where a comparison meets what is not a number (NaN).
    """

    name = "logic"
    reason = (
        "the DLA has no logic on truth values; as 0 and 1, and is a product, or a maximum, not "
        "1 - a, and exclusive or |a - b|"
    )
    operators: tuple[str, ...] = ("Cast", *sorted(LOGICAL), *NEGATED)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Cast of logic to numbers, or logic whose truth values the graph returns."""
        if node.op == "Cast":
            source, output = node.inputs[0], node.outputs[0]
            if graph.constant(source) or graph.dtype(source) != "bool" or not graph.floats(output):
                return None
            found = tree(graph, source, node)
            if found is None or not found.nodes:
                return None
            return Match((node, *found.nodes), (source, output, "", found.again))
        output = node.outputs[0]
        found = tree(graph, output, None) if graph.returned(output) else None
        if found is None:
            return None
        others = tuple(other for other in found.nodes if other is not node)
        return Match((node, *others), (output, "", output, found.again))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the arithmetic; a cast to truth values where the graph returns them."""
        source, numbers, truth, again = match.facts
        typed = numbers or next((n for n in match.nodes[0].inputs if graph.floats(n)), "")
        dtype = graph.dtype(typed) if typed else "float32"
        mask = Mask(graph, new, dtype)
        mask.repeat(again)
        made = mask.of(source, numbers)
        if truth:
            new.node("Cast", [made], output=truth, role="truth", to=elem_type("bool"))


class CompareConstant:
    """The other operand 0 * x + c is the constant c for every finite x."""

    name = "compare-constant"
    reason = (
        "a constant operand of a comparison stays on the GPU; a scale of the other operand by 0 "
        "plus the constant makes the same operand on the DLA"
    )
    operators: tuple[str, ...] = ("Equal", "Greater", "Less")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A comparison of an image with a number, or one for each channel, cast to numbers."""
        fixed = [graph.constant(name) for name in node.inputs]
        if fixed not in ([True, False], [False, True]):
            return None
        source, constant = node.inputs[fixed.index(False)], node.inputs[fixed.index(True)]
        if not image(graph, source) or graph.dtype(constant) != graph.dtype(source):
            return None
        if form(graph.shape(constant), graph.shape(source)) not in {"uniform", "channel"}:
            return None
        # the DLA compares only where a cast to numbers follows
        readers = graph.readers(node.outputs[0])
        if not readers or any(reader.op != "Cast" for reader in readers):
            return None
        return Match((node,), (source, constant))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the operand and the comparison."""
        node = match.nodes[0]
        source, constant = match.facts
        count = channels(graph, source)
        value = vector(graph, new, constant, count)
        operand = scaled(new, source, 0.0, value, count, role="operand")
        operands = [operand if name == constant else name for name in node.inputs]
        new.node(node.op, operands, output=node.outputs[0])
