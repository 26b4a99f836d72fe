"""Recurrences, gathers and scatters, cumulative sums.

GRU, LSTM and RNN are written out step by step; whole channels, rows and columns at constant indices
are selections; running sums are convolutions with ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from edgekit.dla.rules import limit
from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import (
    four,
    pick,
    pick_channels,
    reshape,
    runs,
    selection,
    to_channels,
)
from edgekit.rewriting.rules.reshapes import RESHAPES

# nodes between an image and a sequence: exporters write two or three
_FAR = 5
# each step is a dozen layers: longer sequences make networks that no builder likes
_MOST_STEPS = 64
# what a DLA has: the others that a node may name would go back to the GPU at every step
_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}
_GRU_GATES = 3  # update, reset, hidden
_LSTM_GATES = 4  # input, output, forget, cell
_INPUT, _OUTPUT, _FORGET, _CELL = range(_LSTM_GATES)
_PEEPHOLES = 7
#: Why, for all of them.
GATHER_REASON = (
    "The DLA has no gather; for constant indices a slice, concatenated slices or a 1x1 "
    "convolution of 0 and 1 replaces it"
)
#: Why, for all of them.
SCATTER_REASON = (
    "The DLA has no scatter; for constant indices the updates are concatenated with the other "
    "channels, or placed by a 1x1 convolution of 0 and 1"
)
# indices that are looked at one by one
_MOST_INDICES = 1 << 20


@rewrite(
    "cumsum",
    operators=("CumSum",),
    reason=(
        "The DLA has no running sums; a convolution with a triangle of ones adds the same terms"
    ),
    enabling=True,
)
def cumsum(graph: RewriteGraph, node: Node) -> Replacement:
    """CumSum along C: a 1x1 convolution with a triangle of ones.

    Along H and W it is a depthwise convolution whose kernel of ones reaches over the whole side,
    padded at one end; a side beyond the largest kernel or padding goes through the channels
    between transpositions. Other ranks are reshaped to four dimensions. Along the batch no layer
    of a DLA sums. Equal for finite values: an infinity or NaN reaches the sums before it too, as 0
    times it.

    At a CumSum along a constant axis other than the batch.
    """
    shape = graph.shape(node.inputs[0])
    axes = graph.ints(node.inputs[1])
    if axes is None or len(shape) < 2 or 0 in shape or not graph.floats(node.inputs[0]):
        return
    axis = axes[0] % len(shape)
    if not axis or graph.constant(node.inputs[0]):
        return
    new = yield (node,)
    source, output = node.inputs[0], node.outputs[0]
    wide, axis = four(shape, axis)
    if wide == shape:
        _sum(node, source, wide, axis, new, output)
        return
    made = _sum(node, reshape(new, source, wide), wide, axis, new, "")
    reshape(new, made, shape, output=output)


def _sum(
    node: Node, source: str, shape: tuple[int, ...], axis: int, new: Writer, output: str
) -> str:
    size, channels = shape[axis], shape[1]
    exclusive = bool(node.attrs.get("exclusive", 0))
    backward = bool(node.attrs.get("reverse", 0))
    most = min(limit("convolution.kernel")[1], limit("convolution.padding")[1] + 1)
    if axis > 1 and size <= most:
        line = np.ones(size)
        if exclusive:
            line[0 if backward else -1] = 0.0
        sides = [1, 1]
        sides[axis - 2] = size
        pads = [0, 0, 0, 0]
        pads[axis if backward else axis - 2] = size - 1
        kernel = np.tile(line, (channels, 1)).reshape(channels, 1, *sides)
        return _convolution(new, source, kernel, output, pads=pads, group=channels)
    new.check_size(size, size)
    triangle = np.tri(size, k=-1 if exclusive else 0)
    kernel = (triangle.T if backward else triangle).reshape(size, size, 1, 1)
    if axis == 1:
        return _convolution(new, source, kernel, output)
    made = _convolution(new, to_channels(new, source, axis), kernel, "")
    return to_channels(new, made, axis, output=output)


def _convolution(
    new: Writer,
    source: str,
    kernel: np.ndarray,
    output: str,
    pads: list[int] | None = None,
    group: int | None = None,
) -> str:
    weight = new.constant(kernel, role="ones")
    sides = list(kernel.shape[2:])
    return new.node(
        "Conv",
        [source, weight],
        output=output,
        role="sum",
        kernel_shape=sides,
        pads=pads,
        group=group,
    )


class Origin(NamedTuple):
    """A tensor that holds a sequence's elements.

    Attributes:
        tensor: Its name.
        order: Which of its dimensions over 1 are which: "n" (batch), "c" (features), "t" (steps).
        shape: Its shape.
        nodes: Nodes between it and the sequence, nearest first.
        needed: How many of them, the last ones, are there for others too.
    """

    tensor: str
    order: str
    shape: tuple[int, ...]
    nodes: tuple[Node, ...] = ()
    needed: int = 0

    def image(self, sizes: dict[str, int]) -> bool:
        """Whether it is [N, C, 1, T] or [N, C, T, 1] already."""
        n, c, t = (sizes[name] for name in "nct")
        wanted = "".join(name for name in "nct" if sizes[name] > 1)
        return self.order == wanted and self.shape in {(n, c, 1, t), (n, c, t, 1)}

    def write(self, new: Writer, sizes: dict[str, int]) -> tuple[str, int]:
        """Writes what makes an image of it; returns that image and the axis of the steps.

        Nodes that others need are written again as they were.
        """
        for node in self.nodes[::-1][: self.needed]:
            new.many(node.op, node.inputs, node.outputs, name=node.name, **node.attrs)
        n, c, t = (sizes[name] for name in "nct")
        if self.image(sizes):
            return self.tensor, 3 if self.shape[2] == 1 else 2
        if n == 1 and self.order in {"ct", "c", "t", ""}:
            shape = new.constant([1, c, 1, t], role="shape")
            return new.node("Reshape", [self.tensor, shape], role="image"), 3
        if n == 1:
            # the transposition has four dimensions and leaves the batch where it is
            shape = new.constant([1, t, c, 1], role="shape")
            rows = new.node("Reshape", [self.tensor, shape], role="rows")
            return new.node("Transpose", [rows], role="image", perm=[0, 2, 1, 3]), 2
        shape = new.constant([n, c, 1, t], role="shape")
        order = [self.places()[name] for name in "nct"]
        x = new.node("Transpose", [self.tensor], role="channels", perm=order)
        return new.node("Reshape", [x, shape], role="image"), 3

    def places(self) -> dict[str, int]:
        """Where the three dimensions of the sequence itself stand; it has rank 3."""
        return {name: index for index, name in enumerate(self.order)}


def origin(graph: RewriteGraph, node: Node, order: str, sizes: dict[str, int]) -> Origin:
    """Returns the tensor that a recurrence is best computed from.

    An image where there is one after a few transpositions and reshapes; otherwise, for a single
    sample, the tensor farthest back; otherwise the sequence itself.

    Args:
        graph: The graph.
        node: The recurrence.
        order: The dimensions of the sequence: "tnc" or "ntc".
        sizes: Their sizes.
    """
    x = node.inputs[0]
    long = "".join(name for name in order if sizes[name] > 1)
    found = [Origin(x, long, graph.shape(x))]
    labels: list[str] = [name if sizes[name] > 1 else "" for name in order]
    nodes: list[Node] = []
    reader, apart = node, 0
    for _ in range(_FAR):
        last = found[-1]
        made = graph.producer(last.tensor)
        before = None if made is None else _before(graph, made, labels)
        if made is None or before is None:
            break
        labels = before
        if len(nodes) == apart and graph.only_reader(last.tensor) is reader:
            apart += 1
        nodes.append(made)
        source, shape = made.inputs[0], graph.shape(made.inputs[0])
        needed = len(nodes) - apart
        found.append(Origin(source, "".join(labels), shape, tuple(nodes), needed))
        reader = made
    for item in found:
        if item.image(sizes):
            return item
    return found[-1] if sizes["n"] == 1 else Origin(x, order, graph.shape(x))


def _before(graph: RewriteGraph, node: Node, labels: Sequence[str]) -> list[str] | None:
    """The labels of a node's input, from those of its output; None for other operators."""
    if node.domain or graph.constant(node.inputs[0]):
        return None
    source = graph.shape(node.inputs[0])
    if node.op == "Transpose":
        made = [""] * len(source)
        order = node.attrs.get("perm") or range(len(source))[::-1]
        for label, axis in zip(labels, order, strict=True):
            made[axis] = label
        return made
    target = graph.shape(node.outputs[0])
    if node.op not in RESHAPES or [s for s in source if s > 1] != [s for s in target if s > 1]:
        return None
    # dimensions over 1 keep their order and their sizes
    left = iter([label for label in labels if label])
    return [next(left) if size > 1 else "" for size in source]


