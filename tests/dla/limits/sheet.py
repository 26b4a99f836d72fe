"""One ONNX file of many independent branches, so that one check judges many layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Sheet:
    """Collects branches; each has its own graph inputs, and what nobody reads is a graph output."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []

    def input(self, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        """A graph input."""
        name = f"input{len(self._inputs)}"
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def ones(self, *shape: int) -> str:
        """A float constant; large ones are a node, so that the file stays small."""
        if math.prod(shape) < 1 << 20:
            return self.constant(np.ones(shape, np.float32))
        value = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
        name = f"ones{len(self._nodes)}"
        return self.add("ConstantOfShape", name, self.constant(list(shape)), value=value)

    def constant(self, value: Any) -> str:
        """A constant: an array as it is, whole numbers as int64, others as float32."""
        name = f"constant{len(self._weights)}"
        if not isinstance(value, np.ndarray):
            value = np.array(value)
            value = value.astype(np.int64 if value.dtype.kind == "i" else np.float32)
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def zero_point(self) -> str:
        """The zero point of symmetric quantisation."""
        return self.constant(np.zeros((), np.int8))

    def add(self, op: str, name: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """A node; returns its first output."""
        outputs = [f"{name}:{index}" for index in range(results)]
        self._nodes.append(helper.make_node(op, list(inputs), outputs, name=name, **attributes))
        return outputs[0]

    def save(self, path: Path, opset: int) -> Path:
        """Writes the model."""
        read = {name for node in self._nodes for name in node.input}
        made = [name for node in self._nodes for name in node.output if name not in read]
        outputs = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in made]
        graph = helper.make_graph(self._nodes, "sheet", self._inputs, outputs, self._weights)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        path.write_bytes(inferred.SerializeToString())
        return path


Branch = Callable[[Sheet, str], object]
Sizes = Sequence[int]


def conv(
    *kernel: int, channels: int = 4, size: Sizes = (), maps: int = 4, groups: int = 1, **more: Any
) -> Branch:
    """A Conv with constant weights on an input that is large enough for one result at least."""

    def draw(sheet: Sheet, name: str) -> None:
        dilation = more.get("dilations") or [1] * len(kernel)
        least = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        source = sheet.input(1, channels, *(size or least))
        weights = sheet.ones(maps, channels // groups, *kernel)
        sheet.add("Conv", name, source, weights, group=groups, **more)

    return draw


def deconv(
    *kernel: int,
    channels: int = 1,
    size: Sizes = (2, 2),
    maps: int = 1,
    groups: int = 1,
    **more: Any,
) -> Branch:
    """A ConvTranspose with constant weights; ``maps`` are those of one group."""

    def draw(sheet: Sheet, name: str) -> None:
        source = sheet.input(1, channels, *size[: len(kernel)])
        weights = sheet.ones(channels, maps, *kernel)
        sheet.add("ConvTranspose", name, source, weights, group=groups, **more)

    return draw


def op(kind: str, *shapes: Sizes, constants: Sequence[Any] = (), **more: Any) -> Branch:
    """A node on activations of these shapes and, behind them, constants (None: left out)."""

    def draw(sheet: Sheet, name: str) -> None:
        sources = [sheet.input(*shape) for shape in shapes]
        extra = ["" if value is None else sheet.constant(value) for value in constants]
        sheet.add(kind, name, *sources, *extra, **more)

    return draw
