"""Jobs on a board: detached, queued, watched, cancelled, killed and lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit_device.jobs.job import LIVE, Job
from edgekit_device.store.root import Root
from tests.boards.toy_jobs import gone, request, toy_loader, until
from tests.edgekit_device.device_board import BoardFolder, Refused
from tests.processes import processes


@pytest.fixture(scope="session")
def toy_pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_loader(tmp_path_factory.mktemp("toy") / "edgekit_device.pyz")


@pytest.fixture
def lab(tmp_path: Path, toy_pyz: Path) -> Iterator[BoardFolder]:
    board = BoardFolder(tmp_path / "root", toy_pyz)
    yield board
    for job in jobs(board):
        if job["state"] in LIVE:
            board.command("job-cancel", "--job", job["job"], "--grace-s=0")


def jobs(board: BoardFolder) -> list[dict[str, Any]]:
    return list(board.command("job-list")["jobs"])


def start(board: BoardFolder, *steps: list[Any], name: str = "net") -> dict[str, Any]:
    document = {"kind": "build", "request": request(*steps, name=name)}
    return board.command("job-start", stdin=json.dumps(document).encode())


def state(board: BoardFolder, job: str) -> str:
    """What ``job-list`` says, asked without a process."""
    return Job(Root(board.root), job).read().state


def ended(board: BoardFolder, job: str) -> str:
    """Waits for the job's end."""
    return str(until(lambda: found if (found := state(board, job)) not in LIVE else None))


def log(board: BoardFolder, job: str) -> str:
    head, _, data = board.raw("job-log", "--job", job).partition(b"\n")
    assert json.loads(head)["size"] == len(data)
    return data.decode()


def refused(board: BoardFolder, command: str, *options: str, stdin: bytes = b"") -> Refused:
    with pytest.raises(Refused) as caught:
        board.raw(command, *options, stdin=stdin)
    return caught.value


def workers(board: BoardFolder, job: str) -> list[int]:
    """Processes of the job, its supervisor and its work."""
    return sorted(processes("job-run", board.root, job))


def test_a_job_does_its_work_and_the_same_one_is_answered_from_the_board(lab: BoardFolder) -> None:
    steps = [["progress", "parse", 1, 1], ["store", "engine", 1], ["log", "built"]]
    first = start(lab, *steps)
    assert (first["reused"], first["joined"]) == (False, False)
    assert ended(lab, first["job"]) == "done"
    result = lab.command("job-result", "--job", first["job"])
    assert lab.blob(result["made"][0]).read_bytes() == b"engine"
    again = start(lab, *steps)
    assert again == {"job": first["job"], "state": "done", "reused": True, "joined": False}
    assert log(lab, first["job"]) == "built\n"
    (row,) = jobs(lab)
    assert (row["kind"], row["name"], row["phase"]) == ("build", "net", "parse")
    assert row["queued_at"] <= row["started_at"] <= row["ended_at"]


def test_another_request_is_another_job_and_a_lost_blob_is_built_again(lab: BoardFolder) -> None:
    first, other = start(lab, ["store", "engine", 1]), start(lab, ["store", "Engine", 1])
    assert first["job"] != other["job"]
    assert ended(lab, first["job"]) == ended(lab, other["job"]) == "done"
    lab.blob(lab.command("job-result", "--job", first["job"])["made"][0]).unlink()
    again = start(lab, ["store", "engine", 1])
    assert (again["job"], again["reused"]) == (first["job"], False)
    assert ended(lab, first["job"]) == "done"


