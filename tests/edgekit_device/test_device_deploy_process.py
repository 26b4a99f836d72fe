"""Deployments as jobs of a real loader: joined, refused, killed, timed out, resumed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.jobs.job import LIVE, Job
from edgekit_device.processes import ChildDied, ChildTooSlow, run_in_child
from edgekit_device.release.journal import claim, is_claimed
from edgekit_device.store.root import Root
from tests.boards.toy_jobs import until
from tests.edgekit_device.device_board import BoardFolder, Refused, envelope
from tests.processes import processes

QUICK = {"measure_s": 0}


def offer(board: BoardFolder, bundle: Bundle) -> dict[str, Any]:
    everything = {**bundle.weights, **bundle.blobs}
    answer = board.command("offer", stdin=envelope(bundle))
    board.send({digest: everything[digest] for digest, _ in answer["missing"]})
    return answer


def start(
    board: BoardFolder, bundle: Bundle, nonce: str, again: bool = True, **policy: Any
) -> dict[str, Any]:
    request = {
        "app": bundle.name,
        "digest": bundle.digest,
        "nonce": nonce,
        "again": again,
        "operator": "ann@desk",
        "policy": {**QUICK, **policy},
    }
    document = {"kind": "deploy", "request": request}
    return board.command("job-start", stdin=json.dumps(document).encode())


def ended(board: BoardFolder, job: str) -> str:
    return str(until(lambda: found if (found := _state(board, job)) not in LIVE else None))


def _state(board: BoardFolder, job: str) -> str:
    return Job(Root(board.root), job).read().state


def facts(board: BoardFolder) -> dict[str, Any]:
    found: dict[str, Any] = board.command("status", "--app", "toy")["apps"]["toy"]
    return found


def journal(board: BoardFolder) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((board.root / "apps/toy/deployment.json").read_bytes())
    except FileNotFoundError:
        return {"state": ""}
    return found


@pytest.mark.whole
def test_joined_refused_and_taken_back_by_who_requests(
    board: BoardFolder, toy: Bundle, toy2: Bundle
) -> None:
    offer(board, toy)
    first = start(board, toy, "1", soak_s=600)
    until(lambda: journal(board)["state"] == "soaking")
    again = start(board, toy, "2")
    assert (again["job"], again["joined"]) == (first["job"], True)
    with pytest.raises(Refused) as caught:
        start(board, toy2, "3")
    assert caught.value.code == "deploy.busy"
    assert "ann@desk" in caught.value.message
    assert toy.digest[:12] in caught.value.message
    assert first["job"] in caught.value.hint
    state = facts(board)
    assert (state["deployment"]["state"], state["deployment"]["alive"]) == ("soaking", True)
    for command in ("switch", "remove"):
        with pytest.raises(Refused) as caught:
            board.command(command, "--app", "toy", "--release", state["current"])
        assert caught.value.code == "deploy.busy"
    # going back syncs a dozen files: a busy disk may take longer than the usual grace of 10 s
    board.command("job-cancel", "--job", first["job"], "--grace-s", "90")
    assert facts(board)["current"] is None
    assert facts(board)["history"][-1]["error"]["code"] == "job.cancelled"


def test_killed_while_it_soaks_then_resumed(board: BoardFolder, toy: Bundle) -> None:
    offer(board, toy)
    job = start(board, toy, "1", soak_s=600)["job"]
    until(lambda: journal(board)["state"] == "soaking")
    kill(board, job)
    assert ended(board, job) == "lost"
    until(lambda: not is_claimed(Root(board.root).app("toy")))
    dead = facts(board)["deployment"]
    assert (dead["state"], dead["alive"]) == ("soaking", False)
    # a policy is part of the journal: here a short soak stands for the long one
    path = board.root / "apps/toy/deployment.json"
    path.write_text(json.dumps({**journal(board), "policy": QUICK}))
    (resumed,) = board.command("resume", "--wait")["resumed"]
    assert (resumed["app"], resumed["state"]) == ("toy", "done")
    state = facts(board)
    assert (state["deployment"]["state"], state["deployment"]["id"]) == ("committed", dead["id"])
    assert state["current"] == dead["release"]
    assert board.command("resume")["resumed"] == []


def kill(board: BoardFolder, job: str) -> None:
    """SIGKILL for all processes of a job."""
    for pid in processes("job-run", board.root, job):
        with contextlib.suppress(ProcessLookupError):  # one goes with its parent
            os.kill(pid, signal.SIGKILL)


def test_install_from_a_folder_is_one_command_and_idempotent(
    board: BoardFolder, toy: Bundle, tmp_path: Path
) -> None:
    from edgekit.bundles.files import write

    source = tmp_path / "toy.ekb"
    write(toy, source, stripped=False)
    options = ["--from", str(source), "--app", "toy", "--policy", json.dumps(QUICK)]
    first = board.command("install", *options)
    assert (first["changed"], first["state"], first["previous"]) == (True, "committed", None)
    again = board.command("install", *options)
    assert (again["changed"], again["release"]) == (False, first["release"])
    assert facts(board)["current"] == first["release"]
    # on a changed board it is tested anew
    record = board.root / "apps/toy/current/health.json"
    health = json.loads(record.read_text())
    changed = {**health, "fingerprint": {**health["fingerprint"], "machine": "riscv64"}}
    record.write_text(json.dumps(changed))
    assert board.command("install", *options)["release"] == first["release"]
    assert json.loads(record.read_text())["fingerprint"] == health["fingerprint"]


def test_work_that_hangs_is_ended_and_work_that_crashes_is_reported() -> None:
    def hang(turn: Any, report: Any) -> None:
        turn("testing")
        signal.pause()

    def crash(turn: Any, report: Any) -> None:
        turn("refitting")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ChildTooSlow, match=r"testing took longer than 0\.2 s"):
        run_in_child(hang, on_turn=lambda state: 0.2)
    with pytest.raises(ChildDied) as caught:
        run_in_child(crash)
    assert (caught.value.state, caught.value.cause) == ("refitting", "SIGKILL")
    with pytest.raises(ChildTooSlow):
        run_in_child(lambda turn, report: signal.pause(), limit_s=0.1)


def test_the_child_waits_for_its_turn_and_keeps_no_lock(tmp_path: Path) -> None:
    app = Root(tmp_path).app("net")
    seen: list[str] = []

    def work(turn: Any, report: Any) -> dict[str, Any]:
        turn("refitting")
        report("refitting", 1, 2, "half")
        turn("testing")
        return {"pid": os.getpid()}

    with claim(app) as held:
        found = run_in_child(
            work,
            on_turn=seen.append,
            on_report=lambda *reported: seen.append(reported[3]),
            closes=[held],
        )
        assert is_claimed(app)
    assert found["pid"] != os.getpid()
    assert seen == ["refitting", "half", "testing"]
    assert not is_claimed(app)


@pytest.mark.whole
def test_a_host_that_requested_before_the_end_gets_the_job_that_ended(
    board: BoardFolder, toy: Bundle
) -> None:
    offer(board, toy)
    first = start(board, toy, "1")["job"]
    assert ended(board, first) == "done"
    joined = start(board, toy, "2", again=False)
    assert (joined["job"], joined["reused"]) == (first, True)
    # under another policy it has to show itself anew
    other = start(board, toy, "3", again=False, latency_ms=1e6)
    assert (other["job"] != first, other["reused"]) == (True, False)
    assert ended(board, other["job"]) == "done"
