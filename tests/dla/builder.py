"""ONNX models for the tests, node by node; every weight is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network


class Builder:
    """Collects ONNX nodes and weights; each method returns the name of its output."""

    def __init__(self, **inputs: Sequence[int]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.ones: dict[str, np.ndarray] = {}
        self.inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ]

    def weight(self, name: str, shape: Sequence[int], kind: type = np.float32) -> str:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        self.weights.append(TensorProto(name=name, dims=shape, data_type=elem))
        # one value seen many times: a hundred megabytes of weights cost nothing
        self.ones[name] = np.broadcast_to(np.ones((), kind), shape)
        return name

    def constant(self, name: str, values: Any, kind: type = np.int64) -> str:
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        output = f"{name}_out"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=name, **attributes))
        return output

    def conv(
        self, name: str, source: str, channels: int, maps: int, kernel: int = 3, stride: int = 1
    ) -> str:
        weight = self.weight(f"{name}.w", (maps, channels, kernel, kernel))
        bias = self.weight(f"{name}.b", (maps,))
        pad = (kernel - 1) // 2
        return self.add(
            "Conv",
            name,
            source,
            weight,
            bias,
            pads=[pad] * 4,
            strides=[stride] * 2,
            kernel_shape=[kernel] * 2,
        )

    def network(self, path: Path, *outputs: str, opset: int = 17) -> Network:
        """The layer graph; nothing is written under ``path``."""
        return layers(canonical(self._model(outputs, opset), path, weights=self.ones))

    def save(self, path: Path, *outputs: str, opset: int = 17) -> Path:
        """Writes the network with all its weights."""
        model = self._model(outputs, opset)
        for tensor in model.graph.initializer:
            if tensor.name in self.ones:
                tensor.CopyFrom(numpy_helper.from_array(self.ones[tensor.name], tensor.name))
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        known = {v.name: v for v in [*inferred.graph.value_info, *inferred.graph.output]}
        del model.graph.output[:]
        model.graph.output.extend(known[name] for name in outputs)
        file = path / "net.onnx"
        onnx.save(model, file)
        return file

    def _model(self, outputs: Sequence[str], opset: int) -> onnx.ModelProto:
        values = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, values, self.weights)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
        )
