"""The job "build" when attempts fail, builders die, or somebody cancels."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from edgekit.tensorrt.options import decide
from edgekit_device.build import engine
from edgekit_device.build.attempt import run_isolated
from edgekit_device.build.engine import EngineBuild
from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import JobCancelled
from tests.edgekit_device import build_toys as toys
from tests.edgekit_device.build_board import Board
from tests.tensorrt.build_requests import requested_build


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda version, **more: Board(tmp_path, monkeypatch, version, **more)


def test_attempts_are_tried_in_order_and_reported(make: Any) -> None:
    on = make("10.3.0")
    on.double.settings.failing = [["VERSION_COMPATIBLE", "DLA"]]
    attempts = [
        {"flags": ["VERSION_COMPATIBLE", "STRIP_PLAN"], "gives_up": ""},
        {"flags": ["VERSION_COMPATIBLE"], "gives_up": "keeps its weights"},
        {"flags": ["STRIP_PLAN"], "gives_up": "runs on this release alone"},
    ]
    result = on.run(toys.request(toys.engine(attempts=attempts)))
    (entry,) = result["engines"]
    assert entry["attempt"] == 2
    assert [one["ok"] for one in entry["attempts"]] == [False, False, True]
    assert all("does not work" in one["error"] for one in entry["attempts"][:2])
    assert (entry["version_compatible"], entry["stripped"]) == (False, True)
    assert "lane0: runs on this release alone" in result["notes"]


def test_when_none_succeeds_each_cause_is_reported(make: Any) -> None:
    on = make("10.3.0")
    on.double.settings.failing = [["STRIP_PLAN"], ["REFIT"]]
    attempts = [{"flags": [flag], "gives_up": ""} for flag in ("STRIP_PLAN", "REFIT")]
    with pytest.raises(DeviceError) as failed:
        on.run(toys.request(toys.engine(attempts=attempts)))
    assert failed.value.code == "build.failed"
    assert "(1) STRIP_PLAN: TensorRT failed to build it" in failed.value.message
    assert "(2) REFIT: " in failed.value.message
    assert failed.value.hint


def test_what_flags_cannot_mend_is_not_tried_again(make: Any) -> None:
    on = make("10.16.1")
    attempts = [{"flags": [], "gives_up": ""}] * 3
    with pytest.raises(DeviceError) as failed:
        on.run(toys.request(toys.engine(attempts=attempts)))
    assert failed.value.code == "build.no-dla"
    log = (on.context.folder / "log.txt").read_text()
    assert "attempt 0" not in log


def test_a_job_that_is_cancelled_leaves_no_engine(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = make("10.3.0")
    real = EngineBuild.engine

    def cancel(build: Any, *given: Any) -> Any:
        (build.context.folder / "cancel").touch()
        return real(build, *given)

    monkeypatch.setattr(EngineBuild, "engine", cancel)
    with pytest.raises(JobCancelled):
        on.run(toys.request())
    retained = (on.context.folder / "blobs.txt").read_text().split()
    assert not any(on.blob(digest).startswith(b"ftrt") for digest in retained)


def test_a_builder_that_dies_is_a_failed_attempt(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = make("10.3.0")
    real = engine.build_attempt

    def dies(trt: Any, log: Any, spec: Any, attempt: Any, **more: Any) -> Any:
        if "VERSION_COMPATIBLE" in attempt.flags:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(trt, log, spec, attempt, **more)

    monkeypatch.setattr(engine, "build_attempt", dies)
    attempts = [{"flags": f, "gives_up": "something"} for f in (["VERSION_COMPATIBLE"], [])]
    (entry,) = on.run(toys.request(toys.engine(attempts=attempts)))["engines"]
    assert entry["attempt"] == 1
    assert "SIGKILL" in entry["attempts"][0]["error"]
    assert [one["code"] for one in entry["attempts"]] == ["build.crashed", None]


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (
            "Error Code 10: Internal Error (Could not find any implementation for node conv1)",
            "build.attempt",
        ),
        ("Error Code 2: OutOfMemory (Requested size was 1073741824 bytes.)", "build.no-memory"),
    ],
)
def test_an_attempts_code_distinguishes_a_refusal_from_a_lack_of_memory(
    make: Any, monkeypatch: pytest.MonkeyPatch, broken: str, code: str
) -> None:
    on = make("10.3.0")
    real = engine.build_attempt

    def short(trt: Any, log: Any, spec: Any, attempt: Any, **more: Any) -> Any:
        trt._double.settings.broken = broken if attempt.flags else ""
        return real(trt, log, spec, attempt, **more)

    monkeypatch.setattr(engine, "build_attempt", short)
    attempts = [{"flags": f, "gives_up": "something"} for f in (["VERSION_COMPATIBLE"], [])]
    (entry,) = on.run(toys.request(toys.engine(attempts=attempts)))["engines"]
    assert [one["code"] for one in entry["attempts"]] == [code, None]


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.4.0"])
def test_a_plan_with_plugins_is_for_its_own_release(make: Any, version: str) -> None:
    on, model = make(version), toys.plugin_onnx()
    roi = {
        "name": "roi",
        "builder_name": "roi",
        "nodes": ["roi"],
        "kind": "PLUGIN_V2",
        "device": "GPU",
        "precision": "fp32",
    }
    flags = ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"]
    given = toys.engine(
        model=toys.sha(model),
        device="GPU",
        gpu_fallback=False,
        pools={},
        precisions=[],
        typing="strong" if version.startswith("11") else "weak",
        calibration=None,
        layers=[roi],
        outputs=[toys.io("y", [1, 3, 2, 2])],
        attempts=[{"flags": f, "gives_up": "x" * (not f)} for f in (flags, [])],
    )
    (entry,) = on.run(toys.request(given), model)["engines"]
    assert [one["code"] for one in entry["attempts"]] == ["build.plugins", None]
    assert "libnvinfer_vc_plugin.so" in entry["attempts"][0]["error"]
    assert not entry["version_compatible"]
    assert on.offences() == []


def test_a_plan_that_cannot_be_refitted_is_built_with_its_weights(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any, **more: Any) -> None:
        raise DeviceError("only 3 weights of 4 were refitted", code="refit.mismatch")

    on = make("10.3.0")
    monkeypatch.setattr("edgekit_device.build.inspection.refit", never)
    attempts = [
        {"flags": [*x.flags], "gives_up": x.gives_up}
        for x in decide(requested_build(dla=False)).plans
    ]
    layers = [toys.layer(name, "GPU") for name in (*toys.ON_DLA, *toys.ON_GPU)]
    given = toys.engine(
        device="GPU", gpu_fallback=False, pools={}, layers=layers, attempts=attempts
    )
    result = on.run(toys.request(given))
    (entry,) = result["engines"]
    assert [one["code"] for one in entry["attempts"]] == ["refit.mismatch", None]
    assert not entry["stripped"]
    assert any("keeps its weights" in note for note in result["notes"])


def test_blobs_that_are_not_there_are_reported_before_anything_starts(make: Any) -> None:
    on = make("10.3.0")
    with pytest.raises(DeviceError) as failed:
        on.run(toys.request(toys.engine(calibration="0" * 64)))
    assert (failed.value.code, failed.value.where) == ("blob.missing", "engines[lane0]")


def test_a_board_without_tensorrt_says_so(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on = make("10.3.0")
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(DeviceError) as failed:
        on.run(toys.request())
    assert failed.value.code == "build.no-tensorrt"


def test_the_childs_own_failures_come_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def wrong(tell: Any) -> dict[str, Any]:
        raise ValueError("odd")

    with toys.job(tmp_path, toys.request()) as context:
        with pytest.raises(DeviceError, match="ValueError: odd") as failed:
            run_isolated(context, wrong)
        assert failed.value.code == "loader.internal"
        assert "Traceback" in capfd.readouterr().err  # a job's is its log
        assert run_isolated(context, lambda tell: {"pid": os.getpid()})["pid"] != os.getpid()
