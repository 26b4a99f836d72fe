"""Boards without a machine behind: what a command line asks of them is answered from a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgekit.deployment.board import Board
from edgekit.deployment.client import JobLog
from edgekit.errors import BoardError, EnvironmentLack

__all__ = ["ID", "FakeBoard", "config_of", "job_row", "lend"]

ID = "0123456789abcdef"


def job_row(state: str, **changes: Any) -> dict[str, Any]:
    """A row of ``job-list``."""
    row = {"job": ID, "kind": "build", "name": "net", "state": state, "queued_at": 1.0,
           "started_at": 2.0, "ended_at": None, "phase": "tactics", "done": 1, "total": 2,
           "error": None}  # fmt: skip
    return {**row, **changes}


class FakeBoard:
    """A client of a board.

    Attributes:
        rows: Its jobs.
        events: What watching tells; an exception among them is raised, once.
        asked: What was asked of it.
        down: Whether it cannot be reached.
    """

    kind, note = "ssh", "a fake"

    def __init__(self, name: str, *rows: dict[str, Any], down: bool = False) -> None:
        self.name = name
        self.rows = list(rows)
        self.events: list[Any] = []
        self.requested: list[tuple[Any, ...]] = []
        self.down = down
        self.answers: dict[str, Any] = {}

    def jobs(self) -> list[dict[str, Any]]:
        return self.rows

    def watch_job(self, id: str) -> Iterator[dict[str, Any]]:
        while self.events:
            event = self.events.pop(0)
            if isinstance(event, BaseException):
                raise event
            yield event

    def job_result(self, id: str) -> dict[str, Any]:
        error = self.rows[0]["error"]
        if error:
            raise BoardError(error["message"], code=error["code"], where=self.name)
        return {"made": 1}

    def job_log(self, id: str, *, start: int = 0, most: int = 1 << 20) -> JobLog:
        return JobLog(b"" if start else b"a line\n", 7, 7, "running")

    def cancel_job(self, id: str) -> str:
        self.requested.append(("cancel", id))
        return "cancelled"

    def remove_job(self, id: str) -> None:
        self.requested.append(("remove", id))

    def probe(self) -> dict[str, Any]:
        found: dict[str, Any] = self.answers["probe"]
        return found

    def setup(self, *, undo: bool, apply: bool) -> dict[str, Any]:
        return {"state": self.answers["applied" if apply else "state"], "text": "a plan"}


def lend(monkeypatch: pytest.MonkeyPatch, *boards: FakeBoard) -> None:
    """Connects every name to the fake board that has it, others to the first."""
    by_name = {board.name: board for board in boards}

    @contextmanager
    def connect(board: Board, **options: Any) -> Iterator[FakeBoard]:
        found = by_name.get(board.name, boards[0])
        if found.down:
            raise EnvironmentLack("nobody answers", code="board.unreachable", where=board.name)
        yield found

    opened: Callable[..., Any] = connect
    monkeypatch.setattr("edgekit.pipeline.boards.addresses.open_client", opened)


def config_of(tmp_path: Path, *names: str) -> str:
    """A configuration with boards of these names."""
    path = tmp_path / "two boards.yaml"
    rows = "".join(f"    - {{name: {name}, host: 10.0.0.{n}}}\n" for n, name in enumerate(names, 1))
    path.write_text(
        "version: 1\nname: net\nmodel: {builtin: light_resnet18}\n"
        f"target: jetson-agx-orin-64gb\ndeploy:\n  boards:\n{rows}"
    )
    return str(path)
