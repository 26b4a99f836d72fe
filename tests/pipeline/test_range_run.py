"""The whole way of a range of shapes on edgekit's own board: one bundle runs all of them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from edgekit.bundles.files import read
from edgekit.config.loader import load_config, open_config
from edgekit.errors import GateError, UsageError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from tests.pipeline.nets import open_config as config_of_range
from tests.pipeline.nets import open_net

pytestmark = pytest.mark.boards


def pipeline(config, folder, **options) -> Pipeline:
    return Pipeline(config, out=folder / "out", cache=Cache(folder / "cache"), **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("range")
    path = config_of_range(folder)
    path.write_text(path.read_text() + "deploy: {health: {samples: 1}}\n")
    with pipeline(load_config(path), folder) as run:
        return folder, path, run.run()


def picture(height: int, width: int) -> np.ndarray:
    random = np.random.default_rng(height * width)
    return random.standard_normal((1, 3, height, width)).astype(np.float32)


def test_the_bundle_has_a_variant_for_each_shape_and_one_for_the_range(whole):
    folder, _, found = whole
    manifest = read(folder / "out/bundle.ekb").manifest
    assert manifest.schema == "edgekit.bundle/3"
    *buckets, ranged = manifest.every_variant
    assert [one.sizes["x"][2:] for one in buckets] == [(64, 64), (32, 32), (16, 32)]
    for one in buckets:
        assert "DLA0" in {s.device for lane in one.lanes for s in lane.segments}
    assert ranged.profiles[0]["x"].min == (1, 3, 16, 16)
    assert [dict(case.shapes) for case in ranged.golden] == [{}, {"x": (1, 3, 16, 16)}]
    # INT8 weights are the same for all shapes, and lie there once
    assert [name for name in manifest.weights if name.startswith("conv1.w")] == [
        "conv1.w",
        "conv1.w#int8",
        "conv1.w#scale",
    ]
    assert [case.variant for case in manifest.samples.cases] == [0, 1, 2]
    assert found.document.refit.bit_equal is True


def test_the_report_has_the_accuracy_of_each_shape(whole):
    _, _, found = whole
    buckets = found.report.buckets
    assert len(buckets) == 3
    assert all(0.9 < one.accuracy.cosine <= 1 for one in buckets)
    assert buckets[0].accuracy.cosine == found.document.accuracy.cosine
    # each on inputs of its own size
    assert len({one.accuracy.cosine for one in buckets}) == 3
    assert found.document.plan.buckets == tuple(buckets)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (16, 32), (24, 56)])
def test_a_frame_of_each_planned_shape_is_run(whole, height, width):
    folder, path, _ = whole
    x = picture(height, width)
    np.savez(folder / "x.npz", x=x)
    with pipeline(load_config(path), folder) as run:
        answer = run.infer(folder / "x.npz", folder / "y.npz")
    y = np.load(folder / "y.npz")["y"]
    session = onnxruntime.InferenceSession(
        str(folder / "open.onnx"), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(["y"], {"x": x})
    assert y.shape == expected.shape
    off = float(np.abs(y - expected).max() / np.abs(expected).max())
    ranged = (height, width) == (24, 56)
    own = f"engines of the shape 1x3x{height}x{width}"
    assert f"run by the {'engine of the range' if ranged else own}" in answer.notes
    if ranged:  # the engine of the range, which is FP32 here
        assert off < 1e-5
        assert answer.bit_equal is None
    else:
        assert 0 < off < 0.2  # INT8
        assert answer.bit_equal is True


def test_another_shape_is_refused_with_the_planned_ones(whole):
    folder, path, _ = whole
    np.savez(folder / "large.npz", x=picture(96, 64))
    with pipeline(load_config(path), folder) as run, pytest.raises(UsageError) as caught:
        run.infer(folder / "large.npz")
    assert caught.value.code == "input.shape"
    # the nearest first
    assert caught.value.hint.startswith("planned: 1x3x64x64; 1x3x32x32; 1x3x16x32; ")
    assert "1x3x16..64x16..64" in caught.value.hint


def test_bench_says_which_shape_it_measured(whole):
    folder, path, found = whole
    assert found.document.bench.clock == "cpu-measured"
    config = open_config(load_config(path), bench={"shapes": {"x": [1, 3, 32, 32]}})
    with pipeline(config, folder) as run:
        bench = run.bench()
    assert bench.settings.shapes == {"x": (1, 3, 32, 32)}
    assert bench.predicted.latency_us == found.document.plan.buckets[1].latency_us
    assert bench.precision == "int8"
    config = open_config(load_config(path), bench={"shapes": {"x": [1, 3, 24, 56]}})
    with pipeline(config, folder) as run:
        assert run.bench().precision == "fp32"  # the engine of the range in this backend
    config = open_config(load_config(path), bench={"shapes": {"x": [1, 3, 96, 96]}})
    with pipeline(config, folder) as run, pytest.raises(UsageError) as caught:
        run.bench()
    assert caught.value.code == "bench.shape"
    assert caught.value.where == "option bench.shapes.x"


def test_other_weights_are_refitted_for_every_shape(whole):
    folder, path, _ = whole
    open_net(folder / "other.onnx", seed=3)
    with pipeline(load_config(path), folder) as run:
        found = run.refit(folder / "other.onnx")
    assert found.changed == found.tensors
    x = picture(32, 32)
    np.savez(folder / "x.npz", x=x)
    with pipeline(load_config(path), folder) as run:
        run.infer(folder / "x.npz", folder / "y.npz")
    session = onnxruntime.InferenceSession(
        str(folder / "other.onnx"), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(["y"], {"x": x})
    y = np.load(folder / "y.npz")["y"]
    assert float(np.abs(y - expected).max() / np.abs(expected).max()) < 0.3


def test_the_worst_shape_decides_at_the_gate(tmp_path):
    path = config_of_range(tmp_path)
    path.write_text(path.read_text() + "accuracy: {metric: snr_db, min: 900, fallback: none}\n")
    with pipeline(load_config(path), tmp_path) as run, pytest.raises(GateError):
        run.build()


@pytest.mark.parametrize("gpu", [True, False], ids=["with a GPU", "without"])
def test_a_smaller_batch_is_padded_where_no_operator_mixes_it(tmp_path, gpu):
    path = config_of_range(tmp_path)
    text = path.read_text().replace("[1, 3, 16..64, 16..64]", "[1..4, 3, 16, 16]")
    if not gpu:
        text = text.replace("objective: gpu_time", "objective: latency, gpu: false")
    path.write_text(text.replace("[32x32, 16x32, 64x64]", "[{x: [4, 3, 16, 16]}]"))
    config = load_config(path)
    with pipeline(config, tmp_path) as run:
        packed = run.bundle()
    (padding,) = read(packed.path).manifest.padding
    assert padding.inputs == {"x": 0}
    assert padding.outputs["y"].axis == 0
    four = np.concatenate([picture(16, 16) + n for n in range(4)])
    answers = []
    for rows in (4, 3):
        np.savez(tmp_path / "x.npz", x=four[:rows])
        with pipeline(config, tmp_path) as run:
            told = run.infer(tmp_path / "x.npz", tmp_path / "y.npz").notes
        padded = ", 'x' padded from 3 to 4 along axis 0" if rows == 3 else ""
        assert f"run by the engines of the shape 4x3x16x16{padded}" in told
        answers.append(np.load(tmp_path / "y.npz")["y"])
    assert answers[1].shape == (3, 8, 8, 8)
    # the same engine, bit for bit: padded, and not the engine of the range
    assert answers[1].tobytes() == answers[0][:3].tobytes()
    # a row alone is a batch of one
    np.savez(tmp_path / "x.npz", x=four[0])
    with pipeline(config, tmp_path) as run:
        run.infer(tmp_path / "x.npz", tmp_path / "y.npz")
    assert np.load(tmp_path / "y.npz")["y"].tobytes() == answers[0][:1].tobytes()


def test_an_input_of_fixed_size_is_in_each_profile(tmp_path):
    path = config_of_range(tmp_path, precision="fp16")
    proto = onnx.load(tmp_path / "open.onnx")
    proto.graph.node[-1].output[0] = "plain"
    proto.graph.node.append(helper.make_node("Mul", ["plain", "factor"], ["y"], "scale"))
    proto.graph.input.append(helper.make_tensor_value_info("factor", 1, [1, 8, 1, 1]))
    onnx.save(proto, tmp_path / "open.onnx")
    with pipeline(load_config(path), tmp_path) as run:
        packed = run.bundle()
    ranged = read(packed.path).manifest.every_variant[-1]
    assert ranged.profiles[0]["factor"].min == ranged.profiles[0]["factor"].max == (1, 8, 1, 1)
    assert ranged.profiles[0]["x"].min == (1, 3, 16, 16)
