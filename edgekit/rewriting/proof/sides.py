"""The two sides of a proof: nodes with their constants, run in float64 and by ONNX Runtime. Equal
steps share a proof; steps that differ only in weights share a form.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import onnx

from edgekit.network.graph import Node, form, node_proto
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.float64.evaluate import compute_node, evaluate
from edgekit.rewriting.graph import NewConstant, RewriteGraph, RewriteStep
from edgekit.rewriting.proof.sessions import (
    ProofSession,
    narrow,
    share_session,
    start_graph_session,
    start_session,
)

#: Operators whose floating-point constants are parameters, not weights.
READS_FLOATS = frozenset(
    {"Clip", "DequantizeLinear", "OneHot", "Pad", "QuantizeLinear", "Range", "Resize", "Upsample"}
)

# larger constants are distinguished by their digests
_SHORT = 256
#: Nodes with a tensor of this many elements gain from more than one thread.
LARGE = 1 << 20
# ONNX Runtime's messages for an unsupported operator or opset
_NO_KERNEL = ("NOT_IMPLEMENTED", "No Op registered", "ValidateOpsetForDomain")
# a kernel refuses attributes in its constructor (recurrences with layout = 1), unless memory is
# short
_NOT_MADE, _MEMORY = "Exception during initialization", "alloc"
_LONGEST = 300
_MOST_FORMS = 256
_SIDES = _OLD, _NEW = 0, 1
#: Values by the numbers of tensors; the last is None, for omitted inputs (-1).
_Values: TypeAlias = "list[np.ndarray | None]"
#: A node with the numbers of its inputs and outputs.
_Row: TypeAlias = tuple[Node, tuple[int, ...], tuple[int, ...]]
_Results: TypeAlias = "tuple[dict[str, np.ndarray], dict[str, np.ndarray]]"


def key(graph: RewriteGraph, step: RewriteStep) -> Hashable | None:
    """Returns a key that is the same for equal steps, independent of tensor names.

    It covers the opset, the operators, their attributes and connections, the shapes and types of
    their tensors, and the values of constants.

    Returns:
        None if the step reads the model's weights, or tensors derived from them.
    """
    weights = graph.model.weights
    for node in (*step.old, *step.new):
        for name in node.inputs:
            # hashing whole weights would take longer than the proof
            if name in weights or graph.recipe(name) is not None:
                return None
    return _numbered(graph, step, None)[0]


def weight_free_key(graph: RewriteGraph, step: RewriteStep) -> tuple[Hashable, dict[str, int]]:
    """Returns a key that is the same for steps that differ only in the model's weights.

    For the model's constants, and tensors derived from them, only shapes and types count, unless
    they are integers or parameters of an operator (:data:`READS_FLOATS`).

    Returns:
        The key, and a number by tensor, which is the same for the matching tensor of another such
        step; -1 for "".
    """
    return _numbered(graph, step, deciding_tensors((*step.old, *step.new)))


def deciding_tensors(nodes: Iterable[Node]) -> frozenset[str]:
    """Returns the tensors with floating-point parameters of ``nodes``."""
    return frozenset(n for node in nodes if node.op in READS_FLOATS for n in node.inputs)


def _numbered(
    graph: RewriteGraph, step: RewriteStep, shown: Collection[str] | None
) -> tuple[Hashable, dict[str, int]]:
    """Returns the key and the numbers; values of all constants count if ``shown`` is None."""
    # the last value of a list of values is None: what an omitted input reads
    numbers = {"": -1}
    brought = {item.name: item for item in step.fixed}
    parts: list[Hashable] = [graph.opset, len(step.old), step.rewrite.approximate]
    for name in step.inputs:
        numbers.setdefault(name, len(numbers) - 1)
        parts.append((graph.dtype(name), graph.shape(name)))
    # a tensor's first use is its value, None for an activation; later uses are its number
    for node in (*step.old, *step.new):
        parts.append((form(node), len(node.inputs), len(node.outputs)))
        for name in (*node.inputs, *node.outputs):
            known = numbers.get(name)
            if known is not None:
                parts.append(known)
                continue
            numbers[name] = len(numbers) - 1
            item = brought.get(name) or graph.added_constant(name)
            if item is not None:
                parts.append((item.dtype, *_content(item.value)))
            elif not graph.constant(name):
                parts.append(None)
            elif shown is not None and name not in shown and graph.floats(name):
                parts.append((graph.dtype(name), graph.shape(name)))
            else:
                value = graph.value(name)
                parts.append(() if value is None else _content(value))
    for name in step.outputs:
        parts.append((numbers.get(name), graph.dtype(name), graph.shape(name)))
    return tuple(parts), numbers


def _content(value: np.ndarray) -> tuple[Hashable, ...]:
    # imported late: ``check`` searches without proofs, and starts quicker without hashlib
    import hashlib

    whole = value.tobytes()
    if len(whole) > _SHORT:
        whole = hashlib.sha256(whole).digest()
    return value.dtype, value.shape, whole


class RuntimeFailure(Exception):
    """ONNX Runtime has the kernels, but failed to run the nodes: out of memory, invalid values."""


class ProofSide:
    """The old or the new nodes of a step.

    Recipes of derived weights are computed once, in float64, and rounded for FP32 runs. FP16 and
    float64 tensors are FP32 in FP32 runs, so that the same tolerance applies.

    Raises:
        MalformedError: A recipe cannot be computed.
    """

    def __init__(
        self, graph: RewriteGraph, nodes: Sequence[Node], fixed: Iterable[NewConstant]
    ) -> None:
        self._graph = graph
        self._constants: dict[str, np.ndarray] = {item.name: item.value for item in fixed}
        self._nodes: list[Node] = []
        # and the constants that are fed besides activations
        self._session: tuple[ProofSession, tuple[str, ...]] | None = None
        self._narrow: dict[str, np.ndarray] = {}
        for node in nodes:
            self._add(node)
        read = {name for node in self._nodes for name in node.inputs}
        returned = {name for node in nodes for name in node.outputs}
        # inputs of recipes are free now: they may be whole weights
        self._constants = {n: v for n, v in self._constants.items() if n in read | returned}

    def float64(
        self, feeds: Mapping[str, np.ndarray], outputs: Collection[str]
    ) -> dict[str, np.ndarray]:
        """Returns the outputs, computed in float64."""
        made = evaluate(self._nodes, {**self._constants, **feeds}, self._graph.opset, outputs)
        return self._with_constants(made, outputs)

    def float32(
        self, feed: Mapping[str, np.ndarray], outputs: Sequence[str]
    ) -> dict[str, np.ndarray] | None:
        """Returns ONNX Runtime's outputs; None if it lacks a kernel for a node.

        Each call must have the same outputs, and feed the same tensors in the same shapes.

        Raises:
            RuntimeFailure: ONNX Runtime cannot run the nodes for any other reason.
        """
        computed = [name for name in outputs if name not in self._constants]
        if not computed:
            return self._with_constants({}, outputs)
        try:
            made = self._run(feed, computed)
        except Exception as error:
            # ONNX Runtime's exceptions share no base class but Exception
            said = " ".join(f"{type(error).__name__}: {error}".split())
            if _lacks_kernel(said):
                return None
            raise RuntimeFailure(said[:_LONGEST]) from error
        return self._with_constants(dict(zip(computed, made, strict=True)), outputs)

    def _run(self, feed: Mapping[str, np.ndarray], computed: Sequence[str]) -> list[np.ndarray]:
        if self._session is not None:
            session, fed = self._session
            return session.run([*feed.values(), *map(self._narrowed, fed)])
        # ONNX Runtime may require the weights as constants
        with suppress(Exception):
            return self._fed(feed, computed)
        known = {name: self._narrowed(name) for name in self._read() if name in self._constants}
        session = start_graph_session(
            self._graph, self._nodes, known, feed, computed, self._large()
        )
        made = session.run([*feed.values()])
        self._session = session, ()
        return made

    def _fed(self, feed: Mapping[str, np.ndarray], computed: Sequence[str]) -> list[np.ndarray]:
        """Runs with fed weights: ONNX Runtime copies constants, but reads feeds in place.

        All small parts of this form share the session: starting a session takes longer than running
        small nodes.
        """
        deciding = deciding_tensors(self._nodes)
        known = {name: self._narrowed(name) for name in self._read() if name in self._constants}
        fed = {n: v for n, v in known.items() if v.dtype.kind == "f" and n not in deciding}
        shown = {n: v for n, v in known.items() if n not in fed}
        if self._large():
            session = start_graph_session(
                self._graph, self._nodes, shown, {**feed, **fed}, computed, large=True
            )
        else:
            session = share_session(self._graph, self._nodes, shown, {**feed, **fed}, computed)
        made = session.run([*feed.values(), *fed.values()])
        self._session = session, tuple(fed)
        return made

    def _narrowed(self, name: str) -> np.ndarray:
        """Returns a constant for ONNX Runtime; copies of large constants are not kept."""
        found = self._narrow.get(name)
        if found is None:
            found = narrow(self._constants[name])
            if found.size < LARGE:
                self._narrow[name] = found
        return found

    def _add(self, node: Node) -> None:
        graph = self._graph
        read = [name for name in node.inputs if name]
        for name in read:
            if name not in self._constants and graph.constant(name):
                value = graph.value(name)
                if value is None:
                    raise MalformedError(f"the constant {name!r} has no value")
                self._constants[name] = value
        if not read or not all(name in self._constants for name in read):
            self._nodes.append(node)
            return
        self._constants.update(evaluate([node], self._constants, graph.opset))

    def _read(self) -> list[str]:
        return list(dict.fromkeys(n for node in self._nodes for n in node.inputs if n))

    def _with_constants(
        self, made: dict[str, np.ndarray], outputs: Collection[str]
    ) -> dict[str, np.ndarray]:
        return made | {n: self._constants[n] for n in outputs if n in self._constants}

    def _large(self) -> bool:
        graph = self._graph
        sizes = [v.size for v in self._constants.values()]
        for node in self._nodes:
            for name in (*node.inputs, *node.outputs):
                if graph.has_tensor(name):
                    sizes.append(math.prod(graph.shape(name)))
        return max(sizes, default=0) >= LARGE


def _lacks_kernel(said: str) -> bool:
    if any(reason in said for reason in _NO_KERNEL):
        return True
    return _NOT_MADE in said and _MEMORY not in said.lower()


def make_pair(graph: RewriteGraph, step: RewriteStep) -> ProofPair | None:
    """Returns both sides of a step; None if it cannot share a session with others.

    Steps that differ only in weights share the order of computation, and one ONNX Runtime session
    for both sides, which is fed the weights like inputs.
    """
    key, numbers = weight_free_key(graph, step)
    form = _cache().get(key)
    if form is None:
        if len(_cache()) >= _MOST_FORMS:
            _cache().clear()
        form = _cache()[key] = _form(graph, step, numbers)
    return None if form.failed else ProofPair(form, graph, step, list(numbers)[1:])


@lru_cache(1)
def _cache() -> dict[Hashable, _Form]:
    return {}


class ProofPair:
    """Both sides of a step. Results are pairs: the new side's, the old side's."""

    def __init__(
        self, form: _Form, graph: RewriteGraph, step: RewriteStep, names: Sequence[str]
    ) -> None:
        brought = {item.name: item.value for item in step.fixed}
        values: _Values = [None] * (len(names) + 1)
        for at in form.constants:
            name = names[at]
            values[at] = brought[name] if name in brought else graph.value(name)
        self._form = form
        self._step = step
        self._graph = graph
        # by side: both derive tensors of the same numbers
        self._sides = [values, values.copy()]
        for side in _SIDES:
            _run(form.derived[side], self._sides[side], graph.opset)
        self._fed: list[np.ndarray] | None = None

    def float64(self, feed: Mapping[str, np.ndarray]) -> _Results:
        """Computes both sides in float64."""
        return self._computed(_NEW, feed), self._computed(_OLD, feed)

    def float32(self, feed: Mapping[str, np.ndarray]) -> _Results:
        """Computes both sides at once with ONNX Runtime.

        Raises:
            Exception: ONNX Runtime's, or ValueError if weights are parameters of nodes.
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
        return self._named([_require_value(values[at]) for at in form.outputs])

    def _named(self, values: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self._step.outputs, values, strict=True))

    def _narrow(self, side: int, at: int) -> np.ndarray:
        return narrow(_require_value(self._sides[side][at]))

    def _start(self, feed: Mapping[str, np.ndarray]) -> None:
        """Starts the form's session; after a failure it is not tried again."""
        form, graph = self._form, self._graph
        # until the end of this function
        form.failed = True
        shown: dict[str, np.ndarray] = {}
        feeds = {str(at): feed[n] for at, n in zip(form.inputs, self._step.inputs, strict=True)}
        fed = {}
        for side, at, decides in form.read():
            name, value = form.called(side, at), self._narrow(side, at)
            if value.dtype.kind == "f" and not decides:
                fed[name] = side, at
                feeds[name] = value
            elif at in form.constants:
                shown[name] = value
            else:
                # a derived parameter follows weights, which differ between steps of this form
                raise ValueError("its value is not part of the key")
        types = [(graph.dtype(name), graph.shape(name)) for name in self._step.outputs]
        ends = {
            form.called(side, at): kind
            for side in _SIDES
            for at, kind in zip(form.outputs, types, strict=True)
        }
        form.session = start_session(graph.opset, form.protos(), shown, feeds, ends, False)
        form.fed = tuple(fed.values())
        form.failed = False


