"""One side of a proof: nodes with their constants, run in float64 and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.rewrite._float64 import evaluate
from edgekit.rewrite._step import MalformedError, proto_of
from edgekit.rewrite._types import Fixed, Node

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.rewrite._graph import Graph

__all__ = ["Part"]

# ONNX Runtime's "fatal": what goes wrong is raised, nothing else is printed
_QUIET = 4
_OLDEST_IR = 8
# larger constants are lent to ONNX Runtime, which wants to see shapes and axes in the graph
_INLINE_BYTES = 1024
# nodes that write this many elements are worth more than one thread
_LARGE = 1 << 20


class Part:
    """The old or the new nodes of a step.

    Recipes of derived weights are computed once, in float64; FP32 runs get them rounded.
    Half-precision and double tensors are FP32 in FP32 runs, so that the tolerance means the same.

    Raises:
        MalformedError: A recipe cannot be computed.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node], fixed: Iterable[Fixed]) -> None:
        self._graph = graph
        self._constants: dict[str, np.ndarray] = {item.name: item.value for item in fixed}
        self._types = {item.name: item.dtype for item in fixed}
        self._nodes: list[Node] = []
        for node in nodes:
            self._add(node)
        read = {name for node in self._nodes for name in node.inputs}
        returned = {name for node in nodes for name in node.outputs}
        self._constants = {n: v for n, v in self._constants.items() if n in read | returned}

    def float64(
        self, feeds: Mapping[str, np.ndarray], outputs: Collection[str]
    ) -> dict[str, np.ndarray]:
        """Returns what the nodes compute in float64."""
        made = evaluate(self._nodes, {**self._constants, **feeds}, self._graph.opset, outputs)
        return self._with_constants(made, outputs)

    def float32(
        self, feeds: Sequence[Mapping[str, np.ndarray]], outputs: Collection[str]
    ) -> list[dict[str, np.ndarray]] | None:
        """Returns what ONNX Runtime computes for each feed; None when it cannot run the nodes."""
        computed = [name for name in outputs if name not in self._constants]
        if not computed:
            return [self._with_constants({}, outputs) for _ in feeds]
        known = {name: self._narrow(name) for name in self._read() if name in self._constants}
        lent = {name: value for name, value in known.items() if value.nbytes > _INLINE_BYTES}
        proto = self._proto(known, lent, feeds[0], computed)
        try:
            session = _session(proto, lent, self._large())
            made = [session.run(computed, dict(feed)) for feed in feeds]
        except Exception:
            # ONNX Runtime's own exceptions share no base class but Exception
            return None
        return [
            self._with_constants(dict(zip(computed, run, strict=True)), outputs) for run in made
        ]

    def _add(self, node: Node) -> None:
        graph = self._graph
        read = [name for name in node.inputs if name]
        known = [name in self._constants or graph.constant(name) for name in read]
        for name in read:
            if name not in self._constants and graph.constant(name):
                value = graph.value(name)
                if value is None:
                    raise MalformedError(f"the constant {name!r} has no value")
                self._constants[name] = value
                self._types[name] = graph.dtype(name)
        if not read or not all(known):
            self._nodes.append(node)
            return
        self._constants.update(evaluate([node], self._constants, graph.opset))

    def _read(self) -> list[str]:
        return list(dict.fromkeys(n for node in self._nodes for n in node.inputs if n))

    def _with_constants(
        self, made: dict[str, np.ndarray], outputs: Collection[str]
    ) -> dict[str, np.ndarray]:
        return made | {n: self._constants[n] for n in outputs if n in self._constants}

    def _narrow(self, name: str) -> np.ndarray:
        import numpy as np

        value = self._constants[name]
        # what ONNX Runtime reads in place is whole and aligned
        kind = np.float32 if value.dtype.kind in "fV" else value.dtype
        return np.require(value, kind, ["C", "A"])

    def _large(self) -> bool:
        graph = self._graph
        sizes = [v.size for v in self._constants.values()]
        for node in self._nodes:
            for name in (*node.inputs, *node.outputs):
                if graph.taken(name):
                    size = 1
                    for side in graph.shape(name):
                        size *= side
                    sizes.append(size)
        return max(sizes, default=0) >= _LARGE

    def _proto(
        self,
        known: Mapping[str, np.ndarray],
        lent: Mapping[str, np.ndarray],
        feeds: Mapping[str, np.ndarray],
        outputs: Sequence[str],
    ) -> onnx.ModelProto:
        import numpy as np
        from onnx import helper, numpy_helper

        from edgekit.network._emit import stub

        def info(name: str, dtype: np.dtype, shape: Sequence[int]) -> onnx.ValueInfoProto:
            kind = np.dtype(np.float32) if dtype.kind in "fV" else dtype
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)

        graph = self._graph
        body = helper.make_graph(
            [_in_float32(proto_of(node)) for node in self._nodes],
            "part",
            [info(name, value.dtype, value.shape) for name, value in feeds.items()],
            [info(name, _dtype(graph.dtype(name)), graph.shape(name)) for name in outputs],
            [
                stub(name, value) if name in lent else numpy_helper.from_array(value, name)
                for name, value in known.items()
            ],
        )
        opsets = [helper.make_opsetid("", graph.opset)]
        version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
        return helper.make_model(body, opset_imports=opsets, ir_version=max(version, _OLDEST_IR))


def _dtype(name: str) -> np.dtype:
    import numpy as np

    # bfloat16 is none of NumPy's own types
    return np.dtype(np.float32) if name == "bfloat16" else np.dtype(name)


def _in_float32(proto: onnx.NodeProto) -> onnx.NodeProto:
    """The node with FP32 where it names another floating-point type."""
    import onnx
    from onnx import TensorProto

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
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # packed weights would be another copy, for one or two runs
    options.add_session_config_entry("session.disable_prepacking", "1")
    if not large:
        options.intra_op_num_threads = 1
    values = [ort.OrtValue.ortvalue_from_numpy(value) for value in lent.values()]
    options.add_external_initializers(list(lent), values)
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    # it reads them in place
    session.edgekit_values = values
    return session
