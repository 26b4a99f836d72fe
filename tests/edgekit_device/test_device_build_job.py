"""The job "build" from its request to its result, with the double as the board's TensorRT."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from edgekit_device import _build, _trt_start
from edgekit_device._build_child import isolated
from edgekit_device._errors import DeviceError
from edgekit_device._golden import golden_inputs
from edgekit_device._job import JobCancelled
from edgekit_device._types import TensorEntry
from tests.edgekit_device import build_toys as toys
from tests.trt_double import board

GOLDEN = [{"seed": 3, "inputs": {"x": {"low": -1.0, "high": 1.0}}, "lane": None}]
GPU = {"device": "GPU", "gpu_fallback": False}


class Board:
    """This process as a board with one release."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, version: str, **more: Any) -> None:
        self.folder = folder
        # for the process that tries whether TensorRT starts, and this one's children
        patch.syspath_prepend(board.SITE)
        settings = folder / "settings.json"
        settings.write_text(json.dumps({"violations": str(folder / "offences")}))
        for name, value in (
            ("TENSORRT", version),
            ("TENSORRT_FLAVOURS", "full"),
            ("TENSORRT_SETTINGS", str(settings)),
            ("CUDA", "new"),
        ):
            patch.setenv("EDGEKIT_TEST_" + name, value)
        if not more.pop("starts", False):
            patch.setattr(_trt_start, "_try", lambda name: None)
        self.double = board.install(patch, version)["full"]._double  # type: ignore[attr-defined]

    def run(self, document: dict[str, Any]) -> dict[str, Any]:
        number = len(list(self.folder.glob("job*")))
        with toys.job(self.folder / f"job{number}", document) as context:
            self.context = context
            result = _build.run(context)
        # it goes over the wire
        found: dict[str, Any] = json.loads(json.dumps(result))
        return found

    def offences(self) -> list[str]:
        file = self.folder / "offences"
        return file.read_text().splitlines() if file.exists() else []

    def blob(self, digest: str) -> bytes:
        return bytes(self.context.root.store.read(digest))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda version, **more: Board(tmp_path, monkeypatch, version, **more)


def document_for(version: str, **more: Any) -> dict[str, Any]:
    if version.startswith("11"):
        return toys.strong(**more)
    if version == "10.16.1":
        return toys.engine(**GPU, **more)
    return toys.engine(**more)


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0", "10.16.1", "11.4.0"])
def test_a_plan_is_built_looked_at_and_told(version: str, make: Any) -> None:
    on = make(version)
    document = toys.request(document_for(version), tensorrt=version)
    result = on.run(document)
    (entry,) = result["engines"]
    assert result["schema"] == "edgekit.build.result/1"
    assert entry["tensorrt"].startswith(version)
    assert (entry["attempt"], [one["ok"] for one in entry["attempts"]]) == (0, [True])
    dtype = "float16" if version.startswith("11") else "float32"
    size = np.dtype(dtype).itemsize
    x = {"name": "x", "mode": "input", "dtype": dtype, "shape": [1, 3, 8, 8], "format": "LINEAR"}
    assert entry["io"][0] == {
        **x, "strides": [192 * size, 64 * size, 8 * size, size], "scale": None
    }  # fmt: skip
    assert [io["name"] for io in entry["io"]] == ["x", "y"]
    assert len(on.blob(entry["engine"])) == entry["bytes"]
    names = json.loads(on.blob(entry["inspector"]))["Layers"]
    assert len(entry["layers"]) == len(names)
    on_dla = [one for one in entry["layers"] if one["device"] == "DLA"]
    assert len(on_dla) == (0 if version == "10.16.1" else 1)
    assert b"[GpuLayer]" in on.blob(entry["log"])
    assert on.offences() == []


@pytest.mark.parametrize("version", ["10.3.0", "11.4.0"])
def test_a_stripped_plan_is_refitted_and_gives_the_networks_own_outputs(
    version: str, make: Any
) -> None:
    on = make(version)
    attempts = [{"flags": ["STRIP_PLAN"], "gives_up": ""}]
    given = document_for(version, attempts=attempts)
    dtype = given["inputs"][0]["dtype"]
    network = {
        "inputs": [{"name": "x", "dtype": dtype, "shape": [1, 3, 8, 8]}],
        "outputs": [{"name": "y", "dtype": dtype, "shape": [1, 5]}],
    }
    result = on.run(toys.request(given, golden=GOLDEN, network=network))
    (entry,) = result["engines"]
    assert (entry["stripped"], entry["refit"]) == (True, "identical")
    assert entry["bytes"] < entry["full_bytes"] == len(on.blob(entry["full"]))
    assert {"w1", "w2", "b1", "b2"} <= set(entry["weights"])
    assert entry["weights"]["w1"] == {"dtype": dtype, "shape": [8, 3, 3, 3], "count": 216}
    (case,) = result["golden"]
    told = case["outputs"]["y"]
    found = np.frombuffer(on.blob(told["digest"]), told["dtype"]).reshape(told["shape"])
    tensor = TensorEntry("x", dtype, (1, 3, 8, 8), "LINEAR", ())
    feeds = golden_inputs([tensor], 3, {"x": (-1.0, 1.0)})
    wanted = ort.InferenceSession(toys.toy_onnx(typed=dtype)).run(["y"], feeds)[0]
    np.testing.assert_allclose(
        found.astype("float32"), wanted.astype("float32"), rtol=0.1, atol=0.02
    )
    assert np.abs(found).max() > 0
    assert on.offences() == []


