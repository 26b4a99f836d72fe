"""``edgekit trace`` beside a configuration: the plan names what Nsight Systems saw."""

import json

import pytest

from edgekit.benchmark.trace.chrome import validate_trace
from edgekit.cli.main import app
from edgekit.config.loader import open_config
from edgekit.errors import DataError
from edgekit.pipeline.exports import TraceFiles
from edgekit.pipeline.pipeline import Pipeline
from tests.benchmark import handmade_plan, monitor_samples
from tests.benchmark.nsys_export import Writer
from tests.pipeline.nets import small_net
from tests.results.measurements import bench_json

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
    reported = json.loads(capsys.readouterr().out)
    assert reported["file"].endswith("timeline.json")
    document = json.loads((here / reported["file"]).read_text())
    assert validate_trace(document) == []
    assert {p["clock"] for p in reported["processes"]} == {"predicted", "board-measured"}
    assert any("only the prediction" in note for note in reported["notes"])
    kernel = next(e for e in document["traceEvents"] if e["name"] == "cask")
    assert kernel["args"]["nodes"] == ["conv1", "bn"]
    predicted = next(e for e in document["traceEvents"] if e["name"] == "conv1")
    assert predicted["args"]["clock"] == "predicted"
    assert predicted["args"]["segment"] == kernel["args"]["segment"]


def test_what_a_file_is_stands_in_it_and_not_in_its_name(here, capsys):
    assert app(["trace", "c.yaml", "-o", "plan.json", "-q", "--json"]) == 0
    assert app(["trace", "plan.json", "-o", "again.json", "-q", "--json"]) == 0
    (here / "mytrace.json").write_text(json.dumps(bench_json([1.0] * 9)))
    capsys.readouterr()
    assert app(["trace", "mytrace.json", "-o", "bench.json", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["processes"]
    (here / "mytrace.json").write_text('{"schema": "edgekit.other/1"}')
    with pytest.raises(DataError, match="not a bench document"):
        app(["trace", "mytrace.json", "-o", "x.json", "-q"])
    (here / "plan.json").write_text('{"traceEvents": [{}]}')
    with pytest.raises(DataError, match="not an edgekit trace"):
        app(["trace", "plan.json", "-o", "x.json", "-q"])


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


def test_ranges_that_no_layer_has_are_reported(here):
    with Writer(here / "b.sqlite") as out:
        out.range("something else", 10, 90)
    with Pipeline(open_config("c.yaml")) as pipeline:
        reported = pipeline.trace(TraceFiles(nsys=(here / "b.sqlite",)), here / "t.json")
    assert any("no range has the name of a layer" in note for note in reported.notes)


def test_events_whose_times_are_none_are_counted_and_reported(here, capsys):
    with Writer(here / "b.sqlite") as out:
        out.kernel("fine", (1, 2), 10, 20)
        out.kernel("nowhere", (3, 4), None, 80)
        out.kernel("backwards", (5, 6), 90, 80)
        out.range("still open", 7, None)
    assert app(["trace", "--nsys", "b.sqlite", "-o", "t.json", "-q", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["left_out"] == 2
    (note,) = (note for note in reported["notes"] if "left out" in note)
    assert "1 of CUPTI_ACTIVITY_KIND_KERNEL without a start" in note
    assert "1 of CUPTI_ACTIVITY_KIND_KERNEL that end before they begin" in note
    names = [event["name"] for event in json.loads((here / "t.json").read_text())["traceEvents"]]
    assert {"fine", "still open"} <= set(names)
    assert not {"nowhere", "backwards"} & set(names)


def test_processes_of_several_sources_have_names_of_their_own(here, capsys):
    line = "RAM 3412/15657MB (lfb 176x4MB) CPU [0%@1984] GPU 463/463\n"
    (here / "board.log").write_text("NV Power Mode: MAXN\n" + 3 * line)
    measured = handmade_plan.measurement() | monitor_samples.measured()
    (here / "b.json").write_text(json.dumps(measured))
    with Writer(here / "b.sqlite") as out:
        out.db.execute("DROP TABLE META_DATA_EXPORT")
        out.db.execute("DROP TABLE TARGET_INFO_SYSTEM_ENV")
    words = ["trace", "b.json", "--tegrastats", "board.log", "--nsys", "b.sqlite", "-o", "t.json"]
    assert app([*words, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    names = [process["name"] for process in reported["processes"]]
    assert len(set(names)) == len(names)
    assert "monitors (board.log) of the board" in names
    assert any(name.startswith("Nsight Systems, unknown machine") for name in names)
    assert app(words) == 0
    lines = capsys.readouterr().out.splitlines()
    # a source is placed once, whatever processes it has
    assert sum("b.json: " in line and "its 2 processes" in line for line in lines) == 1
    assert sum("not aligned with the others" in line for line in lines) == 3
    assert "board.log: 1 line is none of tegrastats" in reported["notes"]
