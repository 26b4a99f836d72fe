"""Engines built by TensorRT on a board: the double behind a real sshd, from model to bench."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from edgekit.config.loader import open_config
from edgekit.deployment.embedded_sshd import sshd
from edgekit.errors import BoardError, GateError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from tests.boards.fixtures import need_sshd
from tests.edgekit_device.cuda.cudla_host_cuda import build_stub
from tests.pipeline.nets import small_config, small_net
from tests.trt_double.board import board_python, offences

BOARD = (
    "    - {{name: {name}, host: {b.host}, port: {b.port}, user: {b.user}, key: {b.key}, "
    'host_key: "{b.host_key}", root: {root}, python: {python}}}\n'
)


@contextmanager
def board(tmp_path, version, *, names=("lab",), cudla=False, **settings):
    """A board with a TensorRT; the configuration's deploy section, and its python."""
    need_sshd()
    python = board_python(tmp_path / "python", version, **settings)
    own = []
    if cudla:
        own.append(f"export EDGEKIT_CUDLA={build_stub(python.parent)}")
        own.append(f"export EDGEKIT_CUDLA_STUB_LOG={python.parent / 'cudla.txt'}")
    python.write_text(python.read_text().replace("exec ", "\n".join([*own, "exec "])))
    with sshd(tmp_path / "board") as server:
        rows = [
            BOARD.format(name=name, b=server.board, root=tmp_path / name, python=python)
            for name in names
        ]
        yield "deploy:\n  boards:\n" + "".join(rows), python
    assert offences(python) == []


def config_of(tmp_path, deploy, tensorrt, build, **options):
    path = small_config(tmp_path / "config", extra=deploy, **options)
    path.write_text(path.read_text() + f'tensorrt: "{tensorrt}"\nbuild: {build}\n')
    return path


def jobs(tmp_path, name="lab"):
    """The builds of a board; deployments are jobs too."""
    found = (tmp_path / name).glob("jobs/*/request.json")
    return [path for path in found if json.loads(path.read_text())["kind"] == "build"]


def known(pipeline):
    """Makes the boards ones of which everything is known; this machine is no Jetson."""
    for client in pipeline.boards.clients():
        fingerprint = pipeline.boards.probe(client).fingerprint
        fingerprint.update(module="AGX Orin", l4t="36.4.3", tensorrt="10.3.0.30")


def pipeline(path, tmp_path, **options):
    return Pipeline(open_config(path), out=tmp_path / "out", trust_key=True, **options)


@pytest.mark.boards
@pytest.mark.slow
def test_a_board_builds_serves_and_refits(tmp_path):
    with board(tmp_path, "10.3.0") as (deploy, _):
        memory = "  memory: {persistent_cache: 0.5}\n"
        path = config_of(tmp_path, deploy + memory, "10.3", "{refit: any}")
        with pipeline(path, tmp_path) as one:
            document = one.run().document.to_json()
        assert document["backend"] == "tensorrt"
        assert document["refit"]["bit_equal"]
        assert document["bench"]["clock"] == "board-measured"
        manifest = json.loads(
            next((tmp_path / "lab/apps").glob("*/current/manifest.json")).read_text()
        )
        (engine,) = manifest["engines"].values()
        assert engine["stripped"]
        assert engine["version_compatible"]
        assert engine["dla_core"] == 0
        assert "conv1.w" in manifest["weights"]
        assert manifest["memory"] == {"persistent_cache": 0.5}
        assert engine["device_bytes"] > 0
        loaded = sum(blob["bytes"] for blob in manifest["weights"].values()) + sum(
            blob["bytes"] for blob in manifest["blobs"].values() if blob["kind"] == "engine"
        )
        assert manifest["requires"]["memory_bytes"] >= loaded + engine["device_bytes"]
        # the same again is answered from what is kept: no second job
        with pipeline(path, tmp_path) as two:
            steps = {step["name"]: step["status"] for step in two.build().to_json()["steps"]}
        assert steps["build"] == "reused"
        assert len(jobs(tmp_path)) == 1
        # another host, which knows nothing, is answered by the board
        with pipeline(path, tmp_path, cache=Cache(tmp_path / "fresh")) as elsewhere:
            again = elsewhere.build().to_json()["boards"]
        assert len(jobs(tmp_path)) == 1
        assert again[0]["job"] == document["built"][0]["job"]
        other = tmp_path / "other.onnx"
        small_net(other, seed=0, scale=1.01)
        with pipeline(path, tmp_path) as three:
            refitted = three.refit(other).to_json()
        assert refitted["changed"] >= 1
        assert refitted["releases"][0]["release"] != document["releases"][0]["release"]


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("version", "tensorrt"),
    [("8.6.1", "8.6"), ("11.4.0", "11.4.1")],
    ids=["8.6", "11.4 with Q/DQ nodes"],
)
def test_builds_are_compared_with_the_plan(tmp_path, version, tensorrt):
    # the DLA is supported from 11.4.1 on, whose names are those of 11.4.0
    options = {"called": "11.4.1.1"} if version == "11.4.0" else {}
    with board(tmp_path, version, **options) as (deploy, _):
        path = config_of(tmp_path, deploy, tensorrt, "{}")
        with pipeline(path, tmp_path) as one:
            document = one.build().to_json()
    (built,) = document["boards"]
    assert built["tensorrt"].startswith(tensorrt[:4])
    assert built["plan"]["same"], built["plan"]["differences"]
    (engine,) = built["plan"]["engines"]
    assert engine["placement"]["loadables"]["builder"] == 1
    # 8.6 has no strip
    assert built["engines"][0]["stripped"] == (version != "8.6.1")
    dropped = any("build.strip is not used" in note for note in document["notes"])
    assert dropped == (not built["engines"][0]["stripped"])


