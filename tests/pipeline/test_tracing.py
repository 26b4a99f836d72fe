"""``edgekit trace`` beside a configuration: the plan names what Nsight Systems saw."""

import json

import pytest

from edgekit.bench import validate_trace
from edgekit.cli._main import app
from edgekit.config import open_config
from edgekit.errors import DataError
from edgekit.pipeline import Pipeline, TraceFiles, trace
from tests.bench.nsys_export import Writer
from tests.pipeline.nets import small_net

CONFIG = "version: 1\nname: small\nmodel: {onnx: model.onnx}\ntarget: jetson-agx-orin-64gb\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    small_net(tmp_path / "model.onnx")
    (tmp_path / "c.yaml").write_text(CONFIG)
    with Writer(tmp_path / "a.sqlite") as out:
        out.domain(1, "TensorRT")
        out.range("conv1 + bn", 10, 90, 1)
        out.kernel("cask", (20, 30), 40, 80)
    return tmp_path


def test_predicted_and_measured_stand_side_by_side_and_name_the_same_nodes(here, capsys):
    assert app(["trace", "c.yaml", "--nsys", "a.sqlite", "-q", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"].endswith("timeline.json")
    document = json.loads((here / told["file"]).read_text())
    assert validate_trace(document) == []
    assert {p["clock"] for p in told["processes"]} == {"predicted", "board-measured"}
    assert any("only the prediction" in note for note in told["notes"])
    kernel = next(e for e in document["traceEvents"] if e["name"] == "cask")
    assert kernel["args"]["nodes"] == ["conv1", "bn"]
    predicted = next(e for e in document["traceEvents"] if e["name"] == "conv1")
    assert predicted["args"]["clock"] == "predicted"
    assert predicted["args"]["segment"] == kernel["args"]["segment"]


def test_a_time_that_is_none_names_its_file_and_leaves_the_trace(here):
    (here / "t.json").write_text(
        '[{"startEnqMs": 0, "endEnqMs": 1, "startComputeMs": 1e300, "h2dMs": 0, "computeMs": 1, '
        '"d2hMs": 0}]'
    )
    (here / "o.json").write_text("before")
    with pytest.raises(DataError) as caught:
        app(["trace", "--times", "t.json", "-o", "o.json", "-q"])
    assert (caught.value.code, caught.value.where) == ("trace.time", "t.json")
    assert (here / "o.json").read_text() == "before"


def test_ranges_that_no_layer_has_are_told(here):
    with Writer(here / "b.sqlite") as out:
        out.range("something else", 10, 90)
    with Pipeline(open_config("c.yaml")) as pipeline:
        told = trace(TraceFiles(nsys=(here / "b.sqlite",)), here / "t.json", pipeline=pipeline)
    assert any("no range is called like a layer" in note for note in told["notes"])
