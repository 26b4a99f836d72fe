"""Every model that the onnx package ships goes through, or says why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgekit.errors import ModelError
from edgekit.network.loading.load import canonical, load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.network.writing import save
from tests.network.onnx_making import DATA

SMALL = sorted(DATA.glob("*/*/model.onnx"))
# what TensorRT cannot hold: strings, sequences, training, open shapes; and PRelu before opset 7
REFUSED = {"model.type", "model.domain", "model.dynamic_shape", "model.opset"}


@pytest.mark.few(50)
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.parent.name)
def test_small(path: Path, tmp_path: Path) -> None:
    model = _loaded(path)
    if isinstance(model, str):
        assert model in REFUSED
        return
    network = layers(model)
    assert network.layers
    if network.opaque:  # of no operator set that TensorRT or ONNX Runtime has: gradients
        assert "gradient" in path.parent.name
        return
    feeds, expected = _vectors(path)
    running = session(model, optimise=False)
    wanted = {value.name for value in running.get_inputs()}
    got = running.run(None, {name: feeds[name] for name in wanted})
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    save(model, tmp_path / "again.onnx")
    assert load(tmp_path / "again.onnx").digest == model.digest
    assert canonical(model.proto, None, weights=model.weights).digest == model.digest


def _loaded(path: Path) -> Model | str:
    """The model, or why it is refused."""
    try:
        return load(path)
    except ModelError as error:
        return error.code


def _vectors(path: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    def read(file: Path) -> np.ndarray:
        return numpy_helper.to_array(onnx.load_tensor(str(file)))

    folder = path.parent / "test_data_set_0"
    names = [value.name for value in onnx.load(str(path)).graph.input]
    files = [folder / f"input_{index}.pb" for index in range(len(names))]
    feeds = {name: read(file) for name, file in zip(names, files, strict=True) if file.exists()}
    outputs = [read(file) for file in sorted(folder.glob("output_*.pb"))]
    return feeds, outputs
