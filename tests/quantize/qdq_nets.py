"""Q/DQ models made by hand, in the forms that exporters write, and small ones by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.model import Model

ZERO = np.int8(0)


class Sheet:
    """A graph that grows node by node; every method returns the tensor that it writes."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, *shape: int, elem: int = 1) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, elem, list(shape)))
        return name

    def constant(self, name: str, value: Any, elem: int | None = None) -> str:
        array = np.asarray(value)
        if elem is None:
            self.constants.append(numpy_helper.from_array(array, name))
        else:
            flat = array.reshape(-1).tolist()
            self.constants.append(helper.make_tensor(name, elem, list(array.shape), flat))
        return name

    def node(self, op: str, inputs: str, output: str, **attributes: Any) -> str:
        made = helper.make_node(op, inputs.split(), [output], name=output, **attributes)
        self.nodes.append(made)
        return output

    def q(self, x: str, scale: Any, *, zero: Any = ZERO, name: str = "", **more: Any) -> str:
        """QuantizeLinear; without zero point where ``zero`` is None."""
        name = name or f"{x}_q"
        inputs = f"{x} {self._scale(name, scale)}"
        if zero is not None:
            inputs += f" {self._zero(name, scale, zero)}"
        return self.node("QuantizeLinear", inputs, name, **more)

    def dq(self, x: str, scale: Any, *, zero: Any = ZERO, name: str = "", **more: Any) -> str:
        name = name or f"{x}_dq"
        inputs = f"{x} {self._scale(name, scale)}"
        if zero is not None:
            inputs += f" {self._zero(name, scale, zero)}"
        return self.node("DequantizeLinear", inputs, name, **more)

    def qdq(self, x: str, scale: Any, *, name: str = "", **more: Any) -> str:
        """A pair; of the tensor ``x``."""
        stem = name or x
        return self.dq(self.q(x, scale, name=f"{stem}_q", **more), scale, name=f"{stem}_dq", **more)

    def _scale(self, name: str, scale: Any) -> str:
        return self.constant(f"{name}_s", np.asarray(scale, np.float32))

    def _zero(self, name: str, scale: Any, zero: Any) -> str:
        shape = np.shape(scale)
        return self.constant(f"{name}_z", np.broadcast_to(zero, shape).copy())

    def proto(self, *outputs: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "qdq",
            self.inputs,
            [helper.make_tensor_value_info(name, 1, None) for name in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def model(self, *outputs: str) -> Model:
        return canonical(self.proto(*outputs), None, source="sheet.onnx")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def steps_of(weight: np.ndarray, axis: int = 0) -> np.ndarray:
    """The scales of symmetric INT8 per channel: amax / 127."""
    rest = tuple(i for i in range(weight.ndim) if i != axis)
    return np.abs(weight).max(axis=rest) / np.float32(127)


def codes_of(weight: np.ndarray, scales: np.ndarray, axis: int = 0) -> np.ndarray:
    shape = [1] * weight.ndim
    shape[axis] = -1
    return np.clip(np.rint(weight / scales.reshape(shape)), -127, 127).astype(np.int8)


def qat(sheet: Sheet, source: str, name: str, weight: np.ndarray, scales: Any = None) -> str:
    """A convolution whose weight has a Q/DQ pair, as pytorch-quantization exports it."""
    given = steps_of(weight) if scales is None else scales
    sheet.constant(f"{name}.weight", weight)
    shifted = sheet.qdq(f"{name}.weight", given, axis=0)
    pad = weight.shape[-1] // 2
    return sheet.node("Conv", f"{source} {shifted}", name, pads=[pad] * 4)


def residual(size: int = 8) -> Sheet:
    """A residual block as trained with quantisers: the input of each convolution and the skip."""
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, size, size), 0.03)
    a = sheet.node("Relu", qat(sheet, x, "a", normal(1, 8, 4, 3, 3)), "a_relu")
    b = qat(sheet, sheet.qdq(a, 0.07), "b", normal(2, 8, 8, 3, 3))
    summed = sheet.node("Add", f"{b} {sheet.qdq(a, 0.07, name='skip')}", "sum")
    sheet.node("Relu", summed, "y")
    sheet.qdq("y", 0.2, name="last")
    return sheet


def quantised_by_ort(
    folder: Path,
    proto: onnx.ModelProto,
    feeds: Sequence[dict[str, np.ndarray]],
    *,
    biases: bool = True,
    **options: Any,
) -> Path:
    """Symmetric INT8 by onnxruntime.quantization in the Q/DQ format.

    ``biases``: in int32, as it does by default and TensorRT's parser refuses.
    """
    import logging

    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(feeds)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    source, target = folder / "float.onnx", folder / "qdq.onnx"
    onnx.save(proto, source)
    logging.disable(logging.WARNING)
    try:
        quantize_static(
            source,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": biases,
            },
            **options,
        )
    finally:
        logging.disable(logging.NOTSET)
    return target


def run(proto: onnx.ModelProto | Path, feed: dict[str, np.ndarray], *names: str) -> list[Any]:
    """ONNX Runtime without graph optimisations; ``names`` may be inner tensors."""
    import onnxruntime as ort

    model = onnx.load(proto) if isinstance(proto, Path) else proto
    if names:
        own = onnx.ModelProto()
        own.CopyFrom(model)
        del own.graph.output[:]
        own.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        model = own
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # its threads would take the time of what is computed between two runs
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(model.SerializeToString(), options)
    return list(session.run(list(names) or None, feed))


def snr_db(wanted: np.ndarray, found: np.ndarray) -> float:
    """Variance over mean squared error; infinite where both are equal."""
    a, b = wanted.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    error = float(np.mean((a - b) ** 2))
    return float("inf") if error == 0 else float(10 * np.log10(a.var() / error))


def scales_in(path: Path) -> dict[str, float]:
    """The scale of every quantised activation, read from the file by itself."""
    graph = onnx.load(path).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    return {
        node.input[0]: float(numpy_helper.to_array(constants[node.input[1]]).reshape(-1)[0])
        for node in graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants
    }
