"""Nodes in float64: by the kernels of this package, else by onnx's reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from edgekit.network.graph import Node, proto_of
from edgekit.network.protos import WITH_BODIES
from edgekit.rewriting.errors import MalformedError

if TYPE_CHECKING:
    from edgekit.rewriting.float64.call import Call, OperatorFunction


def evaluate(
    nodes: Sequence[Node],
    feeds: Mapping[str, np.ndarray],
    opset: int,
    outputs: Collection[str] | None = None,
) -> dict[str, np.ndarray]:
    """Returns the tensors that ``nodes`` write, computed in float64.

    Numbers that are only moved about (Reshape, Transpose, Slice, Concat, ...) keep the width in
    which they are stored, which is exact and saves a copy of large weights; all arithmetic is in
    float64. A Cast from one floating-point type to another changes nothing. Attributes are the
    FP32 numbers that models store.

    Args:
        nodes: In topological order.
        feeds: What they read from outside, by name; floating-point values of any width.
        opset: Version of ai.onnx.
        outputs: Tensors to return; all that the nodes write when None. Others are let go as soon
            as no node needs them.

    Raises:
        MalformedError: A node that cannot be computed: control flow, an unknown operator.
    """
    values = dict(feeds)
    # where each is read for the last time, when that matters
    last: dict[str, int] = {}
    for index, node in enumerate(nodes if outputs is not None else ()):
        last.update(dict.fromkeys(node.inputs, index))
    with np.errstate(all="ignore"):
        for index, node in enumerate(nodes):
            made = computed(node, [values[n] if n else None for n in node.inputs], opset)
            values.update((n, v) for n, v in zip(node.outputs, made, strict=False) if n)
            if outputs is not None:
                for name in node.inputs:
                    if last[name] == index and name not in outputs:
                        values.pop(name, None)
    written = [name for node in nodes for name in node.outputs if name]
    return {name: values[name] for name in written if outputs is None or name in outputs}


def computed(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Sequence[np.ndarray]:
    """Returns what one node writes, from values of what it reads; see :func:`evaluate`."""
    kernel = None if node.domain else _kernels().get(node.op)
    if kernel is not None:
        call = _call()(node.op, tuple(inputs), node.attrs, opset, len(node.outputs))
        made = kernel(call)
        if made is not None:
            return made
    return _reference(node, inputs, opset)


@cache
def _call() -> type[Call]:
    from edgekit.rewriting.float64.call import Call

    return Call


@cache
def _kernels() -> Mapping[str, OperatorFunction]:
    from edgekit.rewriting.float64 import elementwise, moves, products, resize

    return {
        **products.MATRIX_KERNELS,
        **moves.KERNELS,
        **elementwise.ELEMENTWISE_KERNELS,
        **elementwise.RECURRENT_KERNELS,
        **resize.KERNELS,
        **products.WINDOW_KERNELS,
        **products.DECONVOLUTION_KERNELS,
    }


def _reference(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Sequence[np.ndarray]:
    """A node that no kernel is written for, by onnx's reference on float64."""
    from onnx.reference import ReferenceEvaluator

    from edgekit.rewriting.float64.call import wide

    if node.op in WITH_BODIES or node.domain:
        raise MalformedError(f"{node.name!r} ({node.op}) cannot be computed in float64")
    if node.op == "Scatter":
        # as opset 11 renamed it
        node, opset = replace(node, op="ScatterElements", proto=None), max(opset, 11)
    named = dict(zip(node.inputs, inputs, strict=True))
    feeds = {name: wide(value) for name, value in named.items() if value is not None}
    wanted = [name for name in node.outputs if name]
    graph = helper.make_graph(
        [proto_of(node)],
        "float64",
        [helper.make_tensor_value_info(n, TensorProto.DOUBLE, v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in wanted],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        made = ReferenceEvaluator(model).run(wanted, feeds)
    except Exception as error:
        # the reference raises plain exceptions of many kinds
        raise MalformedError(
            f"{node.name!r} ({node.op}) cannot be computed in float64: {error}"
        ) from error
    results = iter(made)
    return [next(results) if name else np.empty(0) for name in node.outputs]
