"""``edgekit doctor`` and ``edgekit jobs`` as a user calls them, at a board on loopback."""

from __future__ import annotations

import fcntl
import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.cli.main import app
from edgekit.errors import BoardError, UsageError
from edgekit_device.jobs.job import Job
from edgekit_device.protocol.failure import Failure
from edgekit_device.store.root import Root
from tests.boards.fixtures import StartBoard, boards, home
from tests.trt_double.board import board_python, offences

__all__ = ["boards", "home"]
pytestmark = pytest.mark.boards

ID = "0123456789abcdef"


@pytest.fixture
def lab(boards: StartBoard, home: Path, tmp_path: Path) -> list[str]:
    """Options that reach a board called "lab" in ~/.ssh/config."""
    server = boards(tmp_path / "board")
    known = server.board
    (home / ".ssh/config").write_text(
        f"Host lab\nHostName {known.host}\nPort {known.port}\nUser {known.user}\n"
        f"IdentityFile {known.key}\nIdentitiesOnly yes\n"
    )
    return ["lab", "--accept-host-key", f"--root={tmp_path}/board", f"--python={sys.executable}"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that failed."""
    job = Job(Root(tmp_path / "board"), ID)
    job.folder.mkdir(parents=True)
    error = Failure("build.failed", "no tactic", "", "x")
    job.write(job=ID, kind="build", name="net", state="failed", started_at=2.0, error=error)
    (job.folder / "log.txt").write_bytes(b"first line\nlast line\n")
    return job


def test_doctor_as_a_table_and_as_json(lab: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["doctor", *lab]) == 0
    text = capsys.readouterr().out
    assert "NumPy" in text
    assert "Supports: backends reference" in text
    assert app(["doctor", *lab, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "edgekit.doctor/1"
    assert document["probe"]["schema"] == "edgekit.probe/1"


def test_jobs_are_listed_read_followed_and_removed(
    lab: list[str], job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app(["jobs", *lab]) == 0
    assert f"{ID}  failed" in capsys.readouterr().out
    assert app(["jobs", "list", *lab, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["boards"][0]["jobs"][0]["job"] == ID
    assert app(["jobs", "log", "0123", *lab]) == 0
    assert capsys.readouterr().out == "first line\nlast line\n"
    assert app(["jobs", "log", "0123", *lab, "--tail", "10"]) == 0
    assert capsys.readouterr().out == "last line\n"
    with pytest.raises(BoardError, match="no tactic"):
        app(["jobs", "attach", ID, *lab])
    assert app(["jobs", "cancel", ID, *lab]) == 0
    assert "failed" in capsys.readouterr().out
    assert app(["jobs", "remove", ID, *lab]) == 0
    with pytest.raises(BoardError, match="no such job"):
        app(["jobs", "log", ID, *lab])
    assert not job.folder.exists()


def test_ctrl_c_leaves_an_attached_job_and_the_command_it_names_comes_back(
    lab: list[str], job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write(state="running", error=None)
    event = {"time": 3.0, "phase": "tactics", "done": 1, "total": 2, "text": "conv1"}
    (job.folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    with (job.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the job's own process does
        argv = [sys.executable, "-m", "edgekit", "jobs", "attach", ID, *lab]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as attached:
            assert attached.stderr
            until_reported = next(line for line in attached.stderr if "tactics" in line)
            attached.send_signal(signal.SIGINT)
            reported = until_reported + attached.stderr.read()
        assert attached.returncode == 130
        assert app(["jobs", *lab]) == 0
        assert f"{ID}  running" in capsys.readouterr().out
    assert "FAILED" not in reported
    command = re.search(r"follow it again with: edgekit (.*)", reported)
    assert command
    (job.folder / "result.json").write_text('{"made": 1}')
    job.write(state="done")
    assert app(shlex.split(command[1])) == 0
    assert capsys.readouterr().out == f"{ID} on lab: done\n"


@pytest.mark.whole
@pytest.mark.slow
def test_doctor_s_selftest_writes_the_answers(
    lab: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = board_python(tmp_path / "python", "10.3.0")
    argv = ["doctor", *lab[:-1], f"--python={python}", "--selftest", "-o", str(tmp_path / "a.json")]
    assert app(argv) == 0
    reported = capsys.readouterr()
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["schema"] == "edgekit.selftest/1"
    counts = document["counts"]
    assert f"lab: {counts['answered']} answered" in reported.out
    failed = [item["id"] for item in document["items"] if item["status"] == "failed"]
    assert "tegrastats-dla" in failed
    assert reported.out.splitlines()[-1].endswith(": " + ", ".join(failed))
    assert offences(python) == []
    assert app([*argv, "--json"]) == 0  # answered from the board, one document
    again = json.loads(capsys.readouterr().out)
    assert again.pop("file") == str(tmp_path / "a.json")
    assert {**document, "ok": True} == again


def test_undo_alone_makes_no_sense(home: Path) -> None:
    with pytest.raises(UsageError, match="--setup"):
        app(["doctor", "lab", "--undo"])
