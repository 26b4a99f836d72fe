"""When two steps are the same, so that one proof serves both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Step

__all__ = ["key"]


def key(graph: Graph, step: Step) -> str | None:
    """Returns a text that equal steps have in common, whatever their tensors are called.

    It stands for the opset, the operators, their attributes, how they are connected, the shapes
    and types of what they read and write, and the values of constants.

    Returns:
        None when the step reads the model's weights, or what was derived from them.
    """
    import hashlib

    from edgekit.rewrite._all import APPROXIMATE

    numbers: dict[str, int] = {"": -1}
    brought = {item.name: item for item in step.fixed}
    parts = [str(graph.opset), str(step.rewrite.name.startswith(APPROXIMATE))]

    def described(tensor: str) -> str:
        known = tensor in numbers
        number = numbers.setdefault(tensor, len(numbers))
        if known:
            return str(number)
        item = brought.get(tensor) or graph.fixed(tensor)
        if item is not None:
            return f"{number}={item.dtype}{_digest(item.value)}"
        if graph.initializer(tensor) is not None:
            value = graph.value(tensor)
            return f"{number}={'' if value is None else _digest(value)}"
        return str(number)

    for name in step.inputs:
        parts.append(f"{described(name)}:{graph.dtype(name)}{graph.shape(name)}")
    for node in (*step.old, *step.new):
        for name in node.inputs:
            if name in graph.model.weights or graph.recipe(name) is not None:
                return None
        read = [described(name) for name in node.inputs]
        written = [described(name) for name in node.outputs]
        attributes = [(name, _plain(node.attrs[name])) for name in sorted(node.attrs)]
        parts.append(f"{node.domain}.{node.op}{attributes}{read}{written}")
    for name in step.outputs:
        parts.append(f"{described(name)}:{graph.dtype(name)}{graph.shape(name)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.SerializeToString() if hasattr(value, "SerializeToString") else value


def _digest(value: np.ndarray) -> str:
    import hashlib

    import numpy as np

    whole = np.ascontiguousarray(value)
    return f"{value.dtype}{value.shape}{hashlib.sha256(whole.tobytes()).hexdigest()}"
