"""The old and the new nodes of a step as a pair, for steps that differ in weights alone.

What such steps have in common is made once: the order of computing, and one session of ONNX
Runtime for both sides, which is fed the weights as it is fed the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from edgekit.rewrite._float64 import computed
from edgekit.rewrite._prove_key import alike, telling
from edgekit.rewrite._prove_run import LARGE
from edgekit.rewrite._prove_session import Session, narrow, session_of
from edgekit.rewrite._types import Node, proto_of

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Step

__all__ = ["Pair", "pair_of"]

_MOST = 256
_SIDES = _OLD, _NEW = 0, 1

#: Values by the numbers of tensors; the last is None, for inputs that are left out (-1).
_Values: TypeAlias = "list[np.ndarray | None]"
#: A node with the numbers of what it reads and writes.
_Row: TypeAlias = tuple[Node, tuple[int, ...], tuple[int, ...]]
_Results: TypeAlias = "tuple[dict[str, np.ndarray], dict[str, np.ndarray]]"


def pair_of(graph: Graph, step: Step) -> Pair | None:
    """Returns both sides of a step; None where it can share nothing with others."""
    key, numbers = alike(graph, step)
    form = _known().get(key)
    if form is None:
        if len(_known()) >= _MOST:
            _known().clear()
        form = _known()[key] = _form(graph, step, numbers)
    return None if form.failed else Pair(form, graph, step, list(numbers)[1:])


@lru_cache(1)
def _known() -> dict[Hashable, _Form]:
    return {}


class Pair:
    """Both sides of one step. Results are those of the new side and those of the old one."""

    def __init__(self, form: _Form, graph: Graph, step: Step, names: Sequence[str]) -> None:
        brought = {item.name: item.value for item in step.fixed}
        values: _Values = [None] * (len(names) + 1)
        for at in form.constants:
            name = names[at]
            values[at] = brought[name] if name in brought else graph.value(name)
        self._form = form
        self._step = step
        self._graph = graph
        self._sides = [values, values.copy()]
        for side in _SIDES:
            _run(form.derived[side], self._sides[side], graph.opset)
        self._fed: list[np.ndarray] | None = None

    def float64(self, feed: Mapping[str, np.ndarray]) -> _Results:
        """Computes both in float64."""
        return self._computed(_NEW, feed), self._computed(_OLD, feed)

    def float32(self, feed: Mapping[str, np.ndarray]) -> _Results:
        """Has ONNX Runtime compute both at once.

        Raises:
            Exception: ONNX Runtime's own, or ValueError where weights tell how nodes work.
        """
        form = self._form
        if form.session is None:
            self._start(feed)
        if self._fed is None:
            self._fed = [self._narrow(side, at) for side, at in form.fed]
        made = form.session.run([*feed.values(), *self._fed]) if form.session else []
        half = len(form.outputs)
        return self._named(made[half:]), self._named(made[:half])

    def _computed(self, side: int, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        form, values = self._form, self._sides[side].copy()
        for at, name in zip(form.inputs, self._step.inputs, strict=True):
            values[at] = feed[name]
        _run(form.rows[side], values, self._graph.opset)
        return self._named([_there(values[at]) for at in form.outputs])

    def _named(self, values: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self._step.outputs, values, strict=True))

    def _narrow(self, side: int, at: int) -> np.ndarray:
        return narrow(_there(self._sides[side][at]))

    def _start(self, feed: Mapping[str, np.ndarray]) -> None:
        """Starts the session of the form; one that fails is not tried again."""
        form, graph = self._form, self._graph
        form.failed = True
        shown: dict[str, np.ndarray] = {}
        feeds = {str(at): feed[n] for at, n in zip(form.inputs, self._step.inputs, strict=True)}
        fed = {}
        for side, at, told in form.read():
            name, value = form.called(side, at), self._narrow(side, at)
            if value.dtype.kind == "f" and not told:
                fed[name] = side, at
                feeds[name] = value
            elif at in form.constants:
                shown[name] = value
            else:
                raise ValueError("its value is not part of the key")
        types = [(graph.dtype(name), graph.shape(name)) for name in self._step.outputs]
        ends = {
            form.called(side, at): kind
            for side in _SIDES
            for at, kind in zip(form.outputs, types, strict=True)
        }
        form.session = session_of(graph.opset, form.protos(), shown, feeds, ends, False)
        form.fed = tuple(fed.values())
        form.failed = False


class _Form:
    """What equal steps share; tensors go by number.

    Attributes:
        inputs: What is fed.
        outputs: What is compared.
        constants: Those of the graph and of the step.
        derived: By side, the nodes that derive constants from them.
        rows: By side, the other nodes.
        session: Gives the outputs of the old side, and then those of the new one.
        fed: Sides and numbers of the constants that it is fed, after the inputs.
        failed: Whether steps of this form cannot be run as pairs.
    """

    def __init__(self, inputs: Iterable[int], outputs: Iterable[int], given: Iterable[int]) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.constants = tuple(given)
        self.derived: tuple[list[_Row], list[_Row]] = [], []
        self.rows: tuple[list[_Row], list[_Row]] = [], []
        self.session: Session | None = None
        self.fed: tuple[tuple[int, int], ...] = ()
        self.failed = False
        self._known = [set(self.constants), set(self.constants)]

    def add(self, side: int, row: _Row) -> None:
        """Adds a node, after those that it reads."""
        read = [at for at in row[1] if at >= 0]
        if read and self._known[side].issuperset(read):
            self.derived[side].append(row)
            self._known[side].update(row[2])
        else:
            self.rows[side].append(row)

    def ends_known(self) -> bool:
        """Whether a result is a constant."""
        return any(not known.isdisjoint(self.outputs) for known in self._known)

    def read(self) -> Iterable[tuple[int, int, bool]]:
        """Yields the constants that nodes read: side, number, whether its value tells anything."""
        for side in _SIDES:
            told = telling(row[0] for row in self.rows[side])
            found = {
                at: name in told
                for node, read, _ in self.rows[side]
                for at, name in zip(read, node.inputs, strict=True)
                if at >= 0 and at in self._known[side]
            }
            yield from ((side, at, tells) for at, tells in found.items())

    def called(self, side: int, at: int) -> str:
        """A tensor's name in the session: what both sides read from outside is one tensor."""
        if at < 0:
            return ""
        outside = at in self.inputs or at in self.constants
        return str(at) if outside else f"{side}:{at}"

    def protos(self) -> Iterable[onnx.NodeProto]:
        """Yields the nodes of the session."""
        import onnx

        for side in _SIDES:
            for node, read, written in self.rows[side]:
                proto = onnx.NodeProto()
                proto.CopyFrom(proto_of(node))
                proto.ClearField("name")
                proto.input[:] = [self.called(side, at) for at in read]
                proto.output[:] = [self.called(side, at) for at in written]
                yield proto


