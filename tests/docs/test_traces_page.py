"""The examples of docs/traces.md run as they stand; so does the command beside a configuration."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.benchmark.trace.chrome import validate_trace
from edgekit.cli import main
from tests.benchmark import handmade_plan, monitor_samples
from tests.benchmark.nsys_export import engine_run

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"
TEGRASTATS = (
    "06-15-2025 15:06:4{0} RAM 2048/30536MB (lfb 4x4MB) SWAP 0/15268MB (cached 0MB) "
    "CPU [{0}%@2201,3%@2201] GR3D_FREQ {0}% cpu@50.1C tj@52.2C VDD_GPU_SOC {0}000mW/2000mW\n"
)
TIMES = (
    '{{ "startEnqMs" : {0}, "endEnqMs" : {0}.1, "startH2dMs" : {0}, "endH2dMs" : {0}.2, '
    '"startComputeMs" : {0}.2, "endComputeMs" : {0}.8, "startD2hMs" : {0}.8, "endD2hMs" : {0}.9, '
    '"h2dMs" : 0.2, "computeMs" : 0.6, "d2hMs" : 0.1, "latencyMs" : 0.9 }}'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    engine_run(path / "report.sqlite")
    (path / "board.log").write_text("".join(TEGRASTATS.format(n) for n in range(4)))
    (path / "times.json").write_text("[\n" + "\n, ".join(TIMES.format(n) for n in (1, 2)) + "\n]\n")
    loadable = "{ForeignNode[conv1...relu9]}"
    rows = [("data to nvm", 0.01), (loadable, 0.01), ("out from nvm", 2.5), ("softmax", 0.1)]
    (path / "profile.json").write_text(json.dumps([{"name": n, "timeMs": t} for n, t in rows]))
    layers = [{"Name": loadable, "LayerType": "DLA", "Outputs": [{"Name": "out"}]}]
    (path / "layers.json").write_text(json.dumps({"Layers": layers}))
    measured = handmade_plan.measurement() | monitor_samples.measured()
    document = {"schema": "edgekit.bench/1", **measured, "latency_ms": {"mean": 1.0}}
    (path / "bench.json").write_text(json.dumps(document))
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments])
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


LINES = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)[0].splitlines()


@pytest.mark.parametrize("line", LINES)
def test_example(line, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    file = arguments[arguments.index("-o") + 1]
    trace = json.loads((folder / file).read_text())
    assert validate_trace(trace) == []
    if "--json" in arguments:
        reported = json.loads(out)
        assert reported["file"] == file
        assert {p["source"] for p in reported["processes"]} == {"bench.json", "board.log"}
    else:
        assert f"trace: {file}" in out
        assert out.count("board-measured") == len(trace["otherData"]["processes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no measurements for"),
        (("--layer-info", "layers.json"), "no measurements for"),
        (("--times", "times.json", "--layer-info", "layers.json"), "needs --profile"),
        (("--nsys", "board.log"), "not an SQLite database"),
        (("--nsys", "none.nsys-rep"), "cannot be read"),
        (("profile.json",), "not a bench document"),
        (("--tegrastats", "times.json"), "contains no tegrastats line"),
        (("--dla-stats", "board.log"), "no longer exists"),
    ],
)
def test_what_cannot_be_shown_is_reported_and_nothing_is_written(
    arguments, words, folder, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    code, out, err = run(capsys, "trace", *arguments, "-o", "none.json")
    assert code != 0
    assert words in err
    assert not out
    assert "Traceback" not in err
    assert not (folder / "none.json").exists()
