"""Processes of a real sshd board end by SIGKILL, all of them or one, and so does the operator."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edgekit.errors import EdgekitError
from tests.boards.bundles import HandMade
from tests.boards.toy_jobs import until
from tests.faults.fault_report import Faults
from tests.faults.live_board import LiveBoard

pytestmark = [pytest.mark.boards, pytest.mark.slow]

_STATES = ["verifying", "refitting", "testing", "switching", "soaking", "committed"]


def _journal(live: LiveBoard) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((live.root / "apps" / "net" / "deployment.json").read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _deploy_meanwhile(live: LiveBoard, bundle: HandMade) -> tuple[threading.Thread, list[str]]:
    reported: list[str] = []

    def run() -> None:
        try:
            live.deploy(bundle)
            reported.append("done")
        except EdgekitError as error:
            reported.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, reported


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["SIGKILL", "power cut"])
def test_ended_at_every_state(how: str, live: LiveBoard, faults: Faults, exhaustive: bool) -> None:
    """Stopped just before the journal says so: by its own count of writes to deployment.json."""
    states = range(len(_STATES)) if exhaustive else (_STATES.index("soaking"),)
    for index in states:
        bundle = live.bundle()
        kind = f"{how} over SSH, at {_STATES[index]}"
        faults.injected(kind)
        stop = "cut_at" if how == "power cut" else "kill_at"
        with live.interpreter(**{stop: 1 << 30, "at": ["replace", "deployment.json", index]}):
            with contextlib.suppress(EdgekitError):
                live.deploy(bundle)
            live.kill()
            live.quiet()
        live.look(live.serving, bundle.digest)
        live.finish(bundle)
        faults.survived(kind)


@pytest.mark.whole
def test_operator_killed_or_interrupted(live: LiveBoard, faults: Faults, home: Path) -> None:
    """The board goes on alone, or the same command does it; nobody is locked out."""
    for number in (signal.SIGKILL, signal.SIGINT):
        for when in ("send", "job"):
            bundle = live.bundle(columns=20_000)
            kind = f"operator's {signal.Signals(number).name}"
            faults.injected(kind)
            operator = _operator(live, bundle)
            if when == "job":
                until(lambda bundle=bundle: _journal(live).get("digest") == bundle.digest)
            else:
                # the manifest is there, and blobs are sent
                until((live.root / "incoming" / bundle.digest).exists)
            os.kill(operator.pid, number)
            operator.communicate(timeout=120)
            live.quiet()
            live.look(live.serving, bundle.digest)
            live.finish(bundle)
            faults.survived(kind)


@pytest.mark.whole
def test_two_operators_at_once(live: LiveBoard, faults: Faults) -> None:
    same = live.bundle()
    faults.injected("two operators, one bundle")
    (thread, reported), (other, said) = _deploy_meanwhile(live, same), _deploy_meanwhile(live, same)
    thread.join(120)
    other.join(120)
    assert (reported, said) == (["done"], ["done"])
    live.settled(same)
    faults.survived("two operators, one bundle")
    one, two = live.bundle(), live.bundle()
    faults.injected("two operators, two bundles")
    (thread, reported), (other, said) = _deploy_meanwhile(live, one), _deploy_meanwhile(live, two)
    thread.join(120)
    other.join(120)
    codes = {*reported, *said}
    assert "done" in codes
    assert codes <= {"done", "deploy.busy"}
    live.quiet()
    live.look(one.digest, two.digest)
    live.finish(two)
    faults.survived("two operators, two bundles")


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(8))
def test_loader_killed_at_random_moments(seed: int, live: LiveBoard, faults: Faults) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        bundle = live.bundle()
        faults.injected("board's processes killed")
        kill_at = rng.randrange(20, 140)
        with live.interpreter(kill_at=kill_at), contextlib.suppress(EdgekitError):
            live.deploy(bundle)
        live.kill()
        live.quiet()
        live.look(live.serving, bundle.digest)
        live.finish(bundle)
        faults.survived("board's processes killed")


_PROGRAM = """
import pickle, sys
from pathlib import Path
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import install
from edgekit.deployment.ssh import connect
board, bundle, loader, policy = pickle.loads(Path(sys.argv[1]).read_bytes())
install(bundle, BoardClient(board, connect(board), loader), policy=policy)
"""


def _operator(live: LiveBoard, bundle: HandMade) -> subprocess.Popen[bytes]:
    """A process of its own that deploys."""
    import pickle

    from tests.faults.forked_board import POLICY

    reported = live.scratch / "operator"
    reported.write_bytes(pickle.dumps((live.board, bundle, live.loader, POLICY)))
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(reported)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
