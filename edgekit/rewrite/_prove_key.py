"""When two steps are the same, so that one proof serves both."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from edgekit.rewrite._forms import form

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Step

__all__ = ["key"]

# larger constants are told apart by their digests
_SHORT = 256


def key(graph: Graph, step: Step) -> Hashable | None:
    """Returns what equal steps have in common, whatever their tensors are called.

    It stands for the opset, the operators, their attributes, how they are connected, the shapes
    and types of what they read and write, and the values of constants.

    Returns:
        None when the step reads the model's weights, or what was derived from them.
    """
    from edgekit.rewrite._all import APPROXIMATE

    weights = graph.model.weights
    nodes = (*step.old, *step.new)
    for node in nodes:
        for name in node.inputs:
            if name in weights or graph.recipe(name) is not None:
                return None
    numbers = {"": -1}
    brought = {item.name: item for item in step.fixed}
    parts: list[Hashable] = [graph.opset, len(step.old), step.rewrite.name.startswith(APPROXIMATE)]
    for name in step.inputs:
        numbers.setdefault(name, len(numbers))
        parts.append((graph.dtype(name), graph.shape(name)))
    # where a tensor is met first stands its value, None for an activation; its number follows
    for node in nodes:
        parts.append((form(node), len(node.inputs), len(node.outputs)))
        for name in (*node.inputs, *node.outputs):
            known = numbers.get(name)
            if known is not None:
                parts.append(known)
                continue
            numbers[name] = len(numbers)
            item = brought.get(name) or graph.fixed(name)
            if item is not None:
                parts.append((item.dtype, *_content(item.value)))
            elif graph.initializer(name) is not None:
                value = graph.value(name)
                parts.append(() if value is None else _content(value))
            else:
                parts.append(None)
    for name in step.outputs:
        parts.append((numbers.get(name), graph.dtype(name), graph.shape(name)))
    return tuple(parts)


def _content(value: np.ndarray) -> tuple[Hashable, ...]:
    import hashlib

    whole = value.tobytes()
    if len(whole) > _SHORT:
        whole = hashlib.sha256(whole).digest()
    return value.dtype, value.shape, whole