class Recurrence(NamedTuple):
    """What a GRU, LSTM or RNN node says, all of it static.

    Attributes:
        steps: Length of the sequence.
        batch: Batch size.
        features: Size of the input at each step.
        hidden: Size of the state.
        gates: Gates per direction: rows of the weights are gates times hidden.
        reverse: For each direction whether it goes from the end to the begin.
        functions: For each direction its activations, as ONNX operators.
        turned: Whether the batch is the first dimension (layout 1).
        origin: What holds the sequence.
    """

    steps: int
    batch: int
    features: int
    hidden: int
    gates: int
    reverse: tuple[bool, ...]
    functions: tuple[tuple[str, ...], ...]
    turned: bool
    origin: Origin

    def sizes(self) -> dict[str, int]:
        """Returns the sizes of the sequence's dimensions."""
        return {"n": self.batch, "c": self.features, "t": self.steps}


def recurrence(
    graph: RewriteGraph, node: Node, gates: int, usual: Sequence[str], optional: Sequence[int] = ()
) -> Recurrence | None:
    """Returns what a node says; None if it cannot be unrolled.

    Args:
        graph: The graph.
        node: The node.
        gates: Number of gates of the operator.
        usual: Its activations where the node names none.
        optional: Further inputs that must be constant where they are given.
    """
    attrs = node.attrs
    x, w, r = (node.input(index) for index in range(3))
    if "clip" in attrs or not graph.floats(x) or graph.constant(x):
        return None
    if not all(graph.constant(t) for t in (w, r, *(node.input(i) for i in (3, *optional))) if t):
        return None
    turned = bool(attrs.get("layout", 0))
    shape = graph.shape(x)
    steps, batch = (shape[1], shape[0]) if turned else (shape[0], shape[1])
    if steps > _MOST_STEPS or not _full_length(graph, node.input(4), steps):
        return None
    direction = attrs.get("direction", "forward")
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    count = len(reverse)
    named = [str(name).lower() for name in attrs.get("activations") or list(usual) * count]
    if len(named) != len(usual) * count or not all(name in _FUNCTIONS for name in named):
        return None
    each = [_FUNCTIONS[name] for name in named]
    size = len(usual)
    functions = tuple(tuple(each[i * size : (i + 1) * size]) for i in range(count))
    sizes = {"n": batch, "c": shape[2], "t": steps}
    found = origin(graph, node, "ntc" if turned else "tnc", sizes)
    hidden = graph.shape(r)[2]
    return Recurrence(steps, batch, shape[2], hidden, gates, reverse, functions, turned, found)


