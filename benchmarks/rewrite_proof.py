"""How long the proofs of rewrites take: one step alone, equal steps, and a large matrix product.

    python benchmarks/rewrite_proof.py

Prints seconds on this machine; they are no test and depend on its other work.
"""

from __future__ import annotations

import time

import numpy as np
from onnx import ModelProto, TensorProto, helper

from edgekit.network.graph import Node
from edgekit.network.loading.load import canonical
from edgekit.network.model import Model
from edgekit.rewriting.graph import Replacement, RewriteGraph, rewrite
from edgekit.rewriting.proof.prove import prove
from edgekit.rewriting.step import step_at

_STEPS = 200


@rewrite("bench-pool", operators=("GlobalAveragePool",), reason="a small step")
def _pool(graph: RewriteGraph, node: Node) -> Replacement:
    """GlobalAveragePool as AveragePool: a step without weights."""
    new = yield (node,)
    sides = list(graph.shape(node.inputs[0])[2:])
    new.node("AveragePool", node.inputs, output=node.outputs[0], kernel_shape=sides)


@rewrite("bench-gemm", operators=("Gemm",), reason="a step with weights")
def _gemm(graph: RewriteGraph, node: Node) -> Replacement:
    """Gemm as a convolution over the full window: a step that reads weights."""
    new = yield (node,)
    maps, depth = graph.shape(node.inputs[1])
    part = [depth // 49, 7, 7]
    x = new.node("Reshape", [node.inputs[0], new.constant([1, *part])])
    w = new.node("Reshape", [node.inputs[1], new.constant([maps, *part])])
    y = new.node("Conv", [x, w], kernel_shape=[7, 7])
    new.node("Reshape", [y, new.constant([1, maps])], output=node.outputs[0])


def _model(op: str, shape: list[int], **weights: np.ndarray) -> Model:
    node = helper.make_node(op, ["x", *weights], ["y"], op.lower())
    if op == "Gemm":
        node.attribute.append(helper.make_attribute("transB", 1))
    graph = helper.make_graph(
        [node],
        "bench",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            helper.make_tensor(n, TensorProto.FLOAT, v.shape, v.tobytes(), True)
            for n, v in weights.items()
        ],
    )
    proto: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    return canonical(proto, None)


def main() -> None:
    """Measures and prints."""
    rows = [
        ("pool 7x7, equal steps", _model("GlobalAveragePool", [1, 64, 7, 7]), _pool, _STEPS),
        ("Gemm 490x100", _model("Gemm", [1, 490], w=_weights(100, 490)), _gemm, _STEPS),
        ("Gemm 25088x4096", _model("Gemm", [1, 25088], w=_weights(4096, 25088)), _gemm, 1),
    ]
    for title, model, item, count in rows:
        graph = RewriteGraph(model)
        node = next(iter(graph.nodes()))
        began = time.perf_counter()
        for _ in range(count):
            found = step_at(graph, item, node)
        written = time.perf_counter()
        assert found is not None
        for _ in range(count):
            proof = prove(graph, found)
        ended = time.perf_counter()
        assert proof.holds()
        print(
            f"{title:<22} {1e3 * (written - began) / count:9.3f} ms to write, "
            f"{1e3 * (ended - written) / count:9.3f} ms to prove"
        )


def _weights(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)


if __name__ == "__main__":
    main()
