"""Boards without a machine behind: what a command line asks of them is answered from a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.deployment.answers import read_answer
from edgekit.deployment.board import Board
from edgekit.deployment.client import JobLog
from edgekit.deployment.transport import Completed
from edgekit.errors import BoardError, EnvironmentLack
from edgekit_device.board.probe import Probe
from edgekit_device.board.setup import SetupAnswer
from edgekit_device.jobs.job import JobRow, WatchedEvent
from tests.security.board_answers import SAMPLES

__all__ = ["ID", "FakeBoard", "answer", "config_of", "job_row", "lend"]

ID = "0123456789abcdef"


def answer(command: str, **changes: Any) -> Any:
    """The sample of a command's answer, with other values of fields."""
    done = Completed(0, json.dumps(SAMPLES[command]).encode(), b"")
    return replace(read_answer(done, "lab", "python3", command), **changes)


def job_row(state: str, **changes: Any) -> JobRow:
    """A row of ``job-list``."""
    row = JobRow(ID, "build", "net", state, 1.0, 2.0, None, "tactics", 1, 2, None)
    return replace(row, **changes)


class FakeBoard:
    """A client of a board.

    Attributes:
        rows: Its jobs.
        events: What watching tells; an exception among them is raised, once.
        asked: What was asked of it.
        down: Whether it cannot be reached.
    """

    kind, note = "ssh", "a fake"

    def __init__(self, name: str, *rows: JobRow, down: bool = False) -> None:
        self.name = name
        self.rows = list(rows)
        self.events: list[Any] = []
        self.requested: list[tuple[Any, ...]] = []
        self.down = down
        self.answers: dict[str, Any] = {}

    def jobs(self) -> tuple[JobRow, ...]:
        return tuple(self.rows)

    def watch_job(self, id: str) -> Iterator[WatchedEvent]:
        while self.events:
            event = self.events.pop(0)
            if isinstance(event, BaseException):
                raise event
            yield event

    def job_result(self, id: str) -> dict[str, Any]:
        error = self.rows[0].error
        if error:
            raise BoardError(error.message, code=error.code, where=self.name)
        return {"made": 1}

    def job_log(self, id: str, *, start: int = 0, most: int = 1 << 20) -> JobLog:
        return JobLog(b"" if start else b"a line\n", 7, 7, "running")

    def cancel_job(self, id: str) -> str:
        self.requested.append(("cancel", id))
        return "cancelled"

    def remove_job(self, id: str) -> None:
        self.requested.append(("remove", id))

    def probe(self) -> Probe:
        found: Probe = self.answers["probe"]
        return found

    def setup(self, *, undo: bool, apply: bool) -> SetupAnswer:
        state = self.answers["applied" if apply else "state"]
        found: SetupAnswer = answer("setup", state=state, text="a plan")
        return found


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
