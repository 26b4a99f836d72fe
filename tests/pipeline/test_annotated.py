"""The annotated ONNX file: the same network, with device and time at each node."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import external_data_helper

from edgekit.cli import main
from edgekit.errors import ModelError
from edgekit.network.loading.load import load
from edgekit.network.lowering.places import NodePlace
from edgekit.network.writing import annotate_file
from edgekit.placement.plan import PlacedLayer
from edgekit.reports.node_notes import node_notes
from edgekit.reports.schema import MeasuredTime, ReportedLayer
from tests.pipeline.nets import small_net

TARGET = "jetson-agx-orin-64gb"
CONFIG = f"""
version: 1
name: net
model: {{onnx: net.onnx}}
target: {TARGET}
precision: fp16
rewrite: {{enable: none}}
"""


def run(*arguments, code=0):
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    assert caught.value.code == code


def answer(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (feed,) = session.get_inputs()
    value = np.random.default_rng(0).standard_normal(feed.shape).astype(np.float32)
    return session.run(None, {feed.name: value})


def notes_of(node):
    return {item.key: item.value for item in node.metadata_props}


def bare(proto):
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.metadata_props[:]
    for node in copy.graph.node:
        del node.metadata_props[:]
    return copy


@pytest.mark.parametrize("version", [8, 10])
def test_a_plan_in_the_users_own_file(tmp_path, monkeypatch, capsys, version):
    monkeypatch.chdir(tmp_path)
    small_net(tmp_path / "net.onnx")
    model = onnx.load("net.onnx")
    model.ir_version = version
    for node in model.graph.node[1:]:
        node.name = ""
    model.graph.node[0].metadata_props.add(key="mine", value="kept")
    onnx.save(model, "net.onnx")
    (tmp_path / "net.yaml").write_text(CONFIG)
    run("plan", "net.yaml", "--annotate", "out/noted.onnx", "--json")
    plan = json.loads(capsys.readouterr().out)
    noted = onnx.load("out/noted.onnx")
    onnx.checker.check_model(noted, full_check=True)
    assert noted.ir_version == version
    assert bare(noted) == bare(model)
    for one, other in zip(answer("net.onnx"), answer("out/noted.onnx"), strict=True):
        assert one.tobytes() == other.tobytes()
    by_layer = {layer["name"]: layer for layer in plan["layers"]}
    assert notes_of(noted.graph.node[0])["mine"] == "kept"
    for node in noted.graph.node:
        note = notes_of(node)
        layer = by_layer[note["edgekit.layer"].split(", ")[0]]
        assert note["edgekit.device"] == layer["device"]
        assert note["edgekit.precision"] == layer["precision"]
        assert note["edgekit.time"].startswith("predicted as part") or (
            float(note["edgekit.time"].removesuffix(" µs, predicted")) > 0
        )
    assert notes_of(noted)["edgekit:target"] == TARGET
    frame = notes_of(noted)["edgekit:time"]
    assert frame == f"{plan['predicted']['latency_us']:.1f} µs, predicted"
    # the notes are no part of the model: annotated or not, it is the same one
    assert load("out/noted.onnx").digest == load("net.onnx").digest
    run("plan", "net.yaml", "--annotate", "net.onnx", code=2)


def test_a_rewritten_model_is_written_as_it_was_placed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small_net(tmp_path / "net.onnx")
    run("plan", "net.onnx", "-t", TARGET, "--objective", "gpu_time", "--annotate", "noted.onnx")
    noted = onnx.load("noted.onnx")
    onnx.checker.check_model(noted, full_check=True)
    for node in noted.graph.node:
        assert {"edgekit.device", "edgekit.gone"} & notes_of(node).keys()
    assert any(notes_of(node)["edgekit.device"] != "GPU" for node in noted.graph.node)
    for one, other in zip(answer("net.onnx"), answer("noted.onnx"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_external_weights_are_referred_to(tmp_path):
    small_net(tmp_path / "inline.onnx")
    model = onnx.load(tmp_path / "inline.onnx")
    external_data_helper.convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    onnx.save(model, tmp_path / "net.onnx")
    before = (tmp_path / "w.bin").read_bytes()
    name = onnx.load(tmp_path / "net.onnx", load_external_data=False).graph.node[0].name
    annotate_file(tmp_path / "net.onnx", tmp_path / "b.onnx", {name: {"device": "DLA0"}}, {})
    assert (tmp_path / "b.onnx").stat().st_size < len(before)
    assert (tmp_path / "w.bin").read_bytes() == before
    assert answer(tmp_path / "b.onnx")[0].tobytes() == answer(tmp_path / "net.onnx")[0].tobytes()
    (tmp_path / "other").mkdir()
    with pytest.raises(ModelError, match="same folder"):
        annotate_file(tmp_path / "net.onnx", tmp_path / "other" / "b.onnx", {}, {})


def test_measured_times_stand_next_to_predicted_ones():
    layer = PlacedLayer("a", ("n1", "n2"), "DLA0", "int8", 1, 10.0, 0.0)
    row = ReportedLayer(
        number=1,
        name="a",
        kind="",
        device="DLA0",
        precision="int8",
        segment=1,
        dla_ok=True,
        certainty="certain",
        reasons=[],
        macs=0,
        predicted_us=10.0,
        measured=MeasuredTime(clock="board-measured", us=12.5),
    )
    placed = {
        "n1": NodePlace(("a",)),
        "n2": NodePlace(("a",)),
        "n3": NodePlace(("a",), "constant"),
        "n4": NodePlace((), "unused"),
    }
    notes = node_notes([layer], placed, [row])
    assert notes["n1"] == notes["n2"]
    assert notes["n1"]["time"] == "12.50 µs, board-measured; 10.00 µs, predicted"
    assert notes["n1"]["note"] == "the time is for 2 nodes, which form one layer"
    assert notes["n3"] == {"gone": "constant", "layer": "a"}
    assert notes["n4"] == {"gone": "unused"}