def test_two_hosts_join_one_job(lab: BoardFolder, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    answers: list[dict[str, Any]] = []
    both = [
        threading.Thread(target=lambda: answers.append(start(lab, ["wait", str(gate)])))
        for _ in range(2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert answers[0]["job"] == answers[1]["job"]
    assert sorted(answer["joined"] for answer in answers) == [False, True]
    until(lambda: state(lab, answers[0]["job"]) == "running")
    gate.touch()
    assert ended(lab, answers[0]["job"]) == "done"


def test_one_job_runs_at_a_time_the_oldest_first(lab: BoardFolder, tmp_path: Path) -> None:
    gates = [tmp_path / str(number) for number in range(3)]
    ids = [start(lab, ["wait", str(gate)], name=gate.name)["job"] for gate in gates]
    for number, job in enumerate(ids):
        until(lambda job=job: state(lab, job) == "running")
        assert [state(lab, other) for other in ids[number + 1 :]] == ["queued"] * (2 - number)
        gates[number].touch()
        assert ended(lab, job) == "done"
    events = lab.command("job-watch", "--job", ids[2])["events"]
    assert [event["phase"] for event in events] == ["queue"]


def test_failures_keep_their_words_and_start_again(lab: BoardFolder) -> None:
    failing = start(lab, ["print", "on its way"], ["fail", "build.failed"])
    assert ended(lab, failing["job"]) == "failed"
    error = refused(lab, "job-result", "--job", failing["job"])
    assert (error.code, error.message, error.where, error.hint) == (
        "build.failed",
        "it failed",
        "layer",
        "do better",
    )
    assert log(lab, failing["job"]) == "on its way\n"
    assert not (lab.root / "jobs" / failing["job"] / "result.json").exists()
    again = start(lab, ["print", "on its way"], ["fail", "build.failed"])
    assert (again["job"], again["reused"]) == (failing["job"], False)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("step", "code", "says"),
    [
        (["crash", "SIGSEGV"], "job.crashed", "SIGSEGV"),
        (["crash", "SIGKILL"], "job.crashed", "SIGKILL"),
        (["trouble"], "loader.internal", "what nobody expected"),
    ],
)
def test_a_crash_of_the_work_is_reported(
    lab: BoardFolder, step: list[str], code: str, says: str
) -> None:
    job = start(lab, ["store", "half", 1], step)["job"]
    assert ended(lab, job) == "failed"
    error = refused(lab, "job-result", "--job", job)
    assert error.code == code
    assert says in error.message
    start(lab, ["log", "next"])
    assert not (lab.root / "jobs" / job / "result.json").exists()


def test_cancelling_ends_the_work_and_all_that_it_started(lab: BoardFolder, tmp_path: Path) -> None:
    job = start(lab, ["child"], ["wait", str(tmp_path / "never")])["job"]
    text = until(lambda: log(lab, job))
    child = int(text.split()[-1])
    assert lab.command("job-cancel", "--job", job)["state"] == "cancelled"
    assert refused(lab, "job-result", "--job", job).code == "job.cancelled"
    until(lambda: gone(child))
    until(lambda: workers(lab, job) == [])  # the state is told before the last one has gone
    assert lab.command("job-cancel", "--job", job)["state"] == "cancelled"


def test_work_that_does_not_listen_is_killed(lab: BoardFolder) -> None:
    job = start(lab, ["deaf"])["job"]
    assert lab.command("job-watch", "--job", job, "--wait-s=30")["events"]
    assert lab.command("job-cancel", "--job", job, "--grace-s=0.1")["state"] == "cancelled"
    until(lambda: workers(lab, job) == [])  # the state is told before the last one has gone


def test_a_waiting_job_is_cancelled_and_the_next_one_runs(lab: BoardFolder, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = start(lab, ["wait", str(gate)])["job"]
    until(lambda: state(lab, first) == "running")
    second, third = (start(lab, ["log", name])["job"] for name in "ab")
    assert lab.command("job-cancel", "--job", second)["state"] == "cancelled"
    gate.touch()
    assert ended(lab, third) == "done"
    assert log(lab, second) == ""


def test_a_killed_board_leaves_a_lost_job_that_starts_again(
    lab: BoardFolder, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    steps = [["store", "first", 1], ["wait", str(gate)], ["store", "second", 1]]
    job = start(lab, *steps)["job"]
    until(lambda: len(workers(lab, job)) == 2)
    until((lab.root / "jobs" / job / "blobs.txt").exists)
    for pid in workers(lab, job):
        os.kill(pid, signal.SIGKILL)
    until(lambda: state(lab, job) == "lost")
    assert refused(lab, "job-result", "--job", job).code == "job.lost"
    gate.touch()
    again = start(lab, *steps)
    assert (again["job"], again["joined"], again["reused"]) == (job, False, False)
    assert ended(lab, job) == "done"
    assert len(lab.command("job-result", "--job", job)["made"]) == 2


def test_work_outlives_its_supervisor_and_can_still_be_cancelled(
    lab: BoardFolder, tmp_path: Path
) -> None:
    job = start(lab, ["wait", str(tmp_path / "never")], ["deaf"])["job"]
    first, _ = until(lambda: found if len(found := workers(lab, job)) == 2 else None)
    os.kill(first, signal.SIGKILL)
    assert state(lab, job) == "running"
    assert lab.command("job-cancel", "--job", job, "--grace-s=0.1")["state"] == "cancelled"
    until(lambda: workers(lab, job) == [])  # the state is told before the last one has gone


def test_work_that_ends_without_its_supervisor_is_done(lab: BoardFolder, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    steps = [["store", "engine", 1], ["wait", str(gate)]]
    job = start(lab, *steps)["job"]
    first, _ = until(lambda: found if len(found := workers(lab, job)) == 2 else None)
    os.kill(first, signal.SIGKILL)
    gate.touch()
    assert ended(lab, job) == "done"
    (row,) = jobs(lab)
    assert (row["state"], row["error"]) == ("done", None)
    assert row["started_at"] <= row["ended_at"]
    assert len(lab.command("job-result", "--job", job)["made"]) == 1
    assert start(lab, *steps)["reused"]


def test_an_os_error_of_the_work_leaves_its_traceback_in_the_log(lab: BoardFolder) -> None:
    job = start(lab, ["open", "/nowhere/at/all"])["job"]
    assert ended(lab, job) == "failed"
    assert refused(lab, "job-result", "--job", job).code == "board.io"
    text = log(lab, job)
    assert "Traceback" in text
    assert "'/nowhere/at/all'" in text


def test_watching_ends_with_the_news(lab: BoardFolder, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = start(lab, ["wait", str(gate)], ["progress", "last", 1, 1])["job"]
    until(lambda: state(lab, job) == "running")
    seen: list[dict[str, Any]] = []
    watching = threading.Thread(
        target=lambda: seen.append(lab.command("job-watch", "--job", job, "--wait-s=600"))
    )
    watching.start()
    gate.touch()
    watching.join(300.0)
    assert seen[0]["events"][0]["phase"] == "last"
    news = lab.command("job-watch", "--job", job, "--after=1", "--wait-s=600")
    assert (news["state"], news["events"]) == ("done", [])


def test_a_collection_leaves_what_jobs_need(lab: BoardFolder, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    model, stray = b"model", b"stray"
    names = [hashlib.sha256(data).hexdigest() for data in (model, stray)]
    lab.send(dict(zip(names, (model, stray), strict=True)))
    job = start(lab, ["store", "engine", 1], ["wait", str(gate)], ["read", names[0]])["job"]
    until((lab.root / "jobs" / job / "blobs.txt").exists)
    until(lambda: lab.blob(hashlib.sha256(b"engine").hexdigest()).exists())
    assert lab.command("gc", "--grace-s=0")["removed_blobs"] == 1
    assert not lab.blob(names[1]).exists()
    gate.touch()
    assert ended(lab, job) == "done"
    made = lab.command("job-result", "--job", job)["made"]
    assert made[1] == "model"
    # the request's blobs may go once it is done, its result's stay
    assert lab.command("gc", "--grace-s=0")["removed_blobs"] == 1
    assert lab.blob(made[0]).exists()
    assert lab.command("job-remove", "--job", job) == {"removed": [job]}
    assert lab.command("gc", "--grace-s=0")["removed_blobs"] == 1
    assert jobs(lab) == []


def test_the_newest_16_jobs_that_ended_are_kept_of_whatever_application(lab: BoardFolder) -> None:
    first = start(lab, ["log", "x"], name="removed")["job"]
    assert ended(lab, first) == "done"
    folder = lab.root / "jobs"
    for number in range(20):
        copied = folder / f"{number:016x}"
        shutil.copytree(folder / first, copied)
        os.utime(copied / "state.json", (1e9 + number, 1e9 + number))
    assert len(jobs(lab)) == 21
    last = start(lab, ["log", "y"], name="other")["job"]
    assert ended(lab, last) == "done"
    kept = until(lambda: found if len(found := jobs(lab)) == 16 else None)
    oldest = {f"{number:016x}" for number in range(6, 20)}
    assert {job["job"] for job in kept} == {first, last, *oldest}


def test_jobs_that_make_no_sense_are_refused(lab: BoardFolder, tmp_path: Path) -> None:
    for text in (b"[]", b'{"kind": "build"}', b"x"):
        assert refused(lab, "job-start", stdin=text).code == "protocol.invalid"
    unknown = b'{"kind": "dance", "request": {}}'
    assert refused(lab, "job-start", stdin=unknown).code == "job.kind"
    for name in ("0123456789abcdef", "../../etc", ""):
        assert refused(lab, "job-watch", "--job", name).code == "job.unknown"
    job = start(lab, ["wait", str(tmp_path / "never")])["job"]
    assert refused(lab, "job-remove", "--job", job).code == "job.running"
    assert refused(lab, "job-result", "--job", job).code == "job.unfinished"


def test_a_damaged_state_is_a_lost_job(lab: BoardFolder) -> None:
    job = start(lab, ["log", "x"])["job"]
    ended(lab, job)
    (lab.root / "jobs" / job / "state.json").write_text('{"state": "runn')
    assert state(lab, job) == "lost"
    assert start(lab, ["log", "x"])["reused"] is False
    assert ended(lab, job) == "done"


def test_fetch_gives_blobs_or_nothing(lab: BoardFolder) -> None:
    job = start(lab, ["store", "engine", 3], ["store", "log", 1])["job"]
    ended(lab, job)
    made = lab.command("job-result", "--job", job)["made"]
    data = lab.raw("fetch", stdin=json.dumps([*made, made[0]]).encode())
    frames = [
        json.dumps({"digest": name, "bytes": size}).encode()
        for name, size in zip(made, (18, 3), strict=True)
    ]
    assert data == frames[0] + b"\n" + b"engine" * 3 + frames[1] + b"\nlog\n"
    requested = json.dumps([made[0], "0" * 64]).encode()
    assert refused(lab, "fetch", stdin=requested).code == "blob.missing"
    assert refused(lab, "fetch", stdin=b'["../x"]').code == "protocol.invalid"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_full_at_any_level_is_called_full(
    lab: BoardFolder, exhaustive: bool
) -> None:
    lab.root.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(lab.root)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    filling = lab.root / "filling"
    try:
        # hosts put the loader there; jobs link it
        (lab.root / "bin").mkdir()
        here = shutil.copy(lab.loader, lab.root / "bin" / "edgekit_device.pyz")
        board = BoardFolder(lab.root, Path(here))
        assert ended(board, start(board, ["log", "first"])["job"]) == "done"
        codes = []
        levels = range(0, 112, 8 if exhaustive else 40)  # KiB
        for free in levels:
            with contextlib.suppress(OSError), filling.open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            os.truncate(filling, filling.stat().st_size - (free << 10))
            try:
                job = start(board, ["fill"], name=f"n{free}")["job"]
                assert ended(board, job) == "failed"
                board.command("job-result", "--job", job)
            except Refused as error:
                codes.append(error.code)
            filling.unlink()
            for path in (lab.root / "jobs").glob("*/work*"):
                path.unlink()
        assert codes == ["board.disk-full"] * len(levels)
    finally:
        until(lambda: not any(row["state"] in LIVE for row in jobs(lab)))
        subprocess.run(["umount", "-l", str(lab.root)], check=True)
