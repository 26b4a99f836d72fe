"""QuantizeLinear without a zero point, which TensorRT reads as int8 and onnxruntime as uint8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.network.loading.load import canonical
from edgekit.network.writing import save
from tests.network.onnx_making import make, node, values, write

BOARD = "jetson-agx-orin-64gb"


def quantised(*, axis: bool = False, opset: int = 17, **of_q: object) -> onnx.ModelProto:
    """A convolution between pairs of Q/DQ nodes without zero points."""
    scale = np.full(8, 0.05, np.float32) if axis else np.float32(0.05)
    along = {"axis": 0} if axis else {}
    nodes = [
        node("QuantizeLinear", "x s", "xq", name="qx", **of_q),
        node("DequantizeLinear", "xq s", "xd", name="dx"),
        node("QuantizeLinear", "w ws", "wq", name="qw", **along, **of_q),
        node("DequantizeLinear", "wq ws", "wd", name="dw", **along),
        node("Conv", "xd wd", "c", name="conv"),
        node("QuantizeLinear", "c s", "cq", name="qc", **of_q),
        node("DequantizeLinear", "cq s", "y", name="dc"),
    ]
    constants = {"s": np.float32(0.05), "ws": scale, "w": values((8, 8, 1, 1))}
    proto = make(nodes, {"x": [1, 8, 4, 4]}, ["y"], constants, opset=opset)
    proto.graph.value_info.append(
        helper.make_tensor_value_info("xq", TensorProto.UINT8, [1, 8, 4, 4])
    )
    return proto


@pytest.mark.parametrize("release", ["10.3", "11.4.1"])
def test_the_file_is_read_as_tensorrt_reads_it_and_one_note_says_so(
    tmp_path: Path, release: str
) -> None:
    path = write(quantised(), tmp_path)
    document = edgekit.check(path, target=BOARD, precision="int8", tensorrt=release).to_json()

    conv = next(layer for layer in document["layers"] if "conv" in layer["nodes"])
    assert document["parse"]["ok"]
    assert conv["dla"]["ok"]
    assert not any("asymmetric" in text.lower() for text in document["warnings"])
    notes = [text for text in document["warnings"] if "zero point" in text]
    assert len(notes) == 1
    assert "'qx', 'qw', 'qc'" in notes[0]
    assert "ONNX Runtime" in notes[0]


@pytest.mark.parametrize("axis", [False, True])
def test_the_model_that_edgekit_writes_gives_int8_everywhere(tmp_path: Path, axis: bool) -> None:
    model = canonical(quantised(axis=axis), None)
    save(model, tmp_path / "m.onnx")

    assert {model.graph.dtype(name) for name in ("xq", "wq", "cq")} == {"int8"}
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    result = session.run(None, {"x": -np.ones((1, 8, 4, 4), np.float32)})[0]
    assert result.min() < 0


def test_a_type_that_the_node_gives_is_kept() -> None:
    model = canonical(quantised(opset=21, output_dtype=TensorProto.UINT8), None)

    assert model.graph.dtype("cq") == "uint8"
    assert not model.notes
