"""Scales, arithmetic, broadcasting and logic.

Nodes that become one scale or a sum; operands that repeat in a form that the DLA does not support;
and truth values as numbers 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from onnx import helper

from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import (
    LARGEST_FP16,
    channels,
    constant_form,
    expand_to_shape,
    is_image,
    read_number,
    write_scaled,
    write_vector,
)

_LONGEST_CHAIN = 8
_OPERATORS = ("Add", "Mul", "Sub", "Div", "Neg", "BatchNormalization")
_PAIR = 2
LOGICAL = frozenset({"And", "Or", "Xor", "Not"})
# not (a < b), which differs only for NaN
NEGATED = {"GreaterOrEqual": "Less", "LessOrEqual": "Greater"}
_LARGEST_TREE = 16
_RANK = 4


@rewrite(
    "scale-chain",
    operators=_OPERATORS,
    reason="consecutive multiplications and additions of constants become one SCALE layer",
)
def scale_chain(graph: RewriteGraph, node: Node) -> Replacement:
    """Merges scales: frozen batch normalisation (Mul, Add), normalised inputs (Sub, Div), etc.

    FP32 models only: constants derived in FP16 would be less exact than the replaced nodes.

    At the last of two or more scales.
    """
    source = _scaled_by(graph, node)
    if not source or graph.dtype(source) != "float32":
        return
    reader = graph.only_reader(node.outputs[0])
    # only the last scale of a chain is an anchor: from each other a step would merge a part
    if reader is not None and _scaled_by(graph, reader) == node.outputs[0]:
        return
    chain = [node]
    while len(chain) < _LONGEST_CHAIN:
        before = graph.producer(source)
        further = _scaled_by(graph, before) if before is not None else ""
        if before is None or not further or graph.only_reader(source) is None:
            break
        chain.append(before)
        source = further
    if len(chain) <= 1:
        return
    new = yield tuple(chain)
    count = graph.shape(source)[1]
    line = _LinearMap(graph, new, count)
    current = source
    # the chain was collected upwards
    for item in reversed(chain):
        line.then(item, current)
        current = item.outputs[0]
    write_scaled(new, source, line.factor, line.shift, count, output=node.outputs[0])


def _scaled_by(graph: RewriteGraph, node: Node) -> str:
    """Returns the image that a node scales by a number or by channel; "" if none."""
    if node.domain or node.op not in _OPERATORS:
        return ""
    if node.op in {"Neg", "BatchNormalization"}:
        rest = node.inputs[1:]
        plain = len(node.outputs) == 1 and not node.attrs.get("training_mode", 0)
        fits = plain and all(graph.constant(name) and graph.floats(name) for name in rest)
        return node.inputs[0] if fits and is_image(graph, node.inputs[0]) else ""
    left, right = node.inputs
    if graph.constant(left) == graph.constant(right):
        return ""
    source, constant = (right, left) if graph.constant(left) else (left, right)
    # c / x is no linear map
    if node.op == "Div" and source == right:
        return ""
    if not is_image(graph, source) or graph.dtype(constant) != graph.dtype(source):
        return ""
    fits = constant_form(graph.shape(constant), graph.shape(source)) in {"uniform", "channel"}
    return source if fits else ""


class _LinearMap:
    """The map factor * x + shift, as vectors of C elements derived from constants."""

    def __init__(self, graph: RewriteGraph, new: Writer, count: int) -> None:
        self._graph, self._new, self._count = graph, new, count
        self.factor = new.constant(np.ones(count), role="one")
        self.shift = new.constant(np.zeros(count), role="zero")

    def then(self, node: Node, source: str) -> None:
        """Appends a node's map."""
        if node.op == "Neg":
            self._turn()
            return
        if node.op == "BatchNormalization":
            self._normalise(node)
            return
        first = node.inputs[0] != source
        constant = node.inputs[0] if first else node.inputs[1]
        value = write_vector(self._graph, self._new, constant, self._count)
        if node.op in {"Mul", "Div"}:
            self.factor = self._new.node(node.op, [self.factor, value], role="factor")
            self.shift = self._new.node(node.op, [self.shift, value], role="shift")
            return
        # c - x
        if node.op == "Sub" and first:
            self._turn()
        op = "Sub" if node.op == "Sub" and not first else "Add"
        self.shift = self._new.node(op, [self.shift, value], role="shift")

    def _turn(self) -> None:
        self.factor = self._new.node("Neg", [self.factor], role="factor")
        self.shift = self._new.node("Neg", [self.shift], role="shift")

    def _normalise(self, node: Node) -> None:
        new = self._new
        _, scale, bias, mean, variance = node.inputs
        epsilon = new.constant(float(node.attrs.get("epsilon", 1e-5)), like=variance)
        deviation = new.node("Sqrt", [new.node("Add", [variance, epsilon])])
        gain = new.node("Div", [scale, deviation], role="gain")
        self.factor = new.node("Mul", [self.factor, gain], role="factor")
        moved = new.node("Mul", [new.node("Sub", [self.shift, mean]), gain], role="moved")
        self.shift = new.node("Add", [moved, bias], role="shift")


