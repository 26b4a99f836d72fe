"""Q/DQ models through the steps: translated where TensorRT reads none on the DLA."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgekit
from edgekit.cli import main
from edgekit.config.loader import open_config
from edgekit.errors import DataError, GateError
from edgekit.network.loading.load import load
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.questions import sensitivity
from edgekit.pipeline.steps.accuracy import build_key
from edgekit.pipeline.steps.load import translate_qdq
from edgekit.pipeline.steps.method import scales
from edgekit.pipeline.steps.rewrite import model, model_digest, other_weights
from edgekit.quantize.caches import load_cache
from tests.network.onnx_making import make, node, write
from tests.pipeline.nets import small_net
from tests.quantize.qdq_nets import Sheet, qat, quantised_by_ort, residual, scales_in

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small network, quantised by onnxruntime.quantization."""
    folder = tmp_path_factory.mktemp("qdq")
    small_net(folder / "small.onnx")
    random = np.random.default_rng(0)
    feeds = [{"x": random.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    return quantised_by_ort(folder, onnx.load(folder / "small.onnx"), feeds)


@pytest.fixture(scope="module")
def float_biases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with biases in float, which TensorRT reads as it is."""
    folder = tmp_path_factory.mktemp("float-biases")
    small_net(folder / "small.onnx")
    random = np.random.default_rng(0)
    feeds = [{"x": random.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    return quantised_by_ort(folder, onnx.load(folder / "small.onnx"), feeds, biases=False)


def pipeline(path: Path, folder: Path, **options: object) -> Pipeline:
    given = {"target": ORIN, "calibration": {"count": 2}, **options}
    return Pipeline(open_config(path, **given), cache=Cache(folder / "cache"))


def test_its_scales_are_the_calibration(file: Path, tmp_path: Path) -> None:
    with pipeline(file, tmp_path, placement={"objective": "gpu_time"}) as steps:
        document = steps.calibrate(tmp_path / "calib.cache").to_json()
        plan = steps.plan()
    assert document["method"] == "qdq"
    assert "qdq.onnx" in document["data"]
    own = scales_in(file)
    for name in ("x", "r1", "c2"):
        assert document["scales"][name] == own[name]
    # the DLA has one scale for both sides of an average: tied as a calibration cache's would be
    assert own["g"] < own["r2"] == document["scales"]["r2"] == document["scales"]["g"]
    assert load_cache(tmp_path / "calib.cache").scales["r1"] == own["r1"]
    assert any("converted to implicit INT8" in note for note in plan.notes)
    assert any(layer.device != "GPU" and layer.precision == "int8" for layer in plan.layers)


def test_the_build_runs_the_plain_network(file: Path, tmp_path: Path) -> None:
    with pipeline(file, tmp_path) as steps:
        document = steps.build().to_json()
        (network_input,) = model(steps.context).proto.graph.input
    assert network_input.name == "x"
    assert document["accuracy"]["cosine"] > 0.99
    with pipeline(file, tmp_path) as steps:
        again = steps.build().to_json()
    assert {step["name"]: step["status"] for step in again["steps"]}["build"] == "reused"


def test_other_scales_are_another_build(tmp_path: Path) -> None:
    keys = []
    for scale in (0.07, 0.08):
        proto = residual().proto("last_dq")
        for tensor in proto.graph.initializer:
            if tensor.name in ("a_relu_q_s", "a_relu_dq_s", "skip_q_s", "skip_dq_s"):
                value = np.asarray(scale, np.float32)
                tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
        onnx.save(proto, tmp_path / "model.onnx")
        with pipeline(tmp_path / "model.onnx", tmp_path) as steps:
            keys.append((model_digest(steps.context), build_key(steps.context)))
    assert keys[0][0] == keys[1][0]
    assert keys[0][1] != keys[1][1]


def test_what_has_no_scale_stays_in_fp16(tmp_path: Path) -> None:
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 16, 16), 0.03)
    random = np.random.default_rng(1)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    first = sheet.node("Relu", qat(sheet, x, "first", weight(8, 4, 3, 3)), "one")
    sheet.constant("plain", weight(8, 8, 3, 3))
    middle = sheet.node("Conv", f"{sheet.qdq(first, 0.2)} plain", "middle", pads=[1] * 4)
    pooled = sheet.node("MaxPool", middle, "pooled", kernel_shape=[2, 2], strides=[2, 2])
    sheet.constant("last", weight(8, 8, 3, 3))
    sheet.node("Conv", f"{pooled} last", "y", pads=[1] * 4)
    onnx.save(sheet.proto("y"), tmp_path / "model.onnx")
    with pipeline(tmp_path / "model.onnx", tmp_path) as steps:
        plan = steps.plan()
        found = translate_qdq(steps.context)
    assert found is not None
    assert "y" in found.fp16_nodes
    precision = {layer.name: layer.precision for layer in plan.layers}
    assert precision["first"] == "int8"
    assert precision["y"] == "fp16"
    assert any("kept in FP16" in note for note in plan.notes)


def test_check_gives_the_verdict_of_what_would_be_built(file: Path, tmp_path: Path) -> None:
    named = edgekit.check(file, target=ORIN).to_json()
    with pipeline(file, tmp_path) as steps:
        configured = steps.check_result().document.to_json()
    assert named["summary"]["dla_layers"] > 0
    assert any("does not support Q/DQ nodes" in text for text in named["warnings"])
    assert configured["summary"] == named["summary"]
    assert configured["warnings"] == named["warnings"]
    plain = edgekit.check(file.parent / "float.onnx", target=ORIN).to_json()
    assert set(named) == set(plain)


@pytest.mark.parametrize(
    ("release", "precision"), [("11.4.1", "int8"), ("10.3", "fp16"), ("10.9", "int8")]
)
def test_elsewhere_it_stays_as_it_is(file: Path, release: str, precision: str) -> None:
    document = edgekit.check(file, target=ORIN, tensorrt=release, precision=precision).to_json()
    kinds = {layer["kind"] for layer in document["layers"]}
    assert "QUANTIZE" in kinds
    assert not any("translated" in text for text in document["warnings"])


def test_what_cannot_be_translated_is_reported_and_refused_as_ever(tmp_path: Path) -> None:
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 8, 8), 0.1, zero=np.int8(3))
    sheet.node("Relu", x, "y")
    onnx.save(sheet.proto("y"), tmp_path / "model.onnx")
    document = edgekit.check(tmp_path / "model.onnx", target=ORIN).to_json()
    assert document["summary"]["dla_layers"] == 0
    assert any("cannot be converted" in t and "x_q" in t for t in document["warnings"])
    reasons = [reason for layer in document["layers"] for reason in layer["dla"]["reasons"]]
    assert {reason["rule"] for reason in reasons} == {"general.explicit_quantization"}
    assert all("edgekit calibrate from-qdq" in reason["fix"] for reason in reasons)


def changed(path: Path, target: Path, names: tuple[str, ...], factor: float) -> Path:
    """The file with some constants multiplied."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if tensor.name in names:
            value = (numpy_helper.to_array(tensor) * np.float32(factor)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    onnx.save(proto, target)
    return target


def test_other_weights_come_from_a_file_of_the_same_scales(file: Path, tmp_path: Path) -> None:
    with pipeline(file, tmp_path) as steps:
        mine = model(steps.context)
        trained = changed(file, tmp_path / "trained.onnx", ("conv2.w_scale",), 0.5)
        other = other_weights(steps.context, trained)
        halved = mine.weights["conv2.w"] * np.float32(0.5)
        assert np.array_equal(other.weights["conv2.w"], halved)
        # the network before it was quantised has weights of the same names
        plain = other_weights(steps.context, file.parent / "float.onnx")
        floats = load(file.parent / "float.onnx").weights["conv2.w"]
        assert np.array_equal(plain.weights["conv2.w"], floats)
        rescaled = changed(file, tmp_path / "rescaled.onnx", ("r1_scale",), 0.5)
        with pytest.raises(DataError) as caught:
            other_weights(steps.context, rescaled)
    assert caught.value.code == "refit.mismatch"
    assert "'r1'" in caught.value.message


def test_a_rewriting_of_a_translation_is_verified_from_the_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pipeline(file, tmp_path) as steps:
        steps.rewrite(tmp_path / "out.onnx", tmp_path / "record.json")
    document = edgekit.verify_rewrites(file, tmp_path / "record.json").to_json()
    assert document["holds"]


def command(line: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["calibrate", "from-qdq", *line])
    return int(caught.value.code or 0)


def test_the_command_writes_all_that_the_board_needs(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [
        str(file),
        "-t",
        ORIN,
        "-o",
        "plain.onnx",
        "--save",
        "calib.cache",
        "--precisions",
        "layers.txt",
        "--precisions",
        "precisions.json",
        "--json",
    ]
    assert command(line) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "edgekit.from-qdq/1"
    plain = load(tmp_path / "plain.onnx")
    assert not {"QuantizeLinear", "DequantizeLinear"} & {n.op_type for n in plain.proto.graph.node}
    cache = load_cache(tmp_path / "calib.cache")
    assert cache.header == "TRT-100300-EntropyCalibration2"
    assert cache.scales == document["scales"]
    written = json.loads((tmp_path / "precisions.json").read_text())
    assert written == {
        "int8_tensor_scales": document["scales"],
        "fp16_nodes": document["fp16_nodes"],
    }
    text = (tmp_path / "layers.txt").read_text().strip()
    assert text == ",".join(f"{name}:fp16" for name in document["fp16_nodes"])
    assert "--calib=calib.cache" in document["trtexec"]
    # what was written is what the steps take from the Q/DQ file
    with pipeline(
        tmp_path / "plain.onnx", tmp_path, calibration={"cache": "calib.cache", "missing": "fp16"}
    ) as steps:
        from_files = scales(steps.context)
    with pipeline(file, tmp_path) as steps:
        from_model = scales(steps.context)
    assert from_files is not None
    assert from_model is not None
    assert from_files.digest == from_model.digest


def test_one_model_gives_one_cache_when_it_is_tied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    sheet = Sheet()
    kernel = np.random.default_rng(3).standard_normal((4, 3, 3, 3)).astype(np.float32)
    x = sheet.qdq(sheet.input("x", 1, 3, 8, 8), 0.02)
    w = sheet.qdq(sheet.constant("w", kernel), 0.05)
    c = sheet.qdq(sheet.node("Conv", f"{x} {w}", "conv"), 0.03)
    p = sheet.node("MaxPool", c, "pool", kernel_shape=[2, 2], strides=[2, 2])
    onnx.save(sheet.proto(sheet.qdq(p, 0.01)), tmp_path / "q.onnx")
    given = ["q.onnx", "-t", ORIN, "--save"]
    assert command([*given, "own"]) == 0
    reported = capsys.readouterr().out
    assert "Different in the Q/DQ model: 'pool_dq'" in reported
    assert "--tied" in reported
    own = load_cache(tmp_path / "own").scales
    assert own["pool_dq"] == np.float32(0.01)
    assert own["conv"] == np.float32(0.03)
    assert command([*given, "tied", "--tied"]) == 0
    tied = load_cache(tmp_path / "tied").scales
    assert tied["pool_dq"] == tied["conv"] == np.float32(0.03)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main.main(["calibrate", *given, "calibrated"])
    assert "Different in the Q/DQ model: 'pool_dq'" in capsys.readouterr().out
    calibrated = load_cache(tmp_path / "calibrated").scales
    assert {name: calibrated[name] for name in tied} == tied


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        (["--save", "calib.cache"], "--tensorrt"),
        (["-o", "here"], "would overwrite"),
        (["-o", "missing/plain.onnx"], "folder does not exist"),
    ],
)
def test_the_command_refuses(
    line: list[str],
    reported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(residual().proto("last_dq"), "here")
    assert command(["here", *line]) == 2
    assert reported in capsys.readouterr().err


def test_a_release_that_reads_qdq_needs_no_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(residual().proto("last_dq"), "model.onnx")
    assert command(["model.onnx", "-t", ORIN, "--tensorrt", "11.4.1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "--calib" not in document["trtexec"]
    assert any("uses Q/DQ nodes on the DLA" in note for note in document["notes"])


def test_biases_in_int32_are_refused_where_tensorrt_reads_the_q_dq_model(
    file: Path, tmp_path: Path
) -> None:
    with pipeline(file, tmp_path, tensorrt="11.4.1") as steps, pytest.raises(GateError) as refused:
        steps.plan()
    assert refused.value.code == "model.parse"
    assert "QuantizeBias=False" in refused.value.hint


@pytest.mark.parametrize("release", ["10.3", "11.4.1"])
def test_what_fp32_means_is_reported(float_biases: Path, tmp_path: Path, release: str) -> None:
    with pipeline(float_biases, tmp_path, tensorrt=release) as steps:
        notes = steps.build().notes
        ranking = sensitivity(steps).notes
    for reported in (notes, ranking):
        assert sum("without its Q/DQ nodes" in note for note in reported) == 1
    with pipeline(float_biases.parent / "small.onnx", tmp_path) as steps:
        assert not any("FP32 means" in note for note in steps.build().notes)


@pytest.mark.parametrize(
    ("kind", "zero", "parsed"), [(np.int8, 0, True), (np.uint8, 128, False)], ids=["int8", "uint8"]
)
def test_a_model_of_quantised_weights_alone_runs_in_fp16(
    kind: type[np.integer], zero: int, parsed: bool, tmp_path: Path
) -> None:
    """It gives no activation a scale, so that no layer can run in implicit INT8."""
    codes = np.arange(zero - 36, zero + 36).astype(kind).reshape(8, 1, 3, 3)
    proto = make(
        [
            node("DequantizeLinear", "codes scale zero", "w", name="weights"),
            node("Conv", "x w", "y", name="conv", group=8),
        ],
        {"x": [1, 8, 16, 16]},
        ["y"],
        {"codes": codes, "scale": np.float32(0.01), "zero": kind(zero)},
    )
    path = write(proto, tmp_path)

    document = edgekit.check(path, target=ORIN).to_json()
    plan = edgekit.plan(path, target=ORIN)

    (layer,) = document["layers"]
    assert layer["dla"]["ok"]
    assert (document["parse"]["ok"], document["parse"]["converted"]) == (parsed, not parsed)
    assert any("only its weights are quantised" in note for note in document["warnings"])
    assert [one.precision for one in plan.layers] == ["fp16"]
