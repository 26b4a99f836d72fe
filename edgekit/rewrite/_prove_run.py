"""One side of a proof: nodes with their constants, run in float64 and by ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from edgekit.rewrite._float64 import evaluate
from edgekit.rewrite._prove_key import telling
from edgekit.rewrite._prove_session import Session, narrow, shared, started
from edgekit.rewrite._step import MalformedError
from edgekit.rewrite._types import Fixed, Node

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph

__all__ = ["LARGE", "Part", "RuntimeFailure"]

#: Nodes that read or write this many elements in one tensor are worth more than one thread.
LARGE = 1 << 20
# how ONNX Runtime says that it lacks an operator, or an opset
_NO_KERNEL = ("NOT_IMPLEMENTED", "No Op registered", "ValidateOpsetForDomain")
# a kernel refuses attributes while it is made (recurrences with layout = 1), unless memory is short
_NOT_MADE, _MEMORY = "Exception during initialization", "alloc"
_LONGEST = 300


class RuntimeFailure(Exception):
    """ONNX Runtime has the kernels, but cannot run the nodes: too little memory, odd values."""


class Part:
    """The old or the new nodes of a step.

    Recipes of derived weights are computed once, in float64; FP32 runs get them rounded.
    Half-precision and double tensors are FP32 in FP32 runs, so that the tolerance means the same.

    Raises:
        MalformedError: A recipe cannot be computed.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node], fixed: Iterable[Fixed]) -> None:
        self._graph = graph
        self._constants: dict[str, np.ndarray] = {item.name: item.value for item in fixed}
        self._nodes: list[Node] = []
        # and the constants that are fed to it besides activations
        self._session: tuple[Session, tuple[str, ...]] | None = None
        self._narrow: dict[str, np.ndarray] = {}
        for node in nodes:
            self._add(node)
        read = {name for node in self._nodes for name in node.inputs}
        returned = {name for node in nodes for name in node.outputs}
        self._constants = {n: v for n, v in self._constants.items() if n in read | returned}

    def float64(
        self, feeds: Mapping[str, np.ndarray], outputs: Collection[str]
    ) -> dict[str, np.ndarray]:
        """Returns what the nodes compute in float64."""
        made = evaluate(self._nodes, {**self._constants, **feeds}, self._graph.opset, outputs)
        return self._with_constants(made, outputs)

    def float32(
        self, feed: Mapping[str, np.ndarray], outputs: Sequence[str]
    ) -> dict[str, np.ndarray] | None:
        """Returns what ONNX Runtime computes; None when it has no kernel for one of the nodes.

        Each call has the same outputs, and feeds the same tensors in the same shapes.

        Raises:
            RuntimeFailure: ONNX Runtime cannot run the nodes for any other reason.
        """
        computed = [name for name in outputs if name not in self._constants]
        if not computed:
            return self._with_constants({}, outputs)
        try:
            made = self._run(feed, computed)
        except Exception as error:
            # ONNX Runtime's own exceptions share no base class but Exception
            said = " ".join(f"{type(error).__name__}: {error}".split())
            if _lacks_kernel(said):
                return None
            raise RuntimeFailure(said[:_LONGEST]) from error
        return self._with_constants(dict(zip(computed, made, strict=True)), outputs)

    def _run(self, feed: Mapping[str, np.ndarray], computed: Sequence[str]) -> list[np.ndarray]:
        if self._session is not None:
            session, fed = self._session
            return session.run([*feed.values(), *map(self._narrowed, fed)])
        # ONNX Runtime may want the weights as constants
        with suppress(Exception):
            return self._fed(feed, computed)
        known = {name: self._narrowed(name) for name in self._read() if name in self._constants}
        session = started(self._graph, self._nodes, known, feed, computed, self._large())
        made = session.run([*feed.values()])
        self._session = session, ()
        return made

    def _fed(self, feed: Mapping[str, np.ndarray], computed: Sequence[str]) -> list[np.ndarray]:
        """Feeds the weights: ONNX Runtime copies constants, and reads what is fed in place.

        The session is one that all small parts of this form have in common: starting one takes
        longer than running small nodes does.
        """
        told = telling(self._nodes)
        known = {name: self._narrowed(name) for name in self._read() if name in self._constants}
        fed = {n: v for n, v in known.items() if v.dtype.kind == "f" and n not in told}
        shown = {n: v for n, v in known.items() if n not in fed}
        if self._large():
            session = started(
                self._graph, self._nodes, shown, {**feed, **fed}, computed, large=True
            )
        else:
            session = shared(self._graph, self._nodes, shown, {**feed, **fed}, computed)
        made = session.run([*feed.values(), *fed.values()])
        self._session = session, tuple(fed)
        return made

    def _narrowed(self, name: str) -> np.ndarray:
        """Returns a constant as ONNX Runtime gets it; a copy of a large one is not kept."""
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
                if graph.taken(name):
                    sizes.append(math.prod(graph.shape(name)))
        return max(sizes, default=0) >= LARGE


def _lacks_kernel(said: str) -> bool:
    if any(reason in said for reason in _NO_KERNEL):
        return True
    return _NOT_MADE in said and _MEMORY not in said.lower()
