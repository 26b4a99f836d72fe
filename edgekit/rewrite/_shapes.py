"""Shapes and types of what a rewrite writes, by ONNX's own inference."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from edgekit.network._window import POOLS, pooled
from edgekit.rewrite._forms import form
from edgekit.rewrite._types import Fixed, MalformedError, Node, proto_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph

__all__ = ["infer"]

# constants of up to this many elements are shown to shape inference
_SHOWN = 64
# whose floating-point inputs inference looks at; values of others would only tell equal steps apart
_READS_FLOATS = frozenset({"OneHot", "Range", "Resize", "Upsample"})
_REMEMBERED = 4096

#: Shape, type name and, where inference may need it, the value of a tensor read from outside.
_Outer = tuple[tuple[int, ...], str, "np.ndarray | None"]
_Found = Mapping[str, tuple[tuple[int, ...], str]]


def infer(
    graph: Graph, rewrite: str, nodes: Sequence[Node], fixed: Sequence[Fixed]
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Returns the shapes and the types of every tensor that ``nodes`` write.

    Args:
        graph: Where they will stand.
        rewrite: Who wrote them, for errors.
        nodes: In topological order.
        fixed: Constants that they bring along.

    Raises:
        MalformedError: A shape stays open, or ONNX refuses the nodes.
    """
    brought = {item.name: item for item in fixed}
    written = {name for node in nodes for name in node.outputs if name}
    read = dict.fromkeys(n for node in nodes for n in node.inputs if n and n not in written)
    telling = {n for node in nodes if node.op in _READS_FLOATS for n in node.inputs}
    outer = {
        name: _outer(graph, brought.get(name) or graph.fixed(name), name, name in telling)
        for name in read
    }
    made = _outputs(nodes)
    key = _key(graph.opset, nodes, outer, {name: i for i, name in enumerate((*read, *made))})
    found = _known().get(key)
    if found is None:
        if len(_known()) >= _REMEMBERED:
            _known().clear()
        by_name = _inferred(graph.opset, rewrite, nodes, outer)
        forms = [by_name[name] for name in made]
        found = _known()[key] = [shape for shape, _ in forms], [dtype for _, dtype in forms]
    return dict(zip(made, found[0], strict=True)), dict(zip(made, found[1], strict=True))


@lru_cache(1)
def _known() -> dict[Hashable, tuple[list[tuple[int, ...]], list[str]]]:
    return {}


def _outputs(nodes: Sequence[Node]) -> list[str]:
    return [name for node in nodes for name in node.outputs if name]


def _key(
    opset: int, nodes: Sequence[Node], outer: Mapping[str, _Outer], numbers: Mapping[str, int]
) -> Hashable:
    rows: list[Hashable] = [
        (
            form(node),
            tuple(numbers.get(name, -1) for name in (*node.inputs, *node.outputs)),
        )
        for node in nodes
    ]
    rows += [
        (shape, dtype, None if value is None else value.tobytes())
        for shape, dtype, value in outer.values()
    ]
    return opset, tuple(rows)


def _outer(graph: Graph, item: Fixed | None, name: str, floats: bool) -> _Outer:
    shape = tuple(item.value.shape) if item else graph.shape(name)
    dtype = item.dtype if item else graph.dtype(name)
    value = None
    if math.prod(shape) <= _SHOWN and (floats or not dtype.startswith(("float", "bfloat"))):
        value = item.stored() if item else graph.value(name)
    return shape, dtype, value


def _inferred(
    opset: int, rewrite: str, nodes: Sequence[Node], outer: Mapping[str, _Outer]
) -> _Found:
    """Infers all at once, and what is behind a pool that onnx takes for too long once more."""
    found = _by_onnx(opset, rewrite, nodes, outer)
    for index, node in enumerate(nodes):
        if node.op not in POOLS or not node.attrs.get("ceil_mode"):
            continue
        name = node.inputs[0]
        source = outer[name][0] if name in outer else found[name][0]
        shape = found[node.outputs[0]][0]
        right = (*shape[:2], *pooled(node.attrs, source[2:], shape[2:]))
        if right == shape:
            continue
        done: dict[str, tuple[tuple[int, ...], str]] = {
            name: found[name] for name in _outputs(nodes[:index])
        }
        done |= {name: (right, found[name][1]) for name in _outputs([node])}
        known = {name: (shape, dtype, None) for name, (shape, dtype) in done.items()}
        return {**done, **_inferred(opset, rewrite, nodes[index + 1 :], {**outer, **known})}
    return found


def _by_onnx(
    opset: int, rewrite: str, nodes: Sequence[Node], outer: Mapping[str, _Outer]
) -> _Found:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    inputs, constants = [], []
    for name, (shape, dtype, value) in outer.items():
        if value is not None:
            constants.append(numpy_helper.from_array(value, name))
            continue
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs.append(helper.make_tensor_value_info(name, elem, shape))
    body = helper.make_graph([proto_of(node) for node in nodes], "step", inputs, [], constants)
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)])
    try:
        made = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise MalformedError(f"{rewrite} wrote what ONNX refuses: {error}") from error
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for value in made.graph.value_info:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
            found[value.name] = tuple(d.dim_value for d in tensor.shape.dim), dtype
    missing = set(_outputs(nodes)) - set(found)
    if missing:
        raise MalformedError(f"{rewrite} leaves the shape of {min(missing)!r} open")
    return found
