"""One side of a proof: nodes with their constants, run in float64 and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._float64 import evaluate
from edgekit.rewrite._prove_session import Session, shared, started
from edgekit.rewrite._step import MalformedError
from edgekit.rewrite._types import Fixed, Node

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph

__all__ = ["Part"]

# nodes that write this many elements are worth more than one thread
_LARGE = 1 << 20
# whose floating-point constants say how they work
_READS_FLOATS = frozenset(
    {"Clip", "DequantizeLinear", "OneHot", "Pad", "QuantizeLinear", "Range", "Resize", "Upsample"}
)


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
        self._types = {item.name: item.dtype for item in fixed}
        self._nodes: list[Node] = []
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
        self, feeds: Sequence[Mapping[str, np.ndarray]], outputs: Collection[str]
    ) -> list[dict[str, np.ndarray]] | None:
        """Returns what ONNX Runtime computes for each feed; None when it cannot run the nodes."""
        computed = [name for name in outputs if name not in self._constants]
        if not computed:
            return [self._with_constants({}, outputs) for _ in feeds]
        known = {name: self._narrow(name) for name in self._read() if name in self._constants}
        made = self._by_shared(known, feeds, computed)
        if made is None:
            made = _runs(
                lambda: started(self._graph, self._nodes, known, feeds[0], computed, self._large()),
                [list(feed.values()) for feed in feeds],
            )
        if made is None:
            return None
        return [
            self._with_constants(dict(zip(computed, run, strict=True)), outputs) for run in made
        ]

    def _by_shared(
        self,
        known: Mapping[str, np.ndarray],
        feeds: Sequence[Mapping[str, np.ndarray]],
        computed: Sequence[str],
    ) -> list[list[np.ndarray]] | None:
        """Feeds the weights to a session that all parts of this form have in common.

        Starting one takes longer than running small nodes does.

        Returns:
            None where that is not worth it, or ONNX Runtime wants the weights as constants.
        """
        if self._large():
            return None
        telling = {n for node in self._nodes if node.op in _READS_FLOATS for n in node.inputs}
        fed = {n: v for n, v in known.items() if v.dtype.kind == "f" and n not in telling}
        shown = {n: v for n, v in known.items() if n not in fed}
        return _runs(
            lambda: shared(self._graph, self._nodes, shown, {**feeds[0], **fed}, computed),
            [[*feed.values(), *fed.values()] for feed in feeds],
        )

    def _add(self, node: Node) -> None:
        graph = self._graph
        read = [name for name in node.inputs if name]
        known = [name in self._constants or graph.constant(name) for name in read]
        for name in read:
            if name not in self._constants and graph.constant(name):
                value = graph.value(name)
                if value is None:
                    raise MalformedError(f"the constant {name!r} has no value")
                self._constants[name] = value
                self._types[name] = graph.dtype(name)
        if not read or not all(known):
            self._nodes.append(node)
            return
        self._constants.update(evaluate([node], self._constants, graph.opset))

    def _read(self) -> list[str]:
        return list(dict.fromkeys(n for node in self._nodes for n in node.inputs if n))

    def _with_constants(
        self, made: dict[str, np.ndarray], outputs: Collection[str]
    ) -> dict[str, np.ndarray]:
        return made | {n: self._constants[n] for n in outputs if n in self._constants}

    def _narrow(self, name: str) -> np.ndarray:
        import numpy as np

        value = self._constants[name]
        # what ONNX Runtime reads in place is whole and aligned
        kind = np.float32 if value.dtype.kind in "fV" else value.dtype
        return np.require(value, kind, ["C", "A"])

    def _large(self) -> bool:
        graph = self._graph
        sizes = [v.size for v in self._constants.values()]
        for node in self._nodes:
            for name in (*node.inputs, *node.outputs):
                if graph.taken(name):
                    size = 1
                    for side in graph.shape(name):
                        size *= side
                    sizes.append(size)
        return max(sizes, default=0) >= _LARGE


def _runs(
    start: Callable[[], Session], feeds: Sequence[Sequence[np.ndarray]]
) -> list[list[np.ndarray]] | None:
    try:
        session = start()
        return [session.run(values) for values in feeds]
    except Exception:
        # ONNX Runtime's own exceptions share no base class but Exception
        return None
