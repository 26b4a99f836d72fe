"""ONNX Runtime sessions for proofs; parts of the same form share a session."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.network.graph import Node, form, node_proto
from edgekit.network.loading.load import stub
from edgekit.network.session import lent_value, open_session
from edgekit.rewriting.graph import RewriteGraph

_OLDEST_IR = 8
# larger constants are passed by reference; ONNX Runtime needs shapes and axes in the graph
_INLINE_BYTES = 1024
_MOST = 256


class ProofSession:
    """A session with inputs and outputs by position."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._session = session
        self._inputs = tuple(inputs)
        self._outputs = list(outputs)

    def run(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the outputs."""
        feed = dict(zip(self._inputs, values, strict=True))
        return self._session.run(self._outputs, feed)  # type: ignore[no-any-return]


def share_session(
    graph: RewriteGraph,
    nodes: Sequence[Node],
    known: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str],
) -> ProofSession:
    """Returns a session for all nodes equal to ``nodes`` except for names and fed values.

    Args:
        graph: The graph with the nodes.
        nodes: The nodes in topological order.
        known: Constants, by name.
        feeds: Fed tensors, for their shapes and types, in the order of the session's inputs.
        outputs: Tensors to compute, in order.
    """
    # numbers instead of names, so that equal parts of a network are equal
    number = {name: i for i, name in enumerate((*feeds, *known))}
    for node in nodes:
        for name in node.outputs:
            if name:
                number.setdefault(name, len(number))
    key = (
        graph.opset,
        tuple((value.shape, value.dtype.str) for value in feeds.values()),
        tuple((v.shape, v.dtype.str, v.tobytes()) for v in known.values()),
        tuple(_node_key(node, number) for node in nodes),
        tuple(number[name] for name in outputs),
    )
    found = _cache().get(key)
    if found is None:
        if len(_cache()) >= _MOST:
            _cache().clear()
        # one thread (large=False): more do not make small parts faster
        found = _cache()[key] = start_graph_session(graph, nodes, known, feeds, outputs, False)
    return found


@lru_cache(1)
def _cache() -> dict[Hashable, ProofSession]:
    return {}


def _node_key(node: Node, number: Mapping[str, int]) -> Hashable:
    names = (tuple(number.get(name, name) for name in side) for side in (node.inputs, node.outputs))
    return form(node), *names


def start_graph_session(
    graph: RewriteGraph,
    nodes: Sequence[Node],
    known: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    large: bool,
) -> ProofSession:
    """Starts a session; other arguments as for :func:`share_session`.

    Args:
        large: True if more than one thread makes it faster.
    """
    ends = {name: (graph.dtype(name), graph.shape(name)) for name in outputs}
    return start_session(graph.opset, map(node_proto, nodes), known, feeds, ends, large)


def start_session(
    opset: int,
    nodes: Iterable[onnx.NodeProto],
    known: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    outputs: Mapping[str, tuple[str, Sequence[int]]],
    large: bool,
) -> ProofSession:
    """Starts a session for ONNX nodes; ``outputs`` with their types and shapes."""
    lent = {name: value for name, value in known.items() if value.nbytes > _INLINE_BYTES}
    proto = _proto(opset, nodes, known, lent, feeds, outputs)
    return ProofSession(_session(proto, lent, large), list(feeds), list(outputs))


def narrow(value: np.ndarray) -> np.ndarray:
    """Returns a value for ONNX Runtime: contiguous, aligned, and FP32 if floating-point."""
    # ONNX Runtime reads contiguous, aligned values in place
    # kind V: ml_dtypes registers bfloat16 as a void type
    kind = np.float32 if value.dtype.kind in "fV" else value.dtype
    if value.dtype == kind and value.flags.c_contiguous and value.flags.aligned:
        return value
    return np.require(value, kind, ["C", "A"])


def _proto(
    opset: int,
    nodes: Iterable[onnx.NodeProto],
    known: Mapping[str, np.ndarray],
    lent: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    outputs: Mapping[str, tuple[str, Sequence[int]]],
) -> onnx.ModelProto:
    def info(name: str, dtype: np.dtype, shape: Sequence[int]) -> onnx.ValueInfoProto:
        kind = np.dtype(np.float32) if dtype.kind in "fV" else dtype
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)

    body = helper.make_graph(
        [_in_float32(node) for node in nodes],
        "part",
        [info(name, value.dtype, value.shape) for name, value in feeds.items()],
        [info(name, _dtype(dtype), shape) for name, (dtype, shape) in outputs.items()],
        [
            stub(name, value) if name in lent else numpy_helper.from_array(value, name)
            for name, value in known.items()
        ],
    )
    opsets = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    return helper.make_model(body, opset_imports=opsets, ir_version=max(version, _OLDEST_IR))


def _dtype(name: str) -> np.dtype:
    # bfloat16 is not a built-in NumPy type
    return np.dtype(np.float32) if name == "bfloat16" else np.dtype(name)


def _in_float32(proto: onnx.NodeProto) -> onnx.NodeProto:
    """Returns the node with FP32 instead of any other floating-point type that it names."""
    floats = {TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
    if not any(item.name in {"to", "dtype"} and item.i in floats for item in proto.attribute):
        return proto
    changed = onnx.NodeProto()
    changed.CopyFrom(proto)
    for item in changed.attribute:
        if item.name in {"to", "dtype"} and item.i in floats:
            item.i = TensorProto.FLOAT
    return changed


def _session(proto: onnx.ModelProto, lent: Mapping[str, np.ndarray], large: bool) -> Any:
    # packed weights would be another copy, for one or two runs; hundreds of sessions are cached,
    # and none keeps the memory of its last run
    return open_session(
        proto.SerializeToString(),
        {name: lent_value(value) for name, value in lent.items()},
        optimise=False,
        threads=0 if large else 1,
        arena=False,
        prepack=False,
    )
