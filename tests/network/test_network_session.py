"""Running, saving and cutting models without copies of their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from edgekit.errors import ModelError
from edgekit.network import writing
from edgekit.network.loading.load import load
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.network.writing import save
from tests.network.onnx_making import conv_net, make, node, values, write

X = values([1, 3, 8, 8], 9)


def plain(proto: onnx.ModelProto) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    running = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result: np.ndarray = running.run(None, {"x": X})[0]
    return result


def test_session_gives_onnx_runtimes_bits(tmp_path: Path) -> None:
    model = load(write(conv_net(), tmp_path))
    got = session(model, optimise=False).run(None, {"x": X})[0]
    np.testing.assert_array_equal(got, plain(conv_net()))
    optimised = session(model, threads=1).run(None, {"x": X})[0]
    np.testing.assert_allclose(optimised, got, rtol=1e-4, atol=1e-5)


def test_session_returns_intermediate_tensors(tmp_path: Path) -> None:
    model = load(write(conv_net(), tmp_path))
    middle, last = session(model, outputs=["r", "y"], optimise=False).run(None, {"x": X})
    assert middle.shape == (1, 16, 8, 8)
    assert middle.min() == 0
    np.testing.assert_array_equal(last, plain(conv_net()))
    with pytest.raises(ModelError, match="unknown tensor 'rr'"):
        session(model, outputs=["rr"])


def test_session_maps_the_runtimes_refusal(tmp_path: Path) -> None:
    model = load(write(conv_net(), tmp_path))
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.graph.node[1].input[0] = "nowhere"
    with pytest.raises(ModelError) as caught:
        session(Model(proto, model.weights, "", "made"))
    assert caught.value.code == "model.runtime"


def test_large_models_get_a_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LARGEST_INLINE", 1000)
    model = load(write(conv_net(), tmp_path))
    save(model, tmp_path / "big.onnx")
    data = f"big.onnx.{model.digest[:12]}.data"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.onnx", data, "m.onnx"]
    assert (tmp_path / "big.onnx").stat().st_size < 2000
    assert load(tmp_path / "big.onnx").digest == model.digest
    onnx.checker.check_model(str(tmp_path / "big.onnx"))


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(write(conv_net(), tmp_path))
    target = tmp_path / "out.onnx"
    target.write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ModelError, match="No space left"):
        save(model, target)
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]


def test_saving_into_no_folder(tmp_path: Path) -> None:
    model = load(write(conv_net(), tmp_path))
    with pytest.raises(ModelError) as caught:
        save(model, tmp_path / "none" / "m.onnx")
    assert caught.value.code == "model.unwritable"


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "code"),
    [
        ({"conv", "nothing"}, ["x"], ["c"], "model.unknown_node"),
        ({"relu"}, [], ["r"], "model.open_segment"),
        ({"conv"}, ["x"], ["r"], "model.unknown_output"),
    ],
)
def test_borders_that_do_not_fit(
    tmp_path: Path, nodes: set[str], inputs: list[str], outputs: list[str], code: str
) -> None:
    model = load(write(conv_net(), tmp_path))
    with pytest.raises(ModelError) as caught:
        model.cut(nodes, inputs, outputs)
    assert caught.value.code == code


def test_constant_outputs_run(tmp_path: Path) -> None:
    proto = make(
        [node("Add", "k k", "y"), node("Relu", "x", "z")],
        {"x": [2]},
        ["y", "z"],
        {"k": values([3])},
    )
    model = load(write(proto, tmp_path))
    y, z = session(model).run(None, {"x": np.array([-1, 1], np.float32)})
    np.testing.assert_array_equal(y, values([3]) * 2)
    np.testing.assert_array_equal(z, [0, 1])