def _full_length(graph: RewriteGraph, lengths: str, steps: int) -> bool:
    if not lengths:
        return True
    value = graph.ints(lengths)
    return value is not None and all(item == steps for item in value)


# Recurrences written out step by step, on tensors [N, C, 1, 1].
#
# What does not depend on the state is one 1x1 convolution over all steps at once, [N, C, 1, T] or
# [N, C, T, 1]; of its result each step reads a slice. The state goes through 1x1 convolutions too.
# Source of the idea: NVIDIA's list of operators that can be reconstructed for a DLA (GRU, LSTM,
# RNN).


class Direction:
    """Writes the steps of one direction."""

    def __init__(
        self,
        new: Writer,
        node: Node,
        what: Recurrence,
        index: int,
        source: str,
        axis: int,
        apart: int,
    ) -> None:
        self._new, self._node, self._what, self._index = new, node, what, index
        self._axes = new.constant([1, axis], role="axes")
        self._channel = new.constant([1], role="axes")
        rows = what.gates * what.hidden
        self._filters: dict[tuple[int, int, bool], tuple[str, ...]] = {}
        weight = self._rows(node.inputs[1], 0, rows)
        bias = self._fed_bias(apart) if node.input(3) else ""
        inputs = [source, weight, bias] if bias else [source, weight]
        self._fed = new.node("Conv", inputs, role=f"{index}.input", kernel_shape=[1, 1])
        self.steps = range(what.steps)[:: -1 if what.reverse[index] else 1]

    def initial(self, at: int) -> str:
        """Returns the state before the first step, [N, H, 1, 1]; "" for zeros."""
        source = self._node.input(at)
        if not source:
            return ""
        if len(self._what.reverse) > 1:
            axis = 1 if self._what.turned else 0
            source = self._slice(source, [self._index], [self._index + 1], [axis])
        shape = [self._what.batch, self._what.hidden, 1, 1]
        return self._new.node("Reshape", [source, self._new.constant(shape)], role="state")

    def fed(self, step: int, first: int, count: int = 1) -> str:
        """Returns what the input gives to ``count`` gates from ``first`` on at a step."""
        hidden = self._what.hidden
        starts = self._new.constant([first * hidden, step], role="starts")
        ends = self._new.constant([(first + count) * hidden, step + 1], role="ends")
        return self._write("Slice", [self._fed, starts, ends, self._axes], step)

    def turned(
        self, step: int, state: str, first: int, count: int = 1, *, bias: bool = False
    ) -> str:
        """Returns what the state gives to the gates: a 1x1 convolution."""
        key = (first, count, bias)
        if key not in self._filters:
            start, rows = first * self._what.hidden, count * self._what.hidden
            made = [self._rows(self._node.inputs[2], start, rows)]
            if bias and self._node.input(3):
                made.append(self.state_bias(first))
            self._filters[key] = tuple(made)
        return self._write("Conv", [state, *self._filters[key]], step, kernel_shape=[1, 1])

    def sum(self, step: int, first: int, count: int, state: str) -> str:
        """Returns what the input and the state ("" for zeros) give to the gates together."""
        fed = self.fed(step, first, count)
        return self.op("Add", step, fed, self.turned(step, state, first, count)) if state else fed

    def state_bias(self, gate: int, shape: Sequence[int] = (-1,)) -> str:
        """Returns a gate's bias for the state in a shape; the node must have biases."""
        hidden, rows = self._what.hidden, self._what.gates * self._what.hidden
        part = self._bias(rows + gate * hidden, hidden)
        return self._new.node("Reshape", [part, self._new.constant(list(shape))])

    def peephole(self, gate: int) -> str:
        """Returns weights [1, H, 1, 1] from the cell to a gate: input, output or forget."""
        hidden = self._what.hidden
        first = [self._index, gate * hidden]
        part = self._slice(
            self._node.inputs[7], first, [self._index + 1, first[1] + hidden], [0, 1]
        )
        return self._new.node("Reshape", [part, self._new.constant([1, hidden, 1, 1])])

    def split(self, step: int, source: str, count: int) -> list[str]:
        """Returns the gates of a tensor of several."""
        hidden = self._what.hidden
        if count == 1:
            return [source]
        bounds = [self._new.constant([i * hidden], role="bound") for i in range(count + 1)]
        return [
            self._write("Slice", [source, bounds[i], bounds[i + 1], self._channel], step)
            for i in range(count)
        ]

    def function(self, which: int, step: int, source: str) -> str:
        """Returns an activation of a tensor."""
        return self.op(self._what.functions[self._index][which], step, source)

    def op(self, op: str, step: int, *inputs: str) -> str:
        """Writes a node without attributes."""
        return self._write(op, list(inputs), step)

    def _write(self, op: str, inputs: Sequence[str], step: int, **attrs: Any) -> str:
        # the step is in the name: counting up from one for each would be quadratic
        role = f"{self._index}.{step}.{op.lower()}"
        return self._new.node(op, inputs, role=role, **attrs)

    def _rows(self, tensor: str, first: int, rows: int) -> str:
        """Rows of a direction's weights [D, rows, C] as filters [rows, C, 1, 1]."""
        ends = [self._index + 1, first + rows]
        part = self._slice(tensor, [self._index, first], ends, [0, 1])
        return self._new.node("Reshape", [part, self._new.constant([rows, -1, 1, 1])])

    def _bias(self, first: int, count: int) -> str:
        ends = [self._index + 1, first + count]
        return self._slice(self._node.inputs[3], [self._index, first], ends, [0, 1])

    def _fed_bias(self, apart: int) -> str:
        """The sum of both biases, but the input's alone for the last ``apart`` gates."""
        hidden, rows = self._what.hidden, self._what.gates * self._what.hidden
        both = rows - apart * hidden
        total = self._new.node("Add", [self._bias(0, both), self._bias(rows, both)])
        if apart:
            total = self._new.node("Concat", [total, self._bias(both, rows - both)], axis=1)
        return self._new.node("Reshape", [total, self._new.constant([rows])])

    def _slice(
        self, tensor: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int]
    ) -> str:
        numbers = [self._new.constant(list(part), role="slice") for part in (starts, ends, axes)]
        return self._new.node("Slice", [tensor, *numbers])


