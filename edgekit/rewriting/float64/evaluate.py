"""Computes nodes in float64: by the kernels of this package, else by onnx's reference."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from edgekit.network.graph import Node, form
from edgekit.network.protos import WITH_BODIES
from edgekit.rewriting.errors import MalformedError

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator

    from edgekit.rewriting.float64.call import Call, OperatorFunction

_REMEMBERED = 4096
# operators that only move numbers: exact in any width, so weights keep their stored width
_MOVING = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Reshape",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)


def evaluate(
    nodes: Sequence[Node],
    feeds: Mapping[str, np.ndarray],
    opset: int,
    outputs: Collection[str] | None = None,
) -> dict[str, np.ndarray]:
    """Returns the tensors that ``nodes`` write, computed in float64.

    Numbers that are only moved (Reshape, Transpose, Slice, Concat, ...) keep their stored width,
    which is exact and saves a copy of large weights; all arithmetic is in float64. A Cast from one
    floating-point type to another has no effect. Attributes are the FP32 numbers that models store.

    Args:
        nodes: The nodes in topological order.
        feeds: Tensors that they read from outside, by name; floating-point values of any width.
        opset: Version of ai.onnx.
        outputs: Tensors to return; None for all that the nodes write. Other tensors are freed
            after their last use.

    Raises:
        MalformedError: A node cannot be computed: control flow, an unknown operator.
    """
    values = dict(feeds)
    # each tensor's last reader, if tensors are freed
    last: dict[str, int] = {}
    for index, node in enumerate(nodes if outputs is not None else ()):
        # later nodes overwrite earlier ones
        last.update(dict.fromkeys(node.inputs, index))
    # infinities and NaNs are results that both sides must share
    with np.errstate(all="ignore"):
        for index, node in enumerate(nodes):
            made = compute_node(node, [values[n] if n else None for n in node.inputs], opset)
            values.update((n, v) for n, v in zip(node.outputs, made, strict=False) if n)
            if outputs is not None:
                for name in node.inputs:
                    if last[name] == index and name not in outputs:
                        values.pop(name, None)
    written = [name for node in nodes for name in node.outputs if name]
    return {name: values[name] for name in written if outputs is None or name in outputs}


def compute_node(
    node: Node, inputs: Sequence[np.ndarray | None], opset: int
) -> Sequence[np.ndarray]:
    """Returns one node's outputs for its input values; see :func:`evaluate`."""
    kernel = None if node.domain else _kernels().get(node.op)
    if kernel is not None:
        call = _call_class()(node.op, tuple(inputs), node.attrs, opset, len(node.outputs))
        made = kernel(call)
        if made is not None:
            return made
    return _reference(node, inputs, opset)


@cache
def _call_class() -> type[Call]:
    from edgekit.rewriting.float64.call import Call

    return Call


@cache
def _kernels() -> Mapping[str, OperatorFunction]:
    from edgekit.rewriting.float64 import pointwise, products, resize

    return {
        **products.MATRIX_KERNELS,
        **pointwise.KERNELS,
        **resize.KERNELS,
        **products.WINDOW_KERNELS,
        **products.DECONVOLUTION_KERNELS,
    }


def _reference(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Sequence[np.ndarray]:
    """Computes a node without a kernel, by onnx's reference."""
    from edgekit.rewriting.float64.call import wide

    if node.op in WITH_BODIES or node.domain:
        raise MalformedError(f"{node.name!r} ({node.op}) cannot be computed in float64")
    kinds = {value.dtype for value in inputs if value is not None and value.dtype.kind in "fV"}
    # the reference needs one type for all inputs
    stays = node.op in _MOVING and len(kinds) == 1
    feeds = {
        f"i{index}": value if stays else wide(value)
        for index, value in enumerate(inputs)
        if value is not None
    }
    try:
        made = iter(_evaluator(node, tuple(feeds), opset).run(None, feeds))
    except Exception as error:
        # the reference raises many kinds of exceptions
        raise MalformedError(
            f"{node.name!r} ({node.op}) cannot be computed in float64: {error}"
        ) from error
    return [next(made) if name else np.empty(0) for name in node.outputs]


def _evaluator(node: Node, feeds: Sequence[str], opset: int) -> ReferenceEvaluator:
    from onnx.reference import ReferenceEvaluator

    # names by position: equal nodes share an evaluator
    written = tuple(f"o{index}" if name else "" for index, name in enumerate(node.outputs))
    key = form(node), opset, tuple(feeds), len(node.inputs), written
    found = _cache().get(key)
    if found is None:
        if len(_cache()) >= _REMEMBERED:
            _cache().clear()
        # as opset 11 renamed it
        op, version = ("ScatterElements", 11) if node.op == "Scatter" else (node.op, 1)
        read = (f"i{index}" for index in range(len(node.inputs)))
        inputs = [name if name in feeds else "" for name in read]
        graph = helper.make_graph(
            [helper.make_node(op, inputs, written, **node.attrs)],
            "float64",
            [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in feeds],
            [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in written if n],
        )
        opsets = [helper.make_opsetid("", max(opset, version))]
        found = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
        _cache()[key] = found
    return found


@cache
def _cache() -> dict[Hashable, ReferenceEvaluator]:
    return {}
