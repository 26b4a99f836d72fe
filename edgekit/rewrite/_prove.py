"""The numerical proof of one step: old and new nodes on the same random inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._float64 import evaluate
from edgekit.rewrite._types import Fixed, Node, Step

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model
    from edgekit.rewrite._graph import Graph

__all__ = ["RUNS", "SEED", "TOLERANCE", "TOLERANCE_FLOAT64", "Proof", "prove"]

RUNS = 2
SEED = 0
TOLERANCE = 1e-5  # of the largest value, in FP32
TOLERANCE_FLOAT64 = 1e-9


@dataclass(frozen=True, slots=True)
class Proof:
    """What the random runs showed: largest ``max|a-b| / max|b|`` of any output.

    Attributes:
        float32: With ONNX Runtime, in FP32.
        float64: In float64, by NumPy.
    """

    float32: float
    float64: float

    def holds(self) -> bool:
        """Whether both are within their tolerances (a NaN is not)."""
        return self.float32 <= TOLERANCE and self.float64 <= TOLERANCE_FLOAT64


def prove(graph: Graph, step: Step, *, runs: int = RUNS, seed: int = SEED) -> Proof:
    """Runs what a step takes away and what it brings, before it is applied.

    Args:
        graph: Where the old nodes still stand.
        step: The step.
        runs: Number of random inputs.
        seed: Of the random inputs: standard normal numbers, fair truth values.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    worst64 = worst32 = 0.0
    for _ in range(runs):
        feeds = {name: _random(random, graph.shape(name), graph.dtype(name)) for name in step.inputs}
        old, new = _float64(graph, step.old, (), feeds), _float64(graph, step.new, step.fixed, feeds)
        worst64 = max(worst64, *(_distance(new[n], old[n]) for n in step.outputs))
        old32 = _onnxruntime(graph, step, step.old, (), feeds)
        new32 = _onnxruntime(graph, step, step.new, step.fixed, feeds)
        worst32 = max(worst32, *(_distance(new32[n], old32[n]) for n in step.outputs))
    return Proof(worst32, worst64)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    import numpy as np

    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.abs(a - b).max() / (np.abs(b).max() or 1.0))


def _random(random: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    import numpy as np

    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, 4, shape).astype(dtype)
    return random.standard_normal(shape).astype(np.float32)


def _float64(
    graph: Graph, nodes: Sequence[Node], fixed: Iterable[Fixed], feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    known = {item.name: item.value for item in fixed} | dict(feeds)
    written = {n for node in nodes for n in node.outputs}
    for node in nodes:
        for name in node.inputs:
            if name and name not in known and name not in written:
                value = graph.value(name)
                assert value is not None
                known[name] = value
    return evaluate(nodes, known, graph.opset)


def _onnxruntime(
    graph: Graph,
    step: Step,
    nodes: Sequence[Node],
    fixed: Iterable[Fixed],
    feeds: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    import numpy as np
    import onnxruntime as ort
    from onnx import helper, numpy_helper

    from edgekit.rewrite._step import proto_of

    written = {n for node in nodes for n in node.outputs}
    brought = {item.name: item.stored() for item in fixed}
    constants = []
    for name in dict.fromkeys(n for node in nodes for n in node.inputs if n):
        if name in written or name in feeds:
            continue
        value = brought.get(name)
        constants.append(numpy_helper.from_array(np.asarray(graph.value(name) if value is None else value), name))
    elem = {n: helper.np_dtype_to_tensor_dtype(np.dtype(graph.dtype(n))) for n in (*feeds, *step.outputs)}
    body = helper.make_graph(
        [proto_of(node) for node in nodes], "part",
        [helper.make_tensor_value_info(n, elem[n], v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(n, elem[n], graph.shape(n)) for n in step.outputs],
        constants,
    )  # fmt: skip
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", graph.opset)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    made = session.run(list(step.outputs), dict(feeds))
    return dict(zip(step.outputs, made, strict=True))