# from a direction, a step and the state to the next state; of an LSTM it is the output and the cell
Cell: TypeAlias = Callable[[Direction, int, list[str]], list[str]]


def unroll(
    new: Writer, node: Node, what: Recurrence, cell: Cell, states: Sequence[int], apart: int = 0
) -> None:
    """Writes a recurrence out.

    Args:
        new: Where to.
        node: The node that is replaced.
        what: What it says.
        cell: One step.
        states: Inputs that are the initial states.
        apart: Number of gates, the last ones, whose bias for the state the cell adds by itself.
    """
    x, axis = what.origin.write(new, what.sizes())
    seen: list[list[str]] = [[] for _ in range(what.steps)]
    ends: list[list[str]] = [[] for _ in states]
    for index in range(len(what.reverse)):
        direction = Direction(new, node, what, index, x, axis, apart)
        state = [direction.initial(at) for at in states]
        for step in direction.steps:
            state = cell(direction, step, state)
            seen[step].append(state[0])
        for listed, last in zip(ends, state, strict=True):
            listed.append(last)
    if node.outputs[0]:
        count = len(what.reverse)
        _returned(
            new, what, [t for part in seen for t in part], [what.steps, count], node.outputs[0]
        )
    for listed, output in zip(ends, node.outputs[1:], strict=False):
        if output:
            _returned(new, what, listed, [len(what.reverse)], output)


