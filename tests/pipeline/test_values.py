"""Inputs whose values are sizes: constants, or a range that the GPU's engine takes."""

import json

import numpy as np
import onnxruntime
import pytest

import edgekit
from edgekit.bundles.files import read
from edgekit.config.loader import load_config
from edgekit.errors import ConfigError, ModelError, UsageError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from tests.pipeline.nets import sized_config
from tests.pipeline.test_board_build import board, jobs
from tests.pipeline.test_board_build import pipeline as on_board

RANGE = "values: {size: {min: [16, 16], opt: [32, 48], max: [64, 64]}}"


def pipeline(path, folder) -> Pipeline:
    return Pipeline(load_config(path), out=folder / "out", cache=Cache(folder / "cache"))


def picture() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((1, 3, 32, 32)).astype(np.float32)


def expected(folder, x, size) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        str(folder / "sized.onnx"), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x, "size": np.array(size, np.int64)})[0]


def test_given_values_are_constants(tmp_path):
    with pipeline(sized_config(tmp_path, "values: {size: [32, 48]}"), tmp_path) as one:
        packed = one.bundle()
    checked = edgekit.check(tmp_path / "sized.yaml")
    manifest = read(packed.path).manifest
    assert manifest.schema == "edgekit.bundle/1"
    assert [tensor.name for tensor in manifest.inputs] == ["x"]
    assert manifest.outputs[0].shape == (1, 4, 32, 48)
    assert "only known at run time" not in " ".join(checked.warnings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    path = sized_config(folder, RANGE)
    with pipeline(path, folder) as one:
        return folder, path, one.run()


@pytest.mark.boards
def test_a_range_of_values_is_in_the_bundle(whole):
    folder, _, found = whole
    manifest = read(folder / "out/bundle.ekb").manifest
    best, ranged = manifest.every_variant
    assert not best.profiles
    assert best.outputs[0].shape == (1, 4, 32, 48)
    values = ranged.values["size"]
    assert (values.dtype, values.shape) == ("int64", (2,))
    assert (values.min, values.opt, values.max) == ((16, 16), (32, 48), (64, 64))
    assert ranged.profiles[0]["x"].max == (1, 3, 32, 32)
    assert "DLA0" in {s.device for lane in best.lanes for s in lane.segments}
    assert found.document.refit.bit_equal is True


@pytest.mark.boards
@pytest.mark.parametrize(
    ("size", "exact"),
    [(None, False), ((32, 48), False), ((64, 17), True)],
    ids=["without", "the best", "another"],
)
def test_a_frame_may_have_values_of_its_own(whole, size, exact):
    folder, path, _ = whole
    x = picture()
    given = {} if size is None else {"size": np.array(size, np.int64)}
    np.savez(folder / "x.npz", x=x, **given)
    with pipeline(path, folder) as one:
        one.infer(folder / "x.npz", folder / "y.npz")
    y, right = np.load(folder / "y.npz")["y"], expected(folder, x, size or (32, 48))
    assert y.shape == right.shape
    off = float(np.abs(y - right).max() / np.abs(right).max())
    # the engine of the range is FP32 here, the one of the best values INT8
    assert off < 1e-5 if exact else 0 < off < 0.2


@pytest.mark.boards
@pytest.mark.parametrize("size", [(8, 8), (65, 64)])
def test_values_out_of_the_range_are_refused(whole, size):
    folder, path, _ = whole
    np.savez(folder / "x.npz", x=picture(), size=np.array(size, np.int64))
    with pipeline(path, folder) as one, pytest.raises(UsageError) as caught:
        one.infer(folder / "x.npz", folder / "y.npz")
    assert caught.value.code == "input.values"
    assert "[16, 16] to [64, 64]" in caught.value.message


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("values: {sise: [32, 48]}", "model.unknown_input", "'size'"),
        ("values: {x: [32, 48]}", "model.values", "float32"),
        ("values: {size: [32, 48, 1]}", "model.values", "has 2 values, and 3 are given"),
        ("values: {size: {min: [9, 9], opt: [8, 9], max: [16, 16]}}", "config.invalid", "value 0"),
        ("values: {size: {min: [9], max: [16, 16]}}", "config.invalid", "numbers of values"),
    ],
)
def test_values_that_are_wrong_are_refused_with_their_line(tmp_path, line, code, part):
    path = sized_config(tmp_path, line)
    with pytest.raises((ConfigError, ModelError)) as caught:
        edgekit.check(path)
    assert caught.value.code == code
    assert part in str(caught.value)
    assert "sized.yaml:7" in str(caught.value)


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("version", "tensorrt"), [("8.6.1", "8.6"), ("10.3.0", "10.3")])
def test_a_board_builds_with_values_in_the_profile(tmp_path, version, tensorrt):
    with board(tmp_path, version) as (deploy, _):
        path = sized_config(tmp_path / "config", RANGE)
        text = path.read_text().replace("deploy: {health: {samples: 1}}\n", deploy)
        path.write_text(f'{text}tensorrt: "{tensorrt}"\n')
        with on_board(path, tmp_path) as one:
            one.run()
        requests = [json.loads(job.read_text())["request"] for job in jobs(tmp_path)]
        x = picture()
        np.savez(tmp_path / "x.npz", x=x, size=np.array([64, 17], np.int64))
        with on_board(path, tmp_path) as one:
            found = one.infer(tmp_path / "x.npz", tmp_path / "y.npz")
    (ranged,) = [e for request in requests for e in request["engines"] if e["profiles"]]
    assert ranged["values"] == [{"size": {"min": [16, 16], "opt": [32, 48], "max": [64, 64]}}]
    kind = "int32" if version == "8.6.1" else "int64"
    assert [(io["name"], io["dtype"]) for io in ranged["inputs"]] == [
        ("x", "float32"),
        ("size", kind),
    ]
    assert found.outputs[0].shape == [1, 4, 64, 17]
