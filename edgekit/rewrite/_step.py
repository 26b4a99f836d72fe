"""One application of a rewrite: what it would replace by what, with the shapes of it all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Fixed, Match, Node, Rewrite, Step
from edgekit.rewrite._writer import Writer

if TYPE_CHECKING:
    import onnx

    from edgekit.rewrite._graph import Graph

__all__ = ["MalformedError", "in_order", "proto_of", "step_at"]

# constants of up to this many elements are shown to shape inference
_SHOWN = 64


class MalformedError(Exception):
    """A rewrite wrote a replacement that does not fit: a bug of the rewrite."""


def step_at(graph: Graph, rewrite: Rewrite, node: Node) -> Step | None:
    """Returns what ``rewrite`` would do at ``node``; None where it does not match.

    Raises:
        MalformedError: An output is missing, or changes its shape or type.
    """
    if node.op not in rewrite.operators or node.domain:
        return None
    match = rewrite.match(graph, node)
    if match is None:
        return None
    new = Writer(graph, match)
    rewrite.replace(graph, match, new)
    return _step(graph, rewrite, match, new)


def _step(graph: Graph, rewrite: Rewrite, match: Match, new: Writer) -> Step:
    written = {name for node in match.nodes for name in node.outputs if name}
    read = dict.fromkeys(name for node in match.nodes for name in node.inputs if name)
    inputs = tuple(n for n in read if n not in written and not graph.constant(n))
    outputs = tuple(sorted(n for n in written if not graph.inner(n, match.nodes)))
    shapes, dtypes = _infer(graph, rewrite, new.nodes, new.fixed)
    for name in outputs:
        if name not in shapes:
            raise MalformedError(f"{rewrite.name} at {match.nodes[0].name} does not write {name!r}")
        was, made = (graph.dtype(name), graph.shape(name)), (dtypes[name], shapes[name])
        if was != made:
            raise MalformedError(
                f"{rewrite.name} at {match.nodes[0].name} makes {name!r} {made}, it was {was}"
            )
    return Step(
        rewrite,
        match.nodes[0].name,
        in_order(match.nodes),
        tuple(new.nodes),
        tuple(new.fixed),
        shapes,
        dtypes,
        inputs,
        outputs,
    )


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Puts producers before readers; a match names its anchor first, wherever that stands."""
    writer = {name: node for node in nodes for name in node.outputs if name}
    found: dict[str, Node] = {}

    def visit(node: Node) -> None:
        for name in node.inputs:
            if name in writer and writer[name].name not in found:
                visit(writer[name])
        found.setdefault(node.name, node)

    for node in nodes:
        visit(node)
    return tuple(found.values())


def proto_of(node: Node) -> onnx.NodeProto:
    """Returns a node as ONNX has it."""
    from onnx import helper

    if node.proto is not None:
        return node.proto
    return helper.make_node(
        node.op, node.inputs, node.outputs, name=node.name, domain=node.domain, **node.attrs
    )


def _infer(
    graph: Graph, rewrite: Rewrite, nodes: Iterable[Node], fixed: Iterable[Fixed]
) -> tuple[Mapping[str, tuple[int, ...]], Mapping[str, str]]:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    nodes = list(nodes)
    brought = {item.name: item for item in fixed}
    written = {name for node in nodes for name in node.outputs if name}
    read = dict.fromkeys(n for node in nodes for n in node.inputs if n and n not in written)
    inputs, constants = [], []
    for name in read:
        item = brought.get(name) or graph.fixed(name)
        shape = item.value.shape if item else graph.shape(name)
        dtype = item.dtype if item else graph.dtype(name)
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        size = 1
        for side in shape:
            size *= side
        known = item is not None or graph.constant(name)
        value = None
        if known and size <= _SHOWN:
            value = item.stored() if item else graph.value(name)
        if value is not None:
            constants.append(numpy_helper.from_array(value, name))
        else:
            inputs.append(helper.make_tensor_value_info(name, elem, shape))
    body = helper.make_graph([proto_of(node) for node in nodes], "step", inputs, [], constants)
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", graph.opset)])
    try:
        made = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise MalformedError(f"{rewrite.name} wrote what ONNX refuses: {error}") from error
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, str] = {}
    for value in made.graph.value_info:
        tensor = value.type.tensor_type
        open_sides = [d for d in tensor.shape.dim if not d.HasField("dim_value")]
        if not tensor.HasField("shape") or open_sides:
            raise MalformedError(f"{rewrite.name} leaves the shape of {value.name!r} open")
        shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
        dtypes[value.name] = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    missing = written - set(shapes)
    if missing:
        raise MalformedError(f"{rewrite.name} leaves the shape of {min(missing)!r} open")
    return shapes, dtypes