def test_attempts_are_tried_in_order_and_told(make: Any) -> None:
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


def test_when_none_succeeds_each_cause_is_told(make: Any) -> None:
    on = make("10.3.0")
    on.double.settings.failing = [["STRIP_PLAN"], ["REFIT"]]
    attempts = [{"flags": [flag], "gives_up": ""} for flag in ("STRIP_PLAN", "REFIT")]
    with pytest.raises(DeviceError) as failed:
        on.run(toys.request(toys.engine(attempts=attempts)))
    assert failed.value.code == "build.failed"
    assert "(1) STRIP_PLAN: TensorRT did not build it" in failed.value.message
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


def test_loadables_and_plans_of_a_split_build(make: Any) -> None:
    on = make("10.3.0")
    first = toys.loadable("lane0.segment0")
    tail = toys.engine(
        "lane0.segment1",
        **GPU,
        outputs=[toys.io("y", [1, 5], "float32", formats=["LINEAR"])],
    )
    result = on.run(toys.request(first, tail))
    one, two = result["engines"]
    assert (one["kind"], two["kind"]) == ("loadable", "plan")
    # nothing on the board opens a loadable but cuDLA: its borders are those that were asked for
    assert [(io["format"], io["scale"]) for io in one["io"]] == [
        ("DLA_HWC4", 0.05),
        ("CHW32", 0.05),
    ]
    assert one["io"][0]["strides"] == [8 * 64, 1, 64, 4]
    assert (one["refit"], one["stripped"], one["full"], one["layers"]) == ("none", False, None, [])
    assert on.offences() == []


def test_engines_of_lanes_that_are_alike_are_built_once(make: Any) -> None:
    on = make("10.3.0")
    document = toys.request(toys.engine("lane0"), toys.engine("lane1"))
    document["lanes"] = [{"share": 0.5, "engines": ["lane0"]}, {"share": 0.5, "engines": ["lane1"]}]
    result = on.run(document)
    assert [one["key"] for one in result["engines"]] == ["lane0", "lane1"]
    assert result["engines"][0]["log"] == result["engines"][1]["log"]


def test_a_job_that_is_cancelled_leaves_no_engine(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = make("10.3.0")
    real = _build.EngineBuild.engine

    def cancel(build: Any, *given: Any) -> Any:
        (build.context.folder / "cancel").touch()
        return real(build, *given)

    monkeypatch.setattr(_build.EngineBuild, "engine", cancel)
    with pytest.raises(JobCancelled):
        on.run(toys.request())
    kept = (on.context.folder / "blobs.txt").read_text().split()
    assert not any(on.blob(digest).startswith(b"ftrt") for digest in kept)


def test_a_builder_that_dies_is_a_failed_attempt(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = make("10.3.0")
    from edgekit_device import _build_engine

    real = _build_engine.python.build_attempt

    def dies(trt: Any, log: Any, spec: Any, attempt: Any, **more: Any) -> Any:
        if "VERSION_COMPATIBLE" in attempt.flags:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(trt, log, spec, attempt, **more)

    monkeypatch.setattr(_build_engine.python, "build_attempt", dies)
    attempts = [{"flags": f, "gives_up": "something"} for f in (["VERSION_COMPATIBLE"], [])]
    (entry,) = on.run(toys.request(toys.engine(attempts=attempts)))["engines"]
    assert entry["attempt"] == 1
    assert "SIGKILL" in entry["attempts"][0]["error"]


def test_blobs_that_are_not_there_are_told_before_anything_starts(make: Any) -> None:
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


def test_another_release_than_planned_is_said(make: Any) -> None:
    on = make("10.7.0", starts=True)
    result = on.run(toys.request(tensorrt="10.3"))
    assert "planned for TensorRT 10.3, built with 10.7.0" in result["notes"]


def test_the_childs_own_failures_come_out(tmp_path: Path) -> None:
    def wrong(tell: Any) -> dict[str, Any]:
        raise ValueError("odd")

    with toys.job(tmp_path, toys.request()) as context:
        with pytest.raises(DeviceError, match="ValueError: odd") as failed:
            isolated(context, wrong)
        assert failed.value.code == "build.internal"
        assert "Traceback" in (context.folder / "log.txt").read_text()
        assert isolated(context, lambda tell: {"pid": os.getpid()})["pid"] != os.getpid()