def _returned(
    new: Writer, what: Recurrence, parts: Sequence[str], outer: Sequence[int], output: str
) -> None:
    """States one after the other along the channels, then as [*outer, N, H] ([N, *outer, H])."""
    joined = parts[0] if len(parts) == 1 else new.node("Concat", parts, role="states", axis=1)
    batch, hidden = what.batch, what.hidden
    first = [batch, *outer, hidden]
    wanted = first if what.turned else [*outer, batch, hidden]
    if batch == 1 or len(parts) == 1 or what.turned:
        new.node("Reshape", [joined, new.constant(wanted, role="shape")], output=output)
        return
    made = new.node("Reshape", [joined, new.constant(first, role="shape")], role="steps")
    order = [*range(1, len(outer) + 1), 0, len(outer) + 1]
    new.node("Transpose", [made], output=output, perm=order)


@rewrite(
    "gru-unroll",
    operators=("GRU",),
    reason="the DLA has no loops; a GRU over a short sequence becomes 1x1 convolutions, sigmoids, "
    "hyperbolic tangents, products and sums",
    enabling=True,
)
def gru_unroll(graph: RewriteGraph, node: Node) -> Replacement:
    """GRU(x) = per step: h' = n - z (n - h), with gates z and r and the new state n.

    The usual (1 - z) n + z h in a form without the constant 1.

    Matches constant weights, static short sequences, functions that a DLA has.
    """
    what = recurrence(graph, node, _GRU_GATES, ("Sigmoid", "Tanh"))
    if what is None:
        return
    new = yield (node, *what.origin.nodes)
    late = bool(node.attrs.get("linear_before_reset", 0))
    hidden, biased = what.hidden, bool(node.input(3))

    def cell(at: Direction, step: int, state: list[str]) -> list[str]:
        (h,) = state
        # without a state the reset gate has only a bias to work on
        gates = 2 if h or (late and biased) else 1
        opened = at.function(0, step, at.sum(step, 0, gates, h))
        update, *reset = at.split(step, opened, gates)
        made = at.fed(step, 2)
        if h and late:
            turned = at.turned(step, h, 2, bias=True)
            made = at.op("Add", step, made, at.op("Mul", step, reset[0], turned))
        elif h:
            gated = at.op("Mul", step, reset[0], h)
            made = at.op("Add", step, made, at.turned(step, gated, 2))
        elif reset:
            bias = at.state_bias(2, (1, hidden, 1, 1))
            made = at.op("Add", step, made, at.op("Mul", step, reset[0], bias))
        fresh = at.function(1, step, made)
        away = at.op("Sub", step, fresh, h) if h else fresh
        return [at.op("Sub", step, fresh, at.op("Mul", step, update, away))]

    unroll(new, node, what, cell, (5,), apart=1 if late else 0)


