"""When two steps are the same, so that one proof serves both."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING

from edgekit.rewrite._forms import form

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node, Step

__all__ = ["READS_FLOATS", "alike", "key", "telling"]

#: Operators whose floating-point constants say how they work.
READS_FLOATS = frozenset(
    {"Clip", "DequantizeLinear", "OneHot", "Pad", "QuantizeLinear", "Range", "Resize", "Upsample"}
)

# larger constants are told apart by their digests
_SHORT = 256


def key(graph: Graph, step: Step) -> Hashable | None:
    """Returns what equal steps have in common, whatever their tensors are called.

    It stands for the opset, the operators, their attributes, how they are connected, the shapes
    and types of what they read and write, and the values of constants.

    Returns:
        None when the step reads the model's weights, or what was derived from them.
    """
    weights = graph.model.weights
    for node in (*step.old, *step.new):
        for name in node.inputs:
            if name in weights or graph.recipe(name) is not None:
                return None
    return _numbered(graph, step, None)[0]


def alike(graph: Graph, step: Step) -> tuple[Hashable, dict[str, int]]:
    """Returns what steps have in common that differ in the model's weights alone.

    Of constants that the model has, or that were derived from them, only shapes and types count,
    unless they are whole numbers or say how an operator works (:data:`READS_FLOATS`).

    Returns:
        The key, and a number for each tensor, by which those of another such step are found; that
        of "" is -1.
    """
    return _numbered(graph, step, telling((*step.old, *step.new)))


def telling(nodes: Iterable[Node]) -> frozenset[str]:
    """Returns the tensors whose floating-point values say how one of ``nodes`` works."""
    return frozenset(n for node in nodes if node.op in READS_FLOATS for n in node.inputs)


def _numbered(
    graph: Graph, step: Step, shown: Collection[str] | None
) -> tuple[Hashable, dict[str, int]]:
    """The key and the numbers; the values of all constants count where ``shown`` is None."""
    from edgekit.rewrite._all import APPROXIMATE

    numbers = {"": -1}
    brought = {item.name: item for item in step.fixed}
    parts: list[Hashable] = [graph.opset, len(step.old), step.rewrite.name.startswith(APPROXIMATE)]
    for name in step.inputs:
        numbers.setdefault(name, len(numbers) - 1)
        parts.append((graph.dtype(name), graph.shape(name)))
    # where a tensor is met first stands its value, None for an activation; its number follows
    for node in (*step.old, *step.new):
        parts.append((form(node), len(node.inputs), len(node.outputs)))
        for name in (*node.inputs, *node.outputs):
            known = numbers.get(name)
            if known is not None:
                parts.append(known)
                continue
            numbers[name] = len(numbers) - 1
            item = brought.get(name) or graph.fixed(name)
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
    import hashlib

    whole = value.tobytes()
    if len(whole) > _SHORT:
        whole = hashlib.sha256(whole).digest()
    return value.dtype, value.shape, whole
