"""A build's job on a board, as the host follows it, at boards that are only played."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.cli.main import app
from edgekit.config.loader import open_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context, Session
from edgekit.pipeline.progress import SilentProgress
from edgekit.pipeline.steps.build import run_build_job
from edgekit_device.jobs.job import StartedJob, WatchedEvent
from tests.cli.board_fakes import ID, FakeBoard, config_of, job_row, lend


class BuildingBoard(FakeBoard):
    def missing(self, digests: Any, *, verify: bool = False) -> tuple[str, ...]:
        return ()

    def receive(self, blobs: Any, progress: Any) -> int:
        return 0

    def start_job(self, kind: str, request: Any) -> StartedJob:
        return StartedJob(ID, "running", joined=True)


@pytest.mark.parametrize("names", [("lab",), ("left", "right")])
def test_ctrl_c_names_a_command_that_ends_the_build(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = [BuildingBoard(name, job_row("running")) for name in names]
    boards[-1].events = [
        WatchedEvent(1e9, "tactics", 6, 10, "", n=1, state="running"),
        KeyboardInterrupt(),
    ]
    lend(monkeypatch, *boards)
    reported: list[str] = []
    seen: list[Any] = []

    class Recorded(SilentProgress):
        def note(self, text: str) -> None:
            reported.append(text)

        def update(
            self, done: float, total: float, text: str = "", *, at: float | None = None
        ) -> None:
            seen.append(at)

    config = open_config(config_of(tmp_path, *names))
    context = Context(config, Cache(tmp_path / "cache"), Session(Recorded()))
    request: Any = SimpleNamespace(blobs={}, document={})
    client: Any = boards[-1]
    with pytest.raises(KeyboardInterrupt):
        run_build_job(context, client, request)
    assert seen == [1e9]  # by the board's clock
    command = re.search("`edgekit (.*)`", reported[-1])
    assert command
    assert app(shlex.split(command[1])) == 0
    assert [board.requested for board in boards] == [[]] * (len(boards) - 1) + [[("cancel", ID)]]