@rewrite(
    "lstm-unroll",
    operators=("LSTM",),
    reason="the DLA has no loops; an LSTM over a short sequence becomes 1x1 convolutions, "
    "sigmoids, hyperbolic tangents, products and sums",
    enabling=True,
)
def lstm_unroll(graph: RewriteGraph, node: Node) -> Replacement:
    """LSTM(x) = per step: c' = f c + i g, h' = o tanh(c'), with gates i, o, f and g.

    Matches constant weights, static short sequences, functions that a DLA has.
    """
    if node.attrs.get("input_forget", 0):
        return
    what = recurrence(graph, node, _LSTM_GATES, ("Sigmoid", "Tanh", "Tanh"), (_PEEPHOLES,))
    if what is None:
        return
    new = yield (node, *what.origin.nodes)
    peeps: dict[Direction, list[str]] = {}

    def looked(at: Direction, step: int, gate: int, total: str, cell: str) -> str:
        """The sum for a gate that sees the cell through its own weights."""
        if at not in peeps:
            peeps[at] = [at.peephole(index) for index in range(3)]
        return at.op("Add", step, total, at.op("Mul", step, cell, peeps[at][gate]))

    def apart(at: Direction, step: int, h: str, c: str) -> list[str]:
        new_ = at.function(1, step, at.sum(step, _CELL, 1, h))
        total = at.sum(step, _INPUT, 1, h)
        total = looked(at, step, _INPUT, total, c) if c else total
        made = at.op("Mul", step, at.function(0, step, total), new_)
        if c:
            total = looked(at, step, _FORGET, at.sum(step, _FORGET, 1, h), c)
            gated = at.op("Mul", step, at.function(0, step, total), c)
            made = at.op("Add", step, gated, made)
        total = looked(at, step, _OUTPUT, at.sum(step, _OUTPUT, 1, h), made)
        opened = at.function(0, step, total)
        return [at.op("Mul", step, opened, at.function(2, step, made)), made]

    def together(at: Direction, step: int, h: str, c: str) -> list[str]:
        # without a cell there is nothing to forget
        gates = 3 if c else 2
        opened = at.function(0, step, at.sum(step, _INPUT, gates, h))
        inward, outward, *forget = at.split(step, opened, gates)
        made = at.op("Mul", step, inward, at.function(1, step, at.sum(step, _CELL, 1, h)))
        if c:
            made = at.op("Add", step, at.op("Mul", step, forget[0], c), made)
        return [at.op("Mul", step, outward, at.function(2, step, made)), made]

    way = apart if node.input(_PEEPHOLES) else together
    unroll(new, node, what, lambda at, step, state: way(at, step, *state), (5, 6))


@rewrite(
    "rnn-unroll",
    operators=("RNN",),
    reason="the DLA has no loops; an RNN over a short sequence becomes 1x1 convolutions, sums and "
    "activations",
    enabling=True,
)
def rnn_unroll(graph: RewriteGraph, node: Node) -> Replacement:
    """RNN(x) = per step: h' = tanh(W x + R h + b), or another activation.

    Matches constant weights, static short sequences, functions that a DLA has.
    """
    what = recurrence(graph, node, 1, ("Tanh",))
    if what is None:
        return
    new = yield (node, *what.origin.nodes)

    def cell(at: Direction, step: int, state: list[str]) -> list[str]:
        return [at.function(0, step, at.sum(step, 0, 1, state[0]))]

    unroll(new, node, what, cell, (5,))


