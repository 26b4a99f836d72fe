"""The values of this floor: what a rewrite is, where it applies and what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = [
    "Applied",
    "Fixed",
    "MalformedError",
    "Match",
    "Node",
    "Rewrite",
    "Step",
    "TooLargeError",
    "names",
    "proto_of",
]


class MalformedError(Exception):
    """A rewrite wrote a replacement that does not fit: a bug of the rewrite."""


class TooLargeError(Exception):
    """A replacement needs larger constants, or more nodes, than it can be worth."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One ONNX node of the graph that is rewritten.

    Attributes:
        name: Unique in the graph.
        op: ONNX operator.
        inputs: Tensors read, in order; "" where an optional one is left out.
        outputs: Tensors written, in order; "" where an optional one is left out.
        attrs: Attribute values as plain Python values (int, float, str, lists of them); tensors
            and graphs as their protos.
        domain: "" for ai.onnx.
        proto: The node as the model has it; None for one that a rewrite wrote.
        known: Its form, once somebody asked for it.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    proto: onnx.NodeProto | None = None
    known: list[int] = field(default_factory=list, init=False, repr=False)

    def input(self, index: int) -> str:
        """Returns the name of an input; "" where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A constant that a rewrite brings along.

    Floating-point values are kept in float64, so that a proof in float64 sees the number that is
    meant; the model gets them rounded once, to ``dtype``.
    """

    name: str
    value: np.ndarray
    dtype: str

    def stored(self) -> np.ndarray:
        """Returns the value as the model stores it."""
        return self.value.astype(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A place where a rewrite applies.

    Attributes:
        nodes: The nodes it replaces, the anchor first. Tensors that others read, or that the graph
            returns, must be written again by the replacement under the same name, in the same
            shape and type.
        facts: What ``match`` found out and ``replace`` needs.
    """

    nodes: tuple[Node, ...]
    facts: Any = None


class Rewrite(Protocol):
    """One rewrite. Equal in real arithmetic unless its name begins with "approx-".

    Attributes:
        name: For ``rewrite.enable`` and ``rewrite.disable``; kebab-case.
        reason: Why it helps, for people: what the DLA lacks, and what stands there instead.
        operators: ONNX operators of the anchor: ``match`` is asked for these nodes only.
        enabling: It may also be applied where it changes no verdict, for it opens the way for
            others (a matrix product as a convolution, a transposition moved on). It must bring
            the graph nearer to an end, so that applying it again and again stops. What did not
            lead to an improvement in the end is taken back.
    """

    name: str
    reason: str
    operators: tuple[str, ...]
    enabling: bool

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns the place at ``node``, or None. Constant time: looks at neighbours only."""

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the nodes that take the place of ``match.nodes``."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One application of a rewrite, before or after it was proved.

    Attributes:
        rewrite: What was applied.
        anchor: Name of the node at which it matched.
        old: Nodes that went away, in graph order.
        new: Nodes that came, in topological order, recipes among them.
        recipes: Names of those of them that compute constants from constants (derived weights).
        fixed: Constants that came along.
        shapes: Shape by tensor that ``new`` writes, constants among them.
        dtypes: NumPy type name by tensor that ``new`` writes.
        inputs: Activation tensors that ``old`` reads from outside.
        outputs: Tensors of ``old`` that are read outside or returned, which ``new`` writes too.
    """

    rewrite: Rewrite
    anchor: str
    old: tuple[Node, ...]
    new: tuple[Node, ...]
    recipes: frozenset[str]
    fixed: tuple[Fixed, ...]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """A rewrite that was applied and proved.

    Attributes:
        rewrite: Its name.
        reason: Why it helps.
        anchor: Node at which it matched.
        nodes: Nodes that it took away: the model's, or those of a rewrite before it.
        new_nodes: Nodes that it wrote.
        max_error: Largest ``max|a-b| / max|b|`` of its outputs in FP32 (ONNX Runtime); None where
            ONNX Runtime has no kernel for the old nodes.
        max_error_float64: The same in float64; None for an approximate rewrite.
        runs: Number of random inputs the proof ran on.
        seed: Their seed.
    """

    rewrite: str
    reason: str
    anchor: str
    nodes: tuple[str, ...]
    new_nodes: tuple[str, ...]
    max_error: float | None
    max_error_float64: float | None
    runs: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Returns the machine-readable record that travels with the bundle."""
        return {
            "rewrite": self.rewrite,
            "reason": self.reason,
            "anchor": self.anchor,
            "nodes": list(self.nodes),
            "new_nodes": list(self.new_nodes),
            "max_error": self.max_error,
            "max_error_float64": self.max_error_float64,
            "runs": self.runs,
            "seed": self.seed,
        }


def names(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Returns the names of ``nodes``."""
    return tuple(node.name for node in nodes)


def proto_of(node: Node) -> onnx.NodeProto:
    """Returns a node as ONNX has it."""
    from onnx import helper

    if node.proto is not None:
        return node.proto
    return helper.make_node(
        node.op, node.inputs, node.outputs, name=node.name, domain=node.domain, **node.attrs
    )
