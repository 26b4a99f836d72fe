"""Builds through trtexec: a stand-in program, real processes."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit.tensorrt.trtexec import trtexec_command
from edgekit_device.build import engine, job
from edgekit_device.build.attempt import BuilderLog
from edgekit_device.build.request import Attempt, BuiltEngine
from edgekit_device.build.trtexec import banner_version, build_attempt
from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import JobCancelled
from edgekit_device.tensorrt.plan import read_header
from tests.edgekit_device import build_toys as toys
from tests.tensorrt.build_requests import spec
from tests.trt_double import board

# options become variables; what it does is told by --do
STAND_IN = """#!{python}
import json, os, signal, subprocess, sys, time
given = dict(a[2:].partition("=")[::2] for a in sys.argv[1:])
def say(letter, text):
    print("[11/21/2026-10:00:00] [%s] [TRT] %s" % (letter, text), flush=True)
print("&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec", flush=True)
say("V", "---------- Layers Running on DLA ----------")
open("seen.json", "w").write(json.dumps(sys.argv[1:]))
do = given.get("do", "")
if do == "fail":
    say("W", "conv1: DLA only supports this")
    say("E", "Error Code 10: Internal Error (Could not find any implementation for node conv1.)")
    say("E", "Engine could not be created from network")
    sys.exit(1)
if do == "plugin":
    say("I", "Using VC plugin library /usr/lib/libnvinfer_vc_plugin.so.10")
if do == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if do == "sleep":
    child = subprocess.Popen(["sleep", "600"])
    open(given["pids"], "w").write("%d %d" % (os.getpid(), child.pid))
    time.sleep(600)
if do == "nothing":
    sys.exit(0)
assert open(given["onnx"], "rb").read()
if "calib" in given:
    say("I", "header " + open(given["calib"]).readline().strip())
cache = given.get("timingCacheFile")
if cache:
    known = open(cache).read() if os.path.exists(cache) else ""
    open(cache, "w").write(known + "x")
open(given["saveEngine"], "wb").write(b"ftrt" + bytes(20) + bytes([10, 3, 0, 30]) + b"plan")
if "exportLayerInfo" in given:
    found = {{"Layers": ["conv1", "fc"], "Bindings": []}}
    open(given["exportLayerInfo"], "w").write(json.dumps(found))
