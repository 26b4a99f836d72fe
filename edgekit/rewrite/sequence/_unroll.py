"""Recurrences written out step by step, on tensors [N, C, 1, 1].

What does not depend on the state is one 1x1 convolution over all steps at once, [N, C, 1, T] or
[N, C, T, 1]; of its result each step reads a slice. The state goes through 1x1 convolutions too.
Source of the idea: NVIDIA's list of operators that can be reconstructed for a DLA (GRU, LSTM, RNN).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from edgekit.rewrite.sequence._recurrence import Recurrence

if TYPE_CHECKING:
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Cell", "Direction", "unroll"]


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
