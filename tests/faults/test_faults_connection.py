"""The connection goes: at every step of the protocol, at random bytes, slowly, with the server."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any, Literal

import pytest

from edgekit.deployment.agent import Agent
from edgekit.errors import BoardError, EdgekitError
from tests.boards.bundles import HandMade
from tests.boards.fixtures import StartBoard, hard_kill
from tests.faults.fault_report import Faults
from tests.faults.live_board import LiveBoard, kill_sessions
from tests.faults.tcp_relay import Relay

pytestmark = pytest.mark.boards

# the bytes of a deployment, each way
_PARTS, _IN_EACH = 6, 10


@pytest.mark.whole
@pytest.mark.parametrize("answered", [False, True])
def test_slow_then_cut_at_every_command(
    answered: bool, live: LiveBoard, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    live.relay.delay_s = 0.01
    faults.injected("slow connection")
    commands = live.measure()
    faults.survived("slow connection")
    live.relay.delay_s = 0.0
    assert commands >= 3
    for step in range(commands):
        bundle = live.bundle()
        faults.injected("connection cut at a command")
        with monkeypatch.context() as patch:
            _cut_at(step, answered, live, patch)
            _broken(live, bundle)
        live.finish(bundle)
        faults.survived("connection cut at a command")


#: In the order of a deployment: bytes of the handshake, commands, and what a step reports.
_MOMENTS = (
    "banner",
    "key exchange",
    "authentication",
    "first command",
    "second command",
    "last command",
    "send",
    "send, half",
    "stage",
    "refit",
    "selftest",
    "switch",
)


@pytest.mark.few(2)
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("moment", _MOMENTS[::-1])
def test_cut_at_every_kind_of_moment(
    moment: str,
    direction: Literal["up", "down"],
    live: LiveBoard,
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next byte that goes this way, from that moment on, ends the connection."""
    run = Agent.run
    measured: list[str] = []

    def counted(self: Agent, argv: list[str], **named: Any) -> Any:
        measured.append(argv[0])
        return run(self, argv, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Agent, "run", counted)
        live.measure()
    client = live.client()
    handshake = live.relay.carried[direction] - live.sizes[direction]
    client.close()
    bundle = live.bundle(columns=20_000)
    faults.injected("connection cut at a kind of moment")

    def next_byte() -> None:
        live.relay.cut_at[direction] = live.relay.carried[direction] + 1

    def report(phase: str, done: int, total: int) -> None:
        if phase == moment or (moment == "send, half" and phase == "send" and 2 * done >= total):
            next_byte()

    live.relay.carried = {"up": 0, "down": 0}
    bytes_of = {"banner": 1, "key exchange": handshake // 3, "authentication": handshake - 1}
    if moment in bytes_of:
        live.relay.cut_at[direction] = bytes_of[moment]
    steps = {"first command": 0, "second command": 1}
    with monkeypatch.context() as patch:
        if moment.endswith(" command"):
            count = iter(range(1 << 30))

            def cut(self: Agent, argv: list[str], **named: Any) -> Any:
                # by name: a busy machine watches a job more often before it asks for the result
                last = moment == "last command" and argv[0] == measured[-1]
                if last or next(count) == steps.get(moment):
                    next_byte()
                return run(self, argv, **named)

            patch.setattr(Agent, "run", cut)
        _broken(live, bundle, report)
    assert live.relay.was_cut.is_set()
    live.finish(bundle)
    faults.survived("connection cut at a kind of moment")


@pytest.mark.whole
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("direction", ["up", "down"])
def test_cut_at_random_bytes(
    direction: Literal["up", "down"], part: int, live: LiveBoard, faults: Faults
) -> None:
    live.measure()
    rng = random.Random(f"{direction}{part}")
    for index in range(_IN_EACH):
        share = (part + (index + rng.random()) / _IN_EACH) / _PARTS
        bundle = live.bundle()
        live.relay.carried = {"up": 0, "down": 0}
        live.relay.cut_at[direction] = max(1, int(share * live.sizes[direction]))
        faults.injected(f"connection cut at a byte, {direction}")
        _broken(live, bundle)
        live.finish(bundle)
        faults.survived(f"connection cut at a byte, {direction}")


def _cut_at(step: int, answered: bool, live: LiveBoard, patch: pytest.MonkeyPatch) -> None:
    """Cuts as the command of that number begins, or when the board has done it."""
    run, count = Agent.run, iter(range(1 << 30))

    def cut(self: Agent, *arguments: Any, **named: Any) -> Any:
        if next(count) != step:
            return run(self, *arguments, **named)
        if not answered:
            live.relay.cut()
            return run(self, *arguments, **named)
        run(self, *arguments, **named)
        live.relay.cut()
        raise BoardError("the answer was lost", code="board.connection-lost", where="lab")

    patch.setattr(Agent, "run", cut)


@pytest.mark.whole
@pytest.mark.parametrize("what", ["session", "all"])
def test_sshd_killed_in_the_middle(
    what: str, live: LiveBoard, boards: StartBoard, faults: Faults
) -> None:
    for phase in ("send", "refit", "switch"):
        bundle = live.bundle(columns=20_000)
        faults.injected(f"sshd killed, {what}")

        def kill(current: str, done: int, total: int, phase: str = phase) -> None:
            if current != phase:
                return
            if what == "all":
                hard_kill(live.server)
            else:
                kill_sessions(live.server)

        _broken(live, bundle, kill)
        if what == "all":
            live.server = boards(live.root)
            live.relay.close()
            live.relay = Relay(live.server.port)
        live.finish(bundle)
        faults.survived(f"sshd killed, {what}")


@pytest.mark.whole
def test_stalled_connection(live: LiveBoard, faults: Faults) -> None:
    # nothing comes through any more, and the host gives up; the board is told nothing of it
    bundle = live.bundle(columns=20_000)
    faults.injected("stalled connection")

    def stall(phase: str, done: int, total: int) -> None:
        if phase == "send":
            live.relay.stall()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live.deploy(bundle, stall)
    live.look(live.serving)
    live.finish(bundle)
    faults.survived("stalled connection")


def _broken(
    live: LiveBoard,
    bundle: HandMade,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Deploys with a fault on its way; old or new is whole whatever the host was told."""
    # a cut after the last answer is no failure: the board is done, and says so
    with contextlib.suppress(EdgekitError):
        live.deploy(bundle, progress)
    live.look(live.serving, bundle.digest)