@pytest.mark.whole
@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "devices"),
    [
        ("{mode: split}", ["GPU", "DLA0", "GPU"]),
        ("{mode: standalone}", ["DLA0"]),
    ],
    ids=["split", "standalone"],
)
def test_loadables_run_through_cudla(tmp_path, build, devices):
    with board(tmp_path, "10.3.0", cudla=True) as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", build)
        if len(devices) == 1:  # what follows is a 2-D output, which no DLA has
            whole = "model: {onnx: small.onnx}"
            part = "model: {onnx: small.onnx, outputs: [r2]}"
            path.write_text(path.read_text().replace(whole, part))
        with pipeline(path, tmp_path) as one:
            document = one.run().document.to_json()
            segments = one.build().segments
    assert [segment.device for segment in segments] == devices
    assert document["refit"]["bit_equal"]
    assert document["bench"]["clock"] == "board-measured"
    calls = (tmp_path / "python" / "cudla.txt").read_text()
    assert "cudlaSubmitTask" in calls
    assert "WRONG" not in calls
    built = document["built"][0]
    assert [one["key"].rpartition("segment")[2] for one in built["engines"]] == [
        str(number) for number in range(len(devices))
    ]
    assert built["plan"]["same"], built["plan"]["differences"]


@pytest.mark.whole
@pytest.mark.boards
def test_a_build_that_differs_is_reported_and_fails_when_strict(tmp_path):
    with board(tmp_path, "10.3.0", gpu_only=["conv2"]) as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{}")
        with pipeline(path, tmp_path) as one:
            document = one.build().to_json()
        (reported,) = document["boards"]
        assert not reported["plan"]["same"]
        assert any("conv2" in text for text in document["notes"])
        strict = config_of(tmp_path, deploy, "10.3", "{strict: true}")
        with pipeline(strict, tmp_path) as two, pytest.raises(GateError) as caught:
            two.build()
    assert caught.value.code == "build.differs"
    reported = reported["plan"]["differences"]
    assert len(reported) > 1
    assert all(difference in str(caught.value) for difference in reported)


@pytest.mark.whole
@pytest.mark.boards
def test_flags_that_fail_are_done_without_and_not_tried_again(tmp_path):
    failing = [["DLA", "VERSION_COMPATIBLE"]]
    with board(tmp_path, "10.3.0", failing=failing) as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{}")
        with pipeline(path, tmp_path) as one:
            known(one)
            document = one.build().to_json()
        (engine,) = document["boards"][0]["engines"]
        assert engine["attempt"] > 0
        assert not engine["version_compatible"]
        assert any("version compatibility" in note for note in document["notes"])
        # other weights, so another build: it begins with what went through
        small_net(tmp_path / "config" / "small.onnx", seed=5)
        with pipeline(path, tmp_path) as two:
            known(two)
            (engine,) = two.build().to_json()["boards"][0]["engines"]
        assert [attempt["ok"] for attempt in engine["attempts"]] == [True]
        with pipeline(path, tmp_path, force=True) as three:
            known(three)
            (engine,) = three.build().to_json()["boards"][0]["engines"]
        assert [attempt["ok"] for attempt in engine["attempts"]] == [False, True]


@pytest.mark.whole
@pytest.mark.boards
def test_one_board_builds_for_all_that_are_like_it(tmp_path):
    with board(tmp_path, "10.3.0", names=("left", "right")) as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{}")
        with pipeline(path, tmp_path) as one:
            known(one)
            document = one.build().to_json()
        assert [built["board"] for built in document["boards"]] == ["left"]
        assert not jobs(tmp_path, "right")
        # boards of which it is not known build for themselves
        with pipeline(path, tmp_path) as two:
            for client in two.boards.clients():
                two.boards.probe(client).fingerprint["module"] = ""
            document = two.build().to_json()
        assert [built["board"] for built in document["boards"]] == ["left", "right"]


@pytest.mark.boards
def test_a_board_that_was_not_planned_for_is_refused_before_anything_is_sent(tmp_path):
    with board(tmp_path, "10.7.0") as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{}")
        with pipeline(path, tmp_path) as one, pytest.raises(BoardError) as caught:
            one.build()
        assert caught.value.code == "board.other-tensorrt"
        assert "tensorrt: 10.7" in caught.value.hint
        assert not jobs(tmp_path)
