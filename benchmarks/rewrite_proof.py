"""How long the proofs of rewrites take: one step alone, equal steps, and a large matrix product.

    python benchmarks/rewrite_proof.py

Prints seconds on this machine; they are no test and depend on what else it does.
"""

from __future__ import annotations

import time

import numpy as np
from onnx import ModelProto, TensorProto, helper

from edgekit.network.load import canonical
from edgekit.network.model import Model
from edgekit.rewriting.graph import RewriteGraph, Writer
from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.proof.prove import prove
from edgekit.rewriting.step import step_at

_STEPS = 200


class _Pool:
    """GlobalAveragePool as AveragePool: a step without weights."""

    name = "bench-pool"
    reason = "a small step"
    operators = ("GlobalAveragePool",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        return Match((node,))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        node = match.nodes[0]
        sides = list(graph.shape(node.inputs[0])[2:])
        new.node("AveragePool", node.inputs, output=node.outputs[0], kernel_shape=sides)


class _Gemm:
    """Gemm as a convolution over the full window: a step that reads weights."""

    name = "bench-gemm"
    reason = "a step with weights"
    operators = ("Gemm",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        return Match((node,))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        node = match.nodes[0]
        maps, depth = graph.shape(node.inputs[1])
        part = [depth // 49, 7, 7]
        x = new.node("Reshape", [node.inputs[0], new.constant([1, *part])])
        w = new.node("Reshape", [node.inputs[1], new.constant([maps, *part])])
        y = new.node("Conv", [x, w], kernel_shape=[7, 7])
        new.node("Reshape", [y, new.constant([1, maps])], output=node.outputs[0])


def _model(op: str, shape: list[int], **weights: np.ndarray) -> Model:
    attributes = {"transB": 1} if op == "Gemm" else {}
    node = helper.make_node(op, ["x", *weights], ["y"], op.lower(), **attributes)
    graph = helper.make_graph(
        [node],
        "bench",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor(n, TensorProto.FLOAT, v.shape, v.tobytes(), True)
         for n, v in weights.items()],
    )  # fmt: skip
    proto: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    return canonical(proto, None)


def main() -> None:
    """Measures and prints."""
    rows = [
        ("pool 7x7, equal steps", _model("GlobalAveragePool", [1, 64, 7, 7]), _Pool(), _STEPS),
        ("Gemm 490x100", _model("Gemm", [1, 490], w=_weights(100, 490)), _Gemm(), _STEPS),
        ("Gemm 25088x4096", _model("Gemm", [1, 25088], w=_weights(4096, 25088)), _Gemm(), 1),
    ]
    for title, model, rewrite, count in rows:
        graph = RewriteGraph(model)
        node = next(iter(graph.nodes()))
        began = time.perf_counter()
        for _ in range(count):
            step = step_at(graph, rewrite, node)
            assert step is not None
        written = time.perf_counter()
        for _ in range(count):
            proof = prove(graph, step)
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