class _Form:
    """Data shared by steps that differ only in weights; tensors are numbers.

    Attributes:
        inputs: The fed tensors.
        outputs: The compared tensors.
        constants: Constants of the graph and of the step.
        derived: By side, the nodes that derive constants.
        rows: By side, the other nodes.
        session: Returns the old side's outputs, then the new side's.
        fed: Sides and numbers of the constants fed to the session, after the inputs.
        failed: True if steps of this form cannot be run as pairs.
    """

    def __init__(self, inputs: Iterable[int], outputs: Iterable[int], given: Iterable[int]) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.constants = tuple(given)
        self.derived: tuple[list[_Row], list[_Row]] = [], []
        self.rows: tuple[list[_Row], list[_Row]] = [], []
        self.session: ProofSession | None = None
        self.fed: tuple[tuple[int, int], ...] = ()
        self.failed = False
        self._known = [set(self.constants), set(self.constants)]

    def add(self, side: int, row: _Row) -> None:
        """Adds a node, after the nodes that it reads."""
        read = [at for at in row[1] if at >= 0]
        if read and self._known[side].issuperset(read):
            self.derived[side].append(row)
            self._known[side].update(row[2])
        else:
            self.rows[side].append(row)

    def ends_known(self) -> bool:
        """Returns True if a result is a constant."""
        return any(not known.isdisjoint(self.outputs) for known in self._known)

    def read(self) -> Iterable[tuple[int, int, bool]]:
        """Yields the constants that nodes read: side, number, True if it is a parameter."""
        for side in _SIDES:
            deciding = deciding_tensors(row[0] for row in self.rows[side])
            found = {
                at: name in deciding
                for node, read, _ in self.rows[side]
                for at, name in zip(read, node.inputs, strict=True)
                if at >= 0 and at in self._known[side]
            }
            yield from ((side, at, decides) for at, decides in found.items())

    def called(self, side: int, at: int) -> str:
        """Returns a tensor's name in the session; tensors read from outside are shared."""
        if at < 0:
            return ""
        outside = at in self.inputs or at in self.constants
        return str(at) if outside else f"{side}:{at}"

    def protos(self) -> Iterable[onnx.NodeProto]:
        """Yields the nodes of the session."""
        for side in _SIDES:
            for node, read, written in self.rows[side]:
                proto = onnx.NodeProto()
                proto.CopyFrom(node_proto(node))
                # both sides may have nodes of the same name
                proto.ClearField("name")
                proto.input[:] = [self.called(side, at) for at in read]
                proto.output[:] = [self.called(side, at) for at in written]
                yield proto


def _form(graph: RewriteGraph, step: RewriteStep, numbers: Mapping[str, int]) -> _Form:
    """Returns the form of a step; ``failed`` for large tensors and for constant results."""
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
    sizes += [math.prod(graph.shape(name)) for name in numbers if graph.has_tensor(name)]
    # no node of the session writes a constant result; large nodes need a session with threads
    form.failed = form.ends_known() or max(sizes, default=0) >= LARGE
    return form


def _require_value(value: np.ndarray | None) -> np.ndarray:
    if value is None:
        raise ValueError("a tensor has no value")
    return value


def _run(rows: Iterable[_Row], values: _Values, opset: int) -> None:
    with np.errstate(all="ignore"):
        for node, read, written in rows:
            made = compute_node(node, [values[at] for at in read], opset)
            for at, value in zip(written, made, strict=False):
                if at >= 0:
                    values[at] = value
