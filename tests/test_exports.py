"""The real exports of tests/data/exports: their index, their files and their loader."""

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

from tests.exports import FOLDER, digest, exports, load, tensors

# one of each exporter and way of storing weights
LOADED = ["resnet18", "resnet50_fp16", "ppocr_v2_direction", "yolo11n"]


def test_the_index_lists_each_file_with_its_digest() -> None:
    rows = exports()
    assert {row.path.name: row.sha256 for row in rows} == {
        path.name: digest(path) for path in FOLDER.glob("*.xz")
    }
    assert len(rows) >= 40
    assert sum(row.path.stat().st_size for row in rows) <= 20_000_000


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LOADED)
def test_an_export_has_its_weights_and_inputs(name: str) -> None:
    model = load(name)
    # PaddleOCR's files leave shapes out, which onnx.checker refuses and ONNX Runtime takes
    onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    row = next(row for row in exports() if row.name == name)
    sizes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert sizes == row.inputs
    weights = [numpy_helper.to_array(tensor) for tensor in tensors(model.graph)]
    assert all(np.isfinite(weight).all() for weight in weights)
    assert sum(weight.size for weight in weights if weight.std() > 0) > 100_000


def test_the_weights_of_two_loads_agree() -> None:
    assert load("resnet18").SerializeToString() == load("resnet18").SerializeToString()