def picks_along(graph: RewriteGraph, node: Node) -> tuple[int, list[int]] | None:
    """Returns the axis and the indices along it of a GatherElements or a ScatterElements.

    None if they are along the batch, leave out a part of another axis, or differ from place to
    place.
    """
    shape, found = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    if axis == 0 or (*found[:axis], *found[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
        return None
    value = graph.value(node.inputs[1])
    assert value is not None
    line = value[tuple(slice(None) if at == axis else slice(1) for at in range(len(shape)))]
    if not (value == line).all():
        return None
    return axis, [int(index) % shape[axis] for index in line.ravel()]


def readable(graph: RewriteGraph, node: Node) -> bool:
    """Returns whether a node gathers from an activation of floats, at indices that are constant."""
    data = node.inputs[0]
    fixed = graph.constant(node.inputs[1]) and not graph.constant(data)
    return fixed and graph.floats(data) and graph.rank(data) > 1 and 0 not in graph.shape(data)


def gathered(graph: RewriteGraph, node: Node) -> tuple[int, list[int]] | None:
    """Returns axis and indices of a Gather along any axis but the batch; else None."""
    if not readable(graph, node):
        return None
    shape = graph.shape(node.inputs[0])
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    picks = graph.ints(node.inputs[1])
    if not picks:
        return None
    picks = [index % shape[axis] for index in picks]
    return axis, picks


def write_selection(
    graph: RewriteGraph, node: Node, new: Writer, axis: int, picks: Sequence[int]
) -> None:
    """Writes the selection of indices along an axis and a Reshape where shapes differ."""
    source, output = node.inputs[0], node.outputs[0]
    shape, result = graph.shape(source), graph.shape(output)
    made = (*shape[:axis], len(picks), *shape[axis + 1 :])
    whole = picks == list(range(shape[axis]))
    if made == result and not whole:
        pick(new, source, shape, axis, picks, output=output)
        return
    chosen = source if whole else pick(new, source, shape, axis, picks)
    reshape(new, chosen, result, output=output)


@rewrite("gather", operators=("Gather",), reason=GATHER_REASON)
def gather(graph: RewriteGraph, node: Node) -> Replacement:
    """Gather of some channels, rows or columns of a 4-D tensor.

    One range of channels is a Slice, a few are Slices and a Concat, others a 1x1 convolution.
    Along H and W a range is a Slice, every n-th element a pooling of window 1, anything else goes
    through the channels between transpositions. A table that computed indices look up (an
    embedding) has no such form. A convolution is equal for finite values: an infinity or NaN of
    one channel makes NaNs of all that it sums, as 0 times it.

    At a Gather at a list of constant indices, not along the batch.
    """
    found = gathered(graph, node)
    if found is None or not found[0]:
        return
    plain = graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
    if not plain:
        return
    new = yield (node,)
    write_selection(graph, node, new, *found)


@rewrite("gather-shaped", operators=("Gather",), reason=GATHER_REASON, enabling=True)
def gather_shaped(graph: RewriteGraph, node: Node) -> Replacement:
    """Gather that changes the number of dimensions, or of a tensor that has not four.

    The same selection on four dimensions and a Reshape; ``x[0]`` of a batch of 1 is the Reshape
    alone. As a convolution it is equal for finite values only.

    At a Gather at a constant index, or of another rank than 4.
    """
    found = gathered(graph, node)
    if found is None:
        return
    axis, picks = found
    if axis == 0 and (graph.shape(node.inputs[0])[0] != 1 or len(picks) != 1):
        return
    plain = axis and graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
    if plain:
        return
    new = yield (node,)
    write_selection(graph, node, new, axis, picks)


@rewrite("gather-elements", operators=("GatherElements",), reason=GATHER_REASON, enabling=True)
def gather_elements(graph: RewriteGraph, node: Node) -> Replacement:
    """GatherElements whose constant indices are the same at every other place: a Gather.

    As a convolution it is equal for finite values only.

    At a GatherElements that chooses whole channels, rows or columns.
    """
    if not readable(graph, node) or 0 in graph.shape(node.inputs[1]):
        return
    picks = picks_along(graph, node)
    if not picks:
        return
    new = yield (node,)
    write_selection(graph, node, new, *picks)


@rewrite("gather-nd", operators=("GatherND",), reason=GATHER_REASON, enabling=True)
def gather_nd(graph: RewriteGraph, node: Node) -> Replacement:
    """GatherND with constant indices along one axis, everything before it a batch or of size 1.

    As a convolution it is equal for finite values only.

    At a GatherND that chooses whole channels, rows or columns, the same everywhere.
    """
    if not readable(graph, node):
        return
    shape = graph.shape(node.inputs[0])
    value = graph.value(node.inputs[1])
    assert value is not None
    batch = int(node.attrs.get("batch_dims", 0))
    axis = batch + value.shape[-1] - 1
    if axis < 1 or not value.size or any(size != 1 for size in shape[batch:axis]):
        return
    line = value[(slice(1),) * batch]
    if not (value == line).all():
        return
    new = yield (node,)
    write_selection(graph, node, new, axis, [int(i) % shape[axis] for i in line[..., -1].ravel()])


class ScatterPlace(NamedTuple):
    """Where updates go: whole slices along ``axis``, each index once."""

    axis: int
    picks: list[int]


def writable(graph: RewriteGraph, node: Node) -> bool:
    """Returns whether a node scatters activations of floats to constant indices."""
    data, indices, updates = node.inputs
    return (
        node.attrs.get("reduction", "none") in {"none", "add"}
        and graph.constant(indices)
        and 0 < math.prod(graph.shape(indices)) <= _MOST_INDICES
        and graph.floats(data)
        and graph.rank(data) > 1
        and 0 not in graph.shape(data)
        and not (graph.constant(data) and graph.constant(updates))
    )


def scatter(graph: RewriteGraph, node: Node, place: ScatterPlace) -> Replacement:
    """What stays of the data, and the updates; nothing when an index comes twice."""
    if len(set(place.picks)) != len(place.picks):
        return
    new = yield (node,)
    data, _, updates = node.inputs
    output = node.outputs[0]
    shape = graph.shape(data)
    wide, axis = four(shape, place.axis)
    written = (*wide[:axis], len(place.picks), *wide[axis + 1 :])
    adds = node.attrs.get("reduction", "none") == "add"
    changed = wide != shape
    if changed:
        data = reshape(new, data, wide)
    if graph.shape(updates) != written:
        updates = reshape(new, updates, written)
    fixed = graph.constant(node.inputs[0]), graph.constant(node.inputs[2])
    if axis == 1:
        last = "" if changed else output
        made = _scatter(new, data, updates, wide, place.picks, adds, fixed, last)
    else:
        turned = [wide[0], wide[axis], *wide[2:]]
        turned[axis] = wide[1]
        parts = to_channels(new, data, axis), to_channels(new, updates, axis)
        inner = _scatter(new, *parts, turned, place.picks, adds, fixed, "")
        made = to_channels(new, inner, axis, output="" if changed else output)
    if changed:
        reshape(new, made, shape, output=output)


def _scatter(
    new: Writer,
    data: str,
    updates: str,
    shape: Sequence[int],
    picks: list[int],
    adds: bool,
    fixed: tuple[bool, bool],
    output: str,
) -> str:
    """Writes ``updates`` over, or onto, the channels ``picks`` of ``data``."""
    channels = shape[1]
    ranges = runs(picks)
    if len(ranges) == 1 and not adds and not any(fixed):
        start, end = ranges[0]
        left = [(0, start)] if start else []
        right = [(end, channels)] if end < channels else []
        before = [pick_channels(new, data, channels, range(*part)) for part in left]
        after = [pick_channels(new, data, channels, range(*part)) for part in right]
        if before or after:
            return new.node("Concat", [*before, updates, *after], output=output, axis=1)
    written = {channel: index for index, channel in enumerate(picks)}
    sources = [written.get(channel, -1) for channel in range(channels)]
    if fixed[1]:
        # a recipe: the updates and a channel of zeros, put in order
        zero = new.constant(np.zeros((shape[0], 1, *shape[2:])), role="zero")
        both = new.node("Concat", [updates, zero], axis=1)
        order = new.constant([len(picks) if c < 0 else c for c in sources], role="order")
        placed = new.node("Gather", [both, order], axis=1)
    else:
        placed = selection(new, updates, len(picks), [(c, 0, 0) for c in sources])
    if not adds:
        mask = np.array([1.0 if c < 0 else 0.0 for c in sources]).reshape(1, -1, 1, 1)
        data = new.node("Mul", [data, new.constant(mask, role="mask")])
    return new.node("Add", [data, placed], output=output)


@rewrite("scatter-elements", operators=("ScatterElements",), reason=SCATTER_REASON, enabling=True)
def scatter_elements(graph: RewriteGraph, node: Node) -> Replacement:
    """ScatterElements of whole channels, rows or columns at constant indices.

    A range of channels is replaced by a Concat of what stays and the updates; scattered channels
    are set to zero by a scale and the updates, placed by a 1x1 convolution, are added. Along H and
    W the same is done between transpositions. Reductions other than "add", indices that differ
    from place to place or come twice, and the batch have no such form.

    At a ScatterElements that writes whole channels, rows or columns.
    """
    picks = picks_along(graph, node) if writable(graph, node) else None
    if picks:
        yield from scatter(graph, node, ScatterPlace(*picks))


@rewrite("scatter-nd", operators=("ScatterND",), reason=SCATTER_REASON, enabling=True)
def scatter_nd(graph: RewriteGraph, node: Node) -> Replacement:
    """ScatterND of whole channels, rows or columns at constant indices (``x[:, 3] = y``).

    The indices may name channels, rows or every single element, as PyTorch's exporter does, if
    they go through the tensor in its own order. The forms are those of ScatterElements.

    At a ScatterND that writes whole channels, rows or columns.
    """
    if not writable(graph, node):
        return
    value = graph.value(node.inputs[1])
    assert value is not None
    place = _grid(value, graph.shape(node.inputs[0]))
    if place is not None:
        yield from scatter(graph, node, place)


def _grid(value: np.ndarray, shape: Sequence[int]) -> ScatterPlace | None:
    """The one axis along which an ordered grid of indices is not all of the tensor."""
    depth = value.shape[-1]
    columns = value.reshape(-1, depth) % np.array(shape[:depth])
    # distinct indices of each column in the order in which they come
    lines = [list(dict.fromkeys(columns[:, at].tolist())) for at in range(depth)]
    sizes = [len(line) for line in lines]
    if int(np.prod(sizes)) != len(columns):
        return None
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, depth)
    parts = [at for at, line in enumerate(lines) if line != list(range(shape[at]))]
    if not (grid == columns).all() or len(parts) != 1 or parts[0] == 0:
        return None
    return ScatterPlace(parts[0], [int(index) for index in lines[parts[0]]])