"""
ARGUMENTS = [
    "--onnx={model}", "--saveEngine={engine}", "--calib={calibration}",
    "--timingCacheFile={timing_cache}", "--exportLayerInfo={layer_info}",
]  # fmt: skip


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "trtexec"
    path.parent.mkdir()
    path.write_text(STAND_IN.format(python=sys.executable))
    path.chmod(0o755)
    return path


def build(
    program: Path,
    folder: Path,
    *arguments: str,
    cancelled: Any = None,
    flags: tuple[str, ...] = ("FP16", "STRIP_PLAN"),
) -> tuple[BuiltEngine, Any]:
    model = folder / "model.onnx"
    model.write_bytes(toys.toy_onnx())
    log = BuilderLog(None, lambda line: None)
    reported: list[tuple[int, int, str]] = []
    built = build_attempt(
        program,
        log,
        toys.spec(toys.engine()),
        Attempt(flags, ""),
        [*ARGUMENTS, *arguments],
        folder=folder / "work",
        model=model,
        cache=toys.cache_text(version=8601),
        version="10.3.0.30",
        timing=folder / "root" / "timing" / "t.cache",
        on_progress=lambda *step: reported.append(step),
        cancelled=cancelled or (lambda: False),
    )
    return built, (log, reported)


def test_a_build_gives_plan_layers_and_timings(program: Path, tmp_path: Path) -> None:
    built, (log, reported) = build(program, tmp_path)
    assert read_header(built.data) == (10, 3, 0, 30)
    assert json.loads(built.inspector or "")["Layers"] == ["conv1", "fc"]
    assert built.flags == ("FP16", "STRIP_PLAN")
    assert reported == [(0, 0, "placing layers")]
    # the cache has the header of the board's own release
    assert "header TRT-100300-EntropyCalibration2" in log.text()
    assert built.timing_cache == {"entries_bytes_before": 0, "after": 1, "reused": False}
    again, _ = build(program, tmp_path)
    assert again.timing_cache == {"entries_bytes_before": 1, "after": 2, "reused": True}


def test_arguments_reach_it_as_they_are(program: Path, tmp_path: Path) -> None:
    odd = "--layerPrecisions=a b;$(touch hacked)'\"*:fp16"
    build(program, tmp_path, odd)
    assert json.loads((tmp_path / "work" / "seen.json").read_text())[-1] == odd
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (
            "fail",
            r"failed with exit status 1: Error Code 10: .*conv1.*; Engine could not be created",
        ),
        ("die", "was stopped by SIGKILL"),
        ("nothing", "wrote no engine"),
    ],
)
def test_failures_report_how_it_ended_and_its_last_errors(
    do: str, text: str, program: Path, tmp_path: Path
) -> None:
    with pytest.raises(DeviceError, match=text) as failed:
        build(program, tmp_path, "--do=" + do)
    assert failed.value.code == ("build.crashed" if do == "die" else "build.attempt")


def test_a_version_compatible_plan_with_plugins_inside_is_refused(
    program: Path, tmp_path: Path
) -> None:
    given = ("--do=plugin",)
    assert build(program, tmp_path, *given)
    with pytest.raises(DeviceError, match=r"libnvinfer_vc_plugin\.so\.10") as failed:
        build(program, tmp_path, *given, flags=("VERSION_COMPATIBLE",))
    assert failed.value.code == "build.plugins"


def test_cancelling_ends_it_and_what_it_started(program: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(JobCancelled):
        build(
            program,
            tmp_path,
            "--do=sleep",
            f"--pids={pids}",
            cancelled=lambda: pids.exists() and bool(pids.read_text()),
        )
    for pid in map(int, pids.read_text().split()):
        deadline = time.monotonic() + 120
        while _runs(pid):
            assert time.monotonic() < deadline, f"process {pid} still runs"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # what nobody has waited for yet is dead all the same
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_program_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as failed:
        build(tmp_path / "nothing", tmp_path)
    assert failed.value.code == "build.trtexec"


def test_versions_of_banners() -> None:
    for number, version in (("8502", "8.5.2"), ("100300", "10.3.0"), ("101600", "10.16.0")):
        line = f"&&&& RUNNING TensorRT.trtexec [TensorRT v{number}] [b23] # trtexec"
        assert banner_version(line) == version
    assert banner_version("[I] hello") == ""


@pytest.mark.whole
@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0", "11.4.0"])
@pytest.mark.parametrize("kind", ["plan", "loadable"])
def test_the_hosts_commands_build_on_each_release(
    kind: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the host writes, a trtexec that takes its release's flags alone can build."""
    if version == "11.4.0":
        if kind == "loadable":
            return
        document = toys.strong()
    else:
        document = toys.engine() if kind == "plan" else toys.loadable()
    attempt = document["attempts"][0]
    arguments = trtexec_command(spec(document), Attempt(tuple(attempt["flags"]), ""), version)
    on = board.board_python(tmp_path / "bin", version)
    monkeypatch.setattr(engine, "find_trtexec", lambda: board.board_trtexec(on))
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    given = toys.request({**document, "trtexec": [arguments]}, backend="trtexec")
    with toys.job(tmp_path, given) as context:
        (entry,) = job.run(context)["engines"]
        data = bytes(context.root.store.read(entry["engine"]))
    assert entry["kind"] == kind
    assert data.startswith(b"ftrt") == (kind == "plan")
    assert board.offences(on) == []
    if kind == "plan":
        # trtexec places layers by name: what the importer inserts without one is the builder's
        names = {one["name"] for one in entry["layers"] if one["device"] == "DLA"}
        assert "{ForeignNode[conv1...relu2]}" in names
        assert not names & set(toys.ON_GPU)


def run(
    folder: Path, patch: pytest.MonkeyPatch, *commands: list[str], **more: Any
) -> tuple[Any, Any]:
    patch.setitem(sys.modules, "tensorrt", None)
    attempts = [{"flags": ["STRIP_PLAN"] * (n == 0), "gives_up": "x"} for n in range(len(commands))]
    document = toys.request(
        toys.engine(trtexec=list(commands), attempts=attempts), backend="trtexec", **more
    )
    with toys.job(folder, document) as context:
        return job.run(context), context


def test_a_board_without_bindings_builds_all_the_same(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find_trtexec", lambda: program)
    golden = [{"seed": 3, "inputs": {"x": {"low": -1.0, "high": 1.0}}, "lane": None}]
    fails = [*ARGUMENTS, "--do=fail"]
    result, context = run(tmp_path, monkeypatch, fails, ARGUMENTS, golden=golden)
    (entry,) = result["engines"]
    assert (result["builder"], entry["tensorrt"], entry["attempt"]) == (
        "trtexec", "10.3.0.30", 1,
    )  # fmt: skip
    assert "Could not find any implementation" in entry["attempts"][0]["error"]
    assert [one["name"] for one in entry["layers"]] == ["conv1", "fc"]
    assert [io["format"] for io in entry["io"]] == ["LINEAR", "LINEAR"]
    assert any("TensorRT's Python package is missing" in note for note in result["notes"])
    assert result["golden"] == []
    assert any("golden vectors were not run" in note for note in result["notes"])
    assert b"&&&& RUNNING" in bytes(context.root.store.read(entry["log"]))


def test_a_board_without_trtexec_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_trtexec", lambda: None)
    with pytest.raises(DeviceError) as failed:
        run(tmp_path, monkeypatch, ARGUMENTS, ARGUMENTS)
    assert failed.value.code == "build.trtexec"
