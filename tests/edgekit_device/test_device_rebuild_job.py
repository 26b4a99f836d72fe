"""A build that takes its board with it is not tried at each load for ever."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit_device import DeviceError, _rebuild_job
from edgekit_device._jobs import Job
from edgekit_device._rebuild_job import MOST_TRIES, TRIES, run_build
from edgekit_device._retested import remembering
from edgekit_device._root import Root

RESULT = {"engines": []}


class Board:
    """A board whose build job ends as a test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = Root(folder / "root")
        self.home = folder / "root/rebuilt"
        self.home.mkdir(parents=True)
        self.started = 0
        self.end: dict[str, Any] = {"state": "running"}
        files = SimpleNamespace(root=self.root, where="net/000001")
        rebuild = SimpleNamespace(request="0" * 64)
        self.checked: Any = SimpleNamespace(files=files, manifest=SimpleNamespace(rebuild=rebuild))
        monkeypatch.setattr(_rebuild_job, "read_checked", lambda checked, digest: b"{}")
        monkeypatch.setattr(_rebuild_job, "do_job_start", self.start)

    def start(self, root: Root, arguments: Any, stdin: Any) -> dict[str, Any]:
        assert json.loads(stdin.read())["kind"] == "build"
        # a power cut from here on finds the try counted
        assert json.loads((self.home / TRIES).read_text())["tries"] <= MOST_TRIES
        job = Job(root, f"{self.started:016x}")
        self.started += 1
        if isinstance(self.end.get("raises"), DeviceError):
            raise self.end["raises"]
        job.folder.mkdir(parents=True)
        (job.folder / "lock").touch()
        job.write(job=job.name, **self.end)  # "running" without a process: it was killed
        if self.end["state"] == "done":
            (job.folder / "result.json").write_text(json.dumps(RESULT))
        return {"job": job.name, "state": "running", "reused": False, "joined": False}

    def build(self, **options: Any) -> str:
        try:
            assert run_build(self.checked, self.home, **options) == RESULT
        except DeviceError as error:
            return error.code
        return "built"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return Board(tmp_path, monkeypatch)


def test_a_build_that_is_killed_each_time_is_given_up(board: Board) -> None:
    assert [board.build() for _ in range(MOST_TRIES + 3)] == [
        *["job.lost"] * MOST_TRIES, *["build.cut-off"] * 3,
    ]  # fmt: skip
    assert board.started == MOST_TRIES
    # a deployment tries anew, and counts anew
    assert [board.build(anew=True), board.build(), board.build(), board.build()] == [
        "job.lost", "job.lost", "job.lost", "build.cut-off",
    ]  # fmt: skip


def test_the_release_keeps_that_it_was_given_up(board: Board, tmp_path: Path) -> None:
    now = {"backend": "tensorrt", "tensorrt": "10.7.0"}

    def load() -> Any:
        return remembering(tmp_path, now, "tensorrt", "net", lambda: run_build(board.checked, board.home))  # type: ignore[return-value]  # fmt: skip # noqa: E501

    for code in [*["job.lost"] * MOST_TRIES, "board.changed"]:
        with pytest.raises(DeviceError) as caught:
            load()
        assert caught.value.code == code
    assert "cut off 3 times" in caught.value.message


@pytest.mark.parametrize(
    "end",
    [
        {"state": "cancelled"},
        {"state": "failed", "error": {"code": "job.terminated", "message": "shut down"}},
        {"state": "failed", "error": {"code": "board.disk-full", "message": "full"}},
        {"raises": DeviceError("it did not start", code="job.not-started")},
    ],
)
def test_what_is_not_the_builds_fault_does_not_count(board: Board, end: dict[str, Any]) -> None:
    board.end = end
    codes = {board.build() for _ in range(MOST_TRIES + 2)}
    assert codes & {"job.cancelled", "job.terminated", "board.disk-full", "job.not-started"}
    assert board.started == MOST_TRIES + 2
    board.end = {"state": "done"}
    assert board.build() == "built"


def test_a_last_try_that_was_done_after_all_counts_as_done(board: Board) -> None:
    for _ in range(MOST_TRIES):
        board.build()
    # its load was killed, and the job went on to its end
    Job(board.root, f"{board.started - 1:016x}").write(state="done")
    board.end = {"state": "done"}
    assert board.build() == "built"
