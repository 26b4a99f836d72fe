"""GRU, LSTM and RNN, written out step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from edgekit.rewriting.nodes import Match

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


# nodes between an image and a sequence: exporters write two or three
_FAR = 5
_RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


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
    if node.op not in _RESHAPES or [s for s in source if s > 1] != [s for s in target if s > 1]:
        return None
    # dimensions over 1 keep their order and their sizes
    left = iter([label for label in labels if label])
    return [next(left) if size > 1 else "" for size in source]


# each step is a dozen layers: longer sequences make networks that no builder likes
_MOST_STEPS = 64
# what a DLA has: the others that a node may name would go back to the GPU at every step
_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


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


_GRU_GATES = 3  # update, reset, hidden


class Gru:
    """GRU(x) = per step: h' = n - z (n - h), with gates z and r and the new state n.

    The usual (1 - z) n + z h in a form without the constant 1.
    """

    name = "gru-unroll"
    reason = (
        "a DLA has no loops; a GRU over a short sequence is 1x1 convolutions, sigmoids, "
        "hyperbolic tangents, products and sums"
    )
    operators: tuple[str, ...] = ("GRU",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Matches constant weights, static short sequences, functions that a DLA has."""
        what = recurrence(graph, node, _GRU_GATES, ("Sigmoid", "Tanh"))
        return None if what is None else Match((node, *what.origin.nodes), what)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the steps."""
        node = match.nodes[0]
        late = bool(node.attrs.get("linear_before_reset", 0))
        hidden, biased = match.facts.hidden, bool(node.input(3))

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

        unroll(new, node, match.facts, cell, (5,), apart=1 if late else 0)


_LSTM_GATES = 4  # input, output, forget, cell
_INPUT, _OUTPUT, _FORGET, _CELL = range(_LSTM_GATES)
_PEEPHOLES = 7


class Lstm:
    """LSTM(x) = per step: c' = f c + i g, h' = o tanh(c'), with gates i, o, f and g."""

    name = "lstm-unroll"
    reason = (
        "a DLA has no loops; an LSTM over a short sequence is 1x1 convolutions, sigmoids, "
        "hyperbolic tangents, products and sums"
    )
    operators: tuple[str, ...] = ("LSTM",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Matches constant weights, static short sequences, functions that a DLA has."""
        if node.attrs.get("input_forget", 0):
            return None
        what = recurrence(graph, node, _LSTM_GATES, ("Sigmoid", "Tanh", "Tanh"), (_PEEPHOLES,))
        return None if what is None else Match((node, *what.origin.nodes), what)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the steps."""
        node = match.nodes[0]
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
        unroll(new, node, match.facts, lambda at, step, state: way(at, step, *state), (5, 6))


class Rnn:
    """RNN(x) = per step: h' = tanh(W x + R h + b), or another activation."""

    name = "rnn-unroll"
    reason = (
        "a DLA has no loops; an RNN over a short sequence is 1x1 convolutions, sums and activations"
    )
    operators: tuple[str, ...] = ("RNN",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Matches constant weights, static short sequences, functions that a DLA has."""
        what = recurrence(graph, node, 1, ("Tanh",))
        return None if what is None else Match((node, *what.origin.nodes), what)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the steps."""

        def cell(at: Direction, step: int, state: list[str]) -> list[str]:
            return [at.function(0, step, at.sum(step, 0, 1, state[0]))]

        unroll(new, match.nodes[0], match.facts, cell, (5,))
