"""The parts that rewrites read and write: nodes, constants, and the errors of a
replacement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx
from onnx import helper

if TYPE_CHECKING:
    import numpy as np


class MalformedError(Exception):
    """A rewrite wrote a replacement that does not fit: a bug of the rewrite."""


class TooLargeError(Exception):
    """A replacement needs larger constants, or more nodes, than it can save."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One ONNX node of the graph that is rewritten.

    Attributes:
        name: Unique in the graph.
        op: ONNX operator.
        inputs: Tensors read, in order; "" if an optional one is left out.
        outputs: Tensors written, in order; "" if an optional one is left out.
        attrs: Attribute values as plain Python values (int, float, str, lists of them); tensors
            and graphs as their protos.
        domain: "" for ai.onnx.
        proto: The node as the model has it; None for one that a rewrite wrote.
        known: Its form, once requested.
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
        """Returns the name of an input; "" if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True, slots=True, eq=False)
class NewConstant:
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


def names(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Returns the names of ``nodes``."""
    return tuple(node.name for node in nodes)


def proto_of(node: Node) -> onnx.NodeProto:
    """Returns a node as ONNX has it."""
    if node.proto is not None:
        return node.proto
    return helper.make_node(
        node.op, node.inputs, node.outputs, name=node.name, domain=node.domain, **node.attrs
    )
