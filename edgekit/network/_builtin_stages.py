"""Runs a graph once over a batch, a piece at a time, while its weights are still being made."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.network._builtin_fill import Graph

if TYPE_CHECKING:
    import onnx

__all__ = ["Stages"]

Array = np.ndarray[Any, Any]

# from IR 4 on an initializer need not be a graph input too; every ONNX Runtime in use reads 8
_IR_VERSION = 8


class Stages:
    """The activations at the frontier of one forward pass over a batch of single images.

    Nodes are queued in graph order; ``advance`` runs what is queued and keeps only the tensors
    that later nodes read, so that nothing is computed twice and little is held. Images run one
    by one, each on one thread, so that the sums do not depend on the number of processors.

    Args:
        graph: The graph whose steps will come.
        weights: Parameter values by name; may be filled while the stages run.
        images: The batch: one array of the graph's input shape an image.
    """

    def __init__(self, graph: Graph, weights: Mapping[str, Array], images: Sequence[Array]) -> None:
        proto = graph.proto
        self._graph = graph
        self._weights = weights
        self._constants = {tensor.name: tensor for tensor in proto.graph.initializer}
        self._left: dict[str, int] = {}
        for node in graph.steps:
            for name in node.input:
                self._left[name] = self._left.get(name, 0) + 1
        self._live: dict[str, list[Array]] = {proto.graph.input[0].name: list(images)}
        self._queue: list[onnx.NodeProto] = []
        self._workers = min(len(images), os.cpu_count() or 1)

    def push(self, node: onnx.NodeProto) -> None:
        """Queues the next step of the graph."""
        self._queue.append(node)

    def advance(self) -> None:
        """Runs the queued nodes over the batch."""
        if not self._queue:
            return
        nodes, self._queue = self._queue, []
        for node in nodes:
            for name in node.input:
                self._left[name] -= 1
        made = [name for node in nodes for name in node.output if self._left.get(name, 0) > 0]
        read = dict.fromkeys(name for node in nodes for name in node.input)
        feeds = [name for name in read if name in self._live]
        carried = [self._graph.carriers[name] for name in read if name in self._graph.carriers]
        read |= dict.fromkeys(name for node in carried for name in node.input)
        session = self._session([*carried, *nodes], list(read), made)
        values = {name: self._weights[name] for name in read if name in self._weights}

        def one(index: int) -> list[Array]:
            inputs = {name: self._live[name][index] for name in feeds}
            results: list[Array] = session.run(made, {**values, **inputs})
            for name in feeds:  # an activation that nothing reads any more goes at once
                if not self._left[name]:
                    self._live[name][index] = np.empty(0, np.float32)
            return results

        count = len(next(iter(self._live.values())))
        with ThreadPoolExecutor(self._workers) as pool:
            rows = list(pool.map(one, range(count)))
        for name in feeds:
            if not self._left[name]:
                del self._live[name]
        for position, name in enumerate(made):
            self._live[name] = [row[position] for row in rows]

    def values(self, name: str) -> list[Array]:
        """The tensor ``name`` for each image, as [1, C, ...]; it must be live."""
        return self._live[name]

    def moments(self, name: str) -> tuple[Array, Array]:
        """Mean and variance of each channel over images and positions, float64 [C]."""

        def sums(value: Array) -> tuple[Any, Any, int]:
            flat = value.reshape(value.shape[1], -1).astype(np.float64)
            return flat.sum(axis=1), np.einsum("cp,cp->c", flat, flat), flat.shape[1]

        with ThreadPoolExecutor(self._workers) as pool:
            parts = list(pool.map(sums, self._live[name]))
        count = sum(part[2] for part in parts)
        mean = sum(part[0] for part in parts) / count
        square = sum(part[1] for part in parts) / count
        return mean, np.maximum(square - mean**2, 1e-12)

    def affine(self, name: str, scale: Array, shift: Array) -> None:
        """Replaces the live tensor by ``scale * value + shift`` (both [C])."""
        for value in self._live[name]:
            wide = (1, -1) + (1,) * (value.ndim - 2)
            np.multiply(value, scale.astype(np.float32).reshape(wide), out=value)
            np.add(value, shift.astype(np.float32).reshape(wide), out=value)

    def _session(
        self, nodes: Sequence[onnx.NodeProto], read: Sequence[str], made: Sequence[str]
    ) -> Any:
        import onnxruntime as ort
        from onnx import TensorProto, helper

        def values(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]

        graph = helper.make_graph(
            nodes,
            "stage",
            values([name for name in read if name in self._weights or name in self._live]),
            values(made),
            [self._constants[name] for name in read if name in self._constants],
        )
        opsets = self._graph.proto.opset_import
        stage = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_cpu_mem_arena = False
        return ort.InferenceSession(
            stage.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