@rewrite(
    "scale-form",
    operators=("Add", "Mul", "Sub", "Div", "Sum"),
    reason="the builder makes a SCALE layer only if the constant is one number, one per channel or "
    "one per element; other constants stay on the GPU",
)
def scale_form(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes c - x, x / c, Sum(x, c), and constants that repeat along H or W only, as scales.

    "broadcast-operand" handles a constant that makes the result larger than the activation.

    At an operation of an image and a constant that is not a SCALE layer, or a division.
    """
    if len(node.inputs) != 2:
        return
    fixed = [graph.constant(name) for name in node.inputs]
    if fixed not in ([True, False], [False, True]):
        return
    constant_first = fixed[0]
    source, constant = reversed(node.inputs) if constant_first else node.inputs
    if not is_image(graph, source) or graph.dtype(constant) != graph.dtype(source):
        return
    fits = constant_form(graph.shape(constant), graph.shape(source))
    if not fits or (node.op == "Div" and constant_first):
        return
    turned = node.op == "Sub" and constant_first
    # the builder makes a SCALE layer of these without help
    if not turned and node.op not in {"Div", "Sum"} and fits != "other":
        return
    new = yield (node,)
    output, shape = node.outputs[0], graph.shape(source)
    if turned and fits in {"uniform", "channel"}:
        shift = write_vector(graph, new, constant, shape[1])
        write_scaled(new, source, -1.0, shift, shape[1], output=output)
        return
    operand = expand_to_shape(graph, new, constant, shape)
    if turned:
        source = write_scaled(new, source, -1.0, 0.0, shape[1], role="turned")
    if node.op == "Div":
        # on the constant, so it is a recipe
        operand = new.node("Reciprocal", [operand])
    op = {"Div": "Mul", "Sum": "Add"}.get(node.op, "Add" if turned else node.op)
    new.node(op, [source, operand], output=output)


@rewrite("neg", operators=("Neg",), reason="the DLA has no negation; a scale by -1 is the same")
def neg(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes Neg as a scale, as NVIDIA's recipe does.

    At a Neg of an image.
    """
    if not is_image(graph, node.inputs[0]):
        return
    new = yield (node,)
    source = node.inputs[0]
    write_scaled(new, source, -1.0, 0.0, channels(graph, source), output=node.outputs[0])


def broadcasts(small: Sequence[int], large: Sequence[int]) -> bool:
    """Returns True if a DLA element-wise layer supports these shapes; ``large`` is the result's."""
    n, c, _, _ = large
    return tuple(small) in {tuple(large), (n, c, 1, 1), (n, 1, 1, 1)}


def can_spread(small: Sequence[int], large: Sequence[int]) -> bool:
    """Returns True if ``spread`` can repeat a tensor of one 4-D shape to another."""
    if len(small) != len(large) or small[0] != large[0]:
        return False
    if any(s not in {1, t} for s, t in zip(small, large, strict=True)):
        return False
    times = [t // s for s, t in zip(small[2:], large[2:], strict=True)]
    return all(_steps(factor) is not None for factor in times)


def spread(
    new: Writer, source: str, small: Sequence[int], large: Sequence[int], *, output: str = ""
) -> str:
    """Writes copies along C as a convolution with ones, along H and W as a nearest resize.

    Args:
        new: The replacement.
        source: Tensor of shape ``small``, FP32.
        small: N x c x h x w, each the size in ``large`` or 1; N the same.
        large: N x C x H x W.
        output: Tensor to write if the shapes differ; a new tensor if empty.
    """
    writes = []
    if small[1] != large[1]:
        writes.append("Conv")
    rows, columns = (_steps(t // s) or [] for s, t in zip(small[2:], large[2:], strict=True))
    count = max(len(rows), len(columns))
    # one resize does a step of both axes
    rows, columns = rows + [1] * (count - len(rows)), columns + [1] * (count - len(columns))
    for index in range(len(writes) + count):
        last = output if index == len(writes) + count - 1 else ""
        if index < len(writes):
            ones = new.constant(np.ones((large[1], 1, 1, 1)), role="ones")
            source = new.node(
                "Conv", [source, ones], output=last, role="copies", kernel_shape=[1, 1]
            )
            continue
        at = index - len(writes)
        scales = new.constant([1.0, 1.0, float(rows[at]), float(columns[at])], role="scales")
        source = new.node(
            "Resize",
            [source, "", scales],
            output=last,
            role="repeated",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    return source


def _steps(factor: int) -> list[int] | None:
    """Factors of ``factor`` in the range of a nearest resize; None if there are none."""
    most = rule_range("resize.nearest_scale")[1]
    if factor == 1:
        return []
    if factor <= most:
        return [factor]
    first = next((f for f in range(most, 1, -1) if factor % f == 0 and factor // f <= most), None)
    return None if first is None else [first, factor // first]


@rewrite(
    "broadcast-operand",
    operators=("Add", "Mul", "Sub", "Div", "Max", "Min", "Sum"),
    reason="the second operand of an element-wise layer on the DLA must be NCHW, NC11 or N111; a "
    "convolution with ones repeats along C, a nearest resize along H and W",
)
def broadcast_operand(graph: RewriteGraph, node: Node) -> Replacement:
    """Repeats a spatial attention map [N, 1, H, W], a row [N, C, 1, W], or a small tensor.

    Batches and operands of fewer dimensions are not repeated: no DLA layer supports either.

    At an operation of two images, or of an image and a (large) constant, that the DLA lacks.
    """
    whole = graph.shape(node.outputs[0])
    if len(node.inputs) != _PAIR or len(whole) != 4 or not _grows(graph, node, whole):
        return
    new = yield (node,)
    unchanged = _small_operand(graph, node, whole)
    operands = []
    for name in node.inputs:
        if graph.constant(name):
            operands.append(expand_to_shape(graph, new, name, whole))
        elif name == unchanged:
            operands.append(name)
        else:
            operands.append(spread(new, name, graph.shape(name), whole))
    new.node(node.op, operands, output=node.outputs[0])


def _grows(graph: RewriteGraph, node: Node, whole: Sequence[int]) -> bool:
    """Returns True if an operand must and can be repeated for the DLA to support the operation."""
    fixed = [graph.constant(name) for name in node.inputs]
    if all(fixed) or graph.dtype(node.outputs[0]) != "float32":
        return False
    if any(fixed):
        source = node.inputs[fixed.index(False)]
        if not is_image(graph, source) or graph.shape(source) == whole:
            return False
        # only these become a SCALE layer with a constant
        if node.op not in {"Add", "Mul", "Sub"} or (node.op == "Sub" and fixed[0]):
            return False
        return can_spread(graph.shape(source), whole)
    if not all(is_image(graph, name) for name in node.inputs):
        return False
    small, large = (graph.shape(name) for name in node.inputs)
    # either operand may be the smaller, and both may be smaller than the result
    if large != whole:
        small, large = large, small
    if large == whole and broadcasts(small, whole):
        return False
    return all(can_spread(s, whole) for s in (small, large))


def _small_operand(graph: RewriteGraph, node: Node, whole: Sequence[int]) -> str:
    """Returns the operand that may stay small because the other operand gets the whole shape."""
    # constants are expanded by a recipe, at no cost
    if any(graph.constant(name) for name in node.inputs):
        return ""
    fits = [name for name in node.inputs if broadcasts(graph.shape(name), whole)]
    return fits[0] if fits else ""


def elem_type(dtype: str) -> int:
    """Returns ONNX's type number for a NumPy type name."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class Tree(NamedTuple):
    """The nodes that compute a truth value.

    Attributes:
        nodes: And, Or, Xor, Not, GreaterOrEqual and LessOrEqual.
        again: Nodes of ``nodes`` that others read too, with their inputs' nodes, producers first.
    """

    nodes: tuple[Node, ...]
    again: tuple[Node, ...]


def find_tree(graph: RewriteGraph, root: str, reader: Node | None) -> Tree | None:
    """Returns the nodes that compute the truth value ``root``, down to comparisons and inputs.

    None if a tensor is not N x C x H x W, or if there are too many nodes.

    Args:
        graph: The graph.
        root: A tensor of truth values.
        reader: The node that will read numbers instead; None if ``root`` is written again from
            numbers, for all readers.
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
            if not all(is_image(graph, name) for name in node.inputs):
                return None
            continue
        # a recipe, which stays in truth values
        if all(graph.constant(name) for name in node.inputs):
            return None
        waiting += node.inputs
    return Tree(tuple(found.values()), _shared(graph, found, root, reader))


def _shared(
    graph: RewriteGraph, found: Mapping[str, Node], root: str, reader: Node | None
) -> tuple[Node, ...]:
    """Returns the nodes whose truth values others need, in topological order."""
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
    """Writes truth values as numbers 0 and 1.

    NVIDIA's recipes (github.com/NVIDIA/Deep-Learning-Accelerator-SW, operators/op_reconstruction):
    And is the product, Or the maximum, Not 1 - a, Xor |a - b|.
    """

    def __init__(self, graph: RewriteGraph, new: Writer, dtype: str) -> None:
        self._graph, self._new, self._dtype = graph, new, dtype
        self._known: dict[str, str] = {}

    def repeat(self, nodes: Sequence[Node]) -> None:
        """Writes logic nodes again unchanged, for remaining readers of their truth values."""
        for node in nodes:
            self._new.node(node.op, node.inputs, output=node.outputs[0], name=node.name)

    def of(self, tensor: str, output: str = "") -> str:
        """Returns a tensor with the truth values of ``tensor`` as numbers, in the same shape."""
        # a requested output needs a node that writes it
        if tensor in self._known and not output:
            return self._known[tensor]
        node = None if self._graph.constant(tensor) else self._graph.producer(tensor)
        if node is not None and not node.domain and node.op in LOGICAL:
            made = self._logical(node, output)
        elif node is not None and not node.domain and node.op in NEGATED:
            # the DLA compares by Less, Greater and Equal only
            compared = self._new.node(NEGATED[node.op], node.inputs, role="compared")
            made = self._not(self._cast(compared), self._graph.shape(tensor)[1], output)
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
        """Writes a constant operand as factor and shift, so that it needs no separate layer."""
        new = self._new
        constant, source = node.inputs[place], node.inputs[1 - place]
        fixed = self._cast(expand_to_shape(self._graph, new, constant, self._graph.shape(source)))
        mask = self.of(source)
        if node.op == "And":
            return new.node("Mul", [mask, fixed], output=output)
        # a or 1 = 1, a xor 1 = 1 - a
        less = new.constant(1.0 if node.op == "Or" else 2.0)
        rest = new.node("Sub", [new.constant(1.0), new.node("Mul", [fixed, less])], role="rest")
        masked = new.node("Mul", [mask, rest], role="kept")
        return new.node("Add", [masked, fixed], output=output)

    def _not(self, mask: str, count: int, output: str) -> str:
        return write_scaled(self._new, mask, -1.0, 1.0, count, output=output, role="not")

    def _cast(self, tensor: str, output: str = "") -> str:
        to = elem_type(self._dtype)
        return self._new.node("Cast", [tensor], output=output, role="number", to=to)


@rewrite(
    "where",
    operators=("Where",),
    reason=(
        "the DLA has no selection; c a + (1 - c) b with a condition of 0 and 1 is the same for "
        "finite numbers"
    ),
)
def where(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes c a + (1 - c) b for c of 0 and 1; differs if a or b is infinite or NaN.

    At a Where of images and constants that FP16 can hold.
    """
    condition, *branches = node.inputs
    output = node.outputs[0]
    whole = graph.shape(output)
    if not graph.floats(output) or len(whole) != _RANK:
        return
    if not all(_branch(graph, name, whole) for name in branches):
        return
    fixed = graph.constant(condition)
    if fixed:
        fits = constant_form(graph.shape(condition), whole)
        moving = [name for name in branches if not graph.constant(name)]
        if not fits or not moving or not all(_is_within_fp16(graph, name) for name in branches):
            return
        new = yield (node,)
        _by_constant(graph, new, node)
        return
    found = find_tree(graph, condition, node)
    if found is None or graph.dtype(condition) != "bool":
        return
    if not _condition_fits(graph, condition, branches, whole):
        return
    if not all(_is_within_fp16(graph, name) for name in branches):
        return
    new = yield (node, *found.nodes)
    _by_mask(graph, new, node, found.again)


def _branch(graph: RewriteGraph, name: str, whole: Sequence[int]) -> bool:
    if not graph.constant(name):
        return is_image(graph, name) and graph.shape(name) == tuple(whole)
    return bool(constant_form(graph.shape(name), whole))


def _is_within_fp16(graph: RewriteGraph, name: str) -> bool:
    """Returns True if a constant is within FP16: 0 times a larger value (a mask of -inf) is NaN.

    Called last, because it reads an array's values.
    """
    value = graph.value(name)
    return value is None or bool((np.abs(value) <= LARGEST_FP16).all())


def _condition_fits(
    graph: RewriteGraph, condition: str, branches: Sequence[str], whole: Sequence[int]
) -> bool:
    shape = graph.shape(condition)
    if shape == tuple(whole):
        return True
    if not all(graph.constant(name) for name in branches) and broadcasts(shape, whole):
        return True
    return graph.dtype(branches[0]) == "float32" and can_spread(shape, whole)


def _by_mask(graph: RewriteGraph, new: Writer, node: Node, again: Sequence[Node]) -> None:
    condition, *branches = node.inputs
    output = node.outputs[0]
    whole = graph.shape(output)
    shape = graph.shape(condition)
    masks = Mask(graph, new, graph.dtype(output))
    masks.repeat(again)
    mask = masks.of(condition)
    arrays = [n for n in branches if graph.constant(n) and read_number(graph, n) is None]
    moving = [n for n in branches if not graph.constant(n)]
    # an array is a scale of a whole mask; without another activation the mask alone gives the shape
    if shape != whole and (arrays or not moving or not broadcasts(shape, whole)):
        mask, shape = spread(new, mask, shape, whole), whole
    yes, no = (None if not graph.constant(n) else read_number(graph, n) for n in branches)
    # no + (yes - no) c is one scale
    if yes is not None and no is not None:
        write_scaled(new, mask, yes - no, no, shape[1], output=output)
        return
    if no == 0.0 or yes == 0.0:
        # one of the two products is zero
        part = mask if no == 0.0 else write_scaled(new, mask, -1.0, 1.0, shape[1], role="not")
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
            parts.append(write_scaled(new, mask, *line, shape[1], role="number"))
            continue
        part = mask if factor > 0 else write_scaled(new, mask, factor, shift, shape[1], role="not")
        parts.append(_product(graph, new, part, name, whole, ""))
    new.node("Add", parts, output=output)


def _product(
    graph: RewriteGraph, new: Writer, mask: str, operand: str, whole: Sequence[int], output: str
) -> str:
    if graph.constant(operand):
        operand = expand_to_shape(graph, new, operand, whole)
    return new.node("Mul", [mask, operand], output=output)


def _by_constant(graph: RewriteGraph, new: Writer, node: Node) -> None:
    """Writes a Where with a constant condition, by factors and shifts of 0 and 1."""
    condition, *branches = node.inputs
    output = node.outputs[0]
    whole = graph.shape(output)
    to = elem_type(graph.dtype(output))
    mask = new.node("Cast", [expand_to_shape(graph, new, condition, whole)], role="number", to=to)
    # condition and factors are constants, so all this is a recipe
    rest = new.node("Sub", [new.constant(1.0), mask], role="not")
    moving = [
        new.node(
            "Mul",
            [name, part],
            # the only product is the result if the other branch is 0
            output=output if any(read_number(graph, n) == 0.0 for n in branches) else "",
            role="part",
        )
        for name, part in zip(branches, (mask, rest), strict=True)
        if not graph.constant(name)
    ]
    if len(moving) == 1:
        (fixed,) = (n for n in branches if graph.constant(n))
        if read_number(graph, fixed) == 0.0:
            return
        part = mask if fixed == branches[0] else rest
        # the constant times its condition, in full shape, to be added
        chosen = new.node("Mul", [fixed, part], role="fixed")
        repeats = new.constant([1, *whole[1:]])
        moving.append(new.node("Expand", [chosen, repeats], role="repeated"))
    new.node("Add", moving, output=output)


@rewrite(
    "logic",
    operators=("Cast", *sorted(LOGICAL), *NEGATED),
    reason="the DLA has no logical operations; on 0 and 1, And is a product, Or a maximum, Not 1 - "
    "a and Xor |a - b|",
)
def logic(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes casts directly after the comparisons, as the DLA requires, and logic in numbers.

    Equal to the truth values unless a comparison reads NaN.

    At a Cast of logic to numbers, or logic whose truth values the graph returns.
    """
    if node.op == "Cast":
        source, numbers, truth = node.inputs[0], node.outputs[0], ""
        if graph.constant(source) or graph.dtype(source) != "bool" or not graph.floats(numbers):
            return
        found = find_tree(graph, source, node)
        # a cast of a comparison is the form that the DLA takes
        if found is None or not found.nodes:
            return
    else:
        source, numbers, truth = node.outputs[0], "", node.outputs[0]
        found = find_tree(graph, source, None) if graph.returned(source) else None
        if found is None:
            return
    new = yield (node, *(other for other in found.nodes if other is not node))
    typed = numbers or next((n for n in node.inputs if graph.floats(n)), "")
    dtype = graph.dtype(typed) if typed else "float32"
    mask = Mask(graph, new, dtype)
    mask.repeat(found.again)
    made = mask.of(source, numbers)
    if truth:
        new.node("Cast", [made], output=truth, role="truth", to=elem_type("bool"))


@rewrite(
    "compare-constant",
    operators=("Equal", "Greater", "Less"),
    reason=(
        "a constant operand of a comparison stays on the GPU; a scale of the other operand by 0 "
        "plus the constant makes the same operand on the DLA"
    ),
)
def compare_constant(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a comparison's constant c as 0 * x + c, which is c for every finite x.

    At a comparison of an image with a number, or one for each channel, cast to numbers.
    """
    fixed = [graph.constant(name) for name in node.inputs]
    if fixed not in ([True, False], [False, True]):
        return
    source, constant = node.inputs[fixed.index(False)], node.inputs[fixed.index(True)]
    if not is_image(graph, source) or graph.dtype(constant) != graph.dtype(source):
        return
    if constant_form(graph.shape(constant), graph.shape(source)) not in {"uniform", "channel"}:
        return
    # the DLA compares only if a cast to numbers follows
    readers = graph.readers(node.outputs[0])
    if not readers or any(reader.op != "Cast" for reader in readers):
        return
    new = yield (node,)
    count = channels(graph, source)
    value = write_vector(graph, new, constant, count)
    operand = write_scaled(new, source, 0.0, value, count, role="operand")
    operands = [operand if name == constant else name for name in node.inputs]
    new.node(node.op, operands, output=node.outputs[0])
