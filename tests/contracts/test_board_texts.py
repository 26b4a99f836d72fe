"""What people read of boards: status, releases, rollbacks and removals, at boards in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import BoardError
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.serving import LastError
from edgekit_device.release.journal import HistoryEntry, TakenBack
from tests.cli.board_fakes import answer, config_of, lend
from tests.cli.test_status import NEW, OLD, RETAINED, WHEN, Serving
from tests.contracts.brief import brief
from tests.contracts.conftest import Answer, Golden


def entry(id: str, state: str, **changes: Any) -> HistoryEntry:
    schema, ended = "edgekit.rollback/1", "2026-01-03T00:00:00Z"
    return replace(HistoryEntry(schema, id, "net", state, NEW, OLD, WHEN, ended, None), **changes)


BACK = entry("77", "rolled-back", error=Failure("rollback.asked", "too many\nalarms", "", ""))


def crashed(board: Serving) -> None:
    error = LastError("serve.crashed", "the worker died", "net", "", WHEN)
    board.serving = replace(answer("serve").serving, release=NEW, last_error=error)


def went_back(board: Serving) -> None:
    board.state = "rolled-back"
    board.error = Failure("health.latency", "too slow [red]\x1b[31m here", "", "")


def taken_back(board: Serving) -> None:
    board.back = TakenBack(RETAINED, WHEN, "too many false alarms")


def revoked(board: Serving) -> None:
    board.revoked = ["net"]


def rolled_back(board: Serving) -> None:
    board.history = [entry("1", "committed"), BACK]


def deployed_since(board: Serving) -> None:
    board.history = [BACK, entry("2", "committed")]


def soaking(board: Serving) -> None:
    board.history, board.state, board.alive = [BACK], "soaking", True


def refusing(board: Serving) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise BoardError("it cannot", code="no.such")

    for name in ("status", "releases", "trust"):
        setattr(board, name, refuse)


CASES: dict[str, tuple[Callable[[Serving], None], tuple[str, ...]]] = {
    "as usual": (lambda board: None, ("status", "releases")),
    "crashed": (crashed, ("status",)),
    "went back": (went_back, ("status",)),
    "rolled back": (rolled_back, ("status",)),
    "deployed since": (deployed_since, ("status",)),
    "soaking": (soaking, ("status",)),
    "taken back": (taken_back, ("releases",)),
    "revoked": (revoked, ("releases",)),
    "refusing": (refusing, ("status", "releases", "trust")),
}
CHANGES = {
    "rollback": ("--app", "net", "--reason", "it $(blinks)"),
    "rollback without an application": (),
    "remove a release": ("--app", "net", "--release", OLD),
    "remove what serves": ("--app", "net", "--release", NEW),
    "remove all": ("--app", "net", "--yes"),
}


def test_boards_are_shown(
    command: Callable[..., Answer],
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: dict[str, Any] = {}

    def ask(name: str, *words: str) -> None:
        given = command(*words, as_json=False)
        text = [*given.out.splitlines(), *given.err.splitlines()]
        assert not any("\x1b" in line for line in text)
        found[name] = {
            "exit": given.exit,
            "text": [[line] for line in text],
            "json": brief(command(*words).document),
        }

    for name, (change, commands) in CASES.items():
        board = Serving("lab")
        change(board)
        lend(monkeypatch, board)
        for one in commands:
            ask(f"{one}, {name}", one, "lab")
    for name, words in CHANGES.items():
        lend(monkeypatch, Serving("lab"))
        ask(name, name.split()[0], "lab", *words)
    lend(monkeypatch, Serving("one"), Serving("two", down=True))
    config = config_of(tmp_path, "one", "two")
    for one in ("status", "releases"):
        ask(f"{one}, one is away", one, config)
    lend(monkeypatch, Serving("one"), Serving("two"))
    ask("remove what serves on two", "remove", config, "--release", NEW)
    golden("texts/boards", found)