def _form(graph: Graph, step: Step, numbers: Mapping[str, int]) -> _Form:
    """Returns the form of a step; a failed one for large tensors and for constant results."""
    brought = {item.name for item in step.fixed}
    form = _Form(
        [numbers[name] for name in step.inputs],
        [numbers[name] for name in step.outputs],
        [at for name, at in numbers.items() if name in brought or graph.constant(name)],
    )
    for side, nodes in enumerate((step.old, step.new)):
        for node in nodes:
            read, written = (tuple(numbers[n] for n in x) for x in (node.inputs, node.outputs))
            form.add(side, (node, read, written))
    sizes = [item.value.size for item in step.fixed]
    sizes += [math.prod(graph.shape(name)) for name in numbers if graph.taken(name)]
    form.failed = form.ends_known() or max(sizes, default=0) >= LARGE
    return form


def _there(value: np.ndarray | None) -> np.ndarray:
    if value is None:
        raise ValueError("a tensor has no value")
    return value


def _run(rows: Iterable[_Row], values: _Values, opset: int) -> None:
    import numpy as np

    with np.errstate(all="ignore"):
        for node, read, written in rows:
            made = computed(node, [values[at] for at in read], opset)
            for at, value in zip(written, made, strict=False):
                if at >= 0:
                    values[at] = value
