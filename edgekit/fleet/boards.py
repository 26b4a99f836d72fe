"""The releases that the boards of an inventory serve, as ``edgekit.fleet.boards/1``: the boards'
own answers, and for unreachable boards the last known answers from the state folder.
"""

from __future__ import annotations

import fcntl
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgekit.bundles.files import build_board_loader
from edgekit.deployment.connection import open_board
from edgekit.documents import Coded, Document, omitted
from edgekit.errors import EdgekitError
from edgekit.files import cache_folder, write_json
from edgekit.fleet.ansible.run import AnsibleRun, saved_runs
from edgekit.fleet.driver import RETRIED_CODES, BoardPool
from edgekit.fleet.inventory import load_inventory, select
from edgekit.fleet.status import iso_time
from edgekit.fleet.store import Rollout, RolloutStore, Row
from edgekit.fleet.waves import FleetBoard, RolloutSettings
from edgekit.pipeline.boards.requests import to_failure
from edgekit_device.deployment.status import AppStatus
from edgekit_device.protocol.failure import Failure

BoardState = Literal["reached", "away", "failed"]


class ServedRelease(Document):
    """The release that a board serves for an application.

    Attributes:
        release: The release; None if there is none, or only a rollout's record of the bundle.
        digest: Digest of its bundle; None without a release.
        since: Time of the switch, UTC, ISO 8601; None if unknown.
    """

    app: str
    release: str | None = None
    digest: str | None = None
    since: str | None = None


class BoardRelease(ServedRelease):
    """A served release with the newest rollout of the application to the board.

    Attributes:
        rollout: The rollout's name; None without a rollout.
        wave: The board's wave, counted from 1.
        state: The board's state in the rollout.
    """

    rollout: str | None = omitted()
    wave: int | None = omitted()
    state: str | None = omitted()


class InventoryBoard(Document):
    """A board of an inventory.

    Attributes:
        state: "reached": answered now; "away": unreachable; "failed": refused to answer.
        seen_at: Time of the answer, UTC, ISO 8601; None if the board never answered.
        age_s: Age of the answer in seconds.
        apps: The served releases in the answer.
        error: Why the board did not answer now.
    """

    board: str
    host: str
    labels: dict[str, str]
    state: BoardState
    seen_at: str | None
    age_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    apps: list[BoardRelease]
    error: Annotated[Failure, Coded()] | None = None


class FleetBoards(Document):
    """``edgekit.fleet.boards/1``: the releases that the boards of an inventory serve.

    Attributes:
        select: The selector of the boards.
        counts: Number of boards by state.
    """

    schema_: Literal["edgekit.fleet.boards/1"] = Field(alias="schema")
    inventory: str
    select: str | None
    counts: dict[str, int]
    boards: list[InventoryBoard]


class Answer(Document):
    """A board's last answer; ``at`` in seconds since 1970."""

    at: float
    apps: list[ServedRelease]


class _Answers(Document):
    """The last answers, by the boards' addresses."""

    boards: dict[str, Answer]


class LastAnswers:
    """The last answers of the boards of all inventories; several processes may share the file.

    Args:
        folder: The state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "seen.json"

    def read(self) -> Mapping[str, Answer]:
        """Returns the answers by the boards' addresses; none if the file is damaged."""
        try:
            return _Answers.model_validate_json(self._path.read_bytes()).boards
        except (OSError, ValueError):
            return {}

    def add(self, answers: Mapping[str, Answer]) -> None:
        """Stores answers, which replace earlier answers of the same boards."""
        if not answers:
            return
        with self._path.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # read under the lock: another process may have added answers
            known = _Answers(boards={**self.read(), **answers})
            write_json(self._path, known.to_json())


def board_address(member: FleetBoard) -> str:
    """Returns a board's address, which does not depend on its name in an inventory."""
    board = member.board
    image = f" {board.container.image}" if board.container else ""
    return f"{board.user or ''}@{board.host.lower()}:{board.port or 22} {board.root}{image}"


def ask_boards(
    store: RolloutStore,
    inventory: str | Path,
    *,
    selector: str | None = None,
    parallel: int = 16,
    accept_host_key: bool = False,
) -> FleetBoards:
    """Asks each board once for its releases.

    Args:
        store: The rollouts, whose folder has the last answers.
        inventory: The boards.
        selector: Selects boards; None for all.
        parallel: Number of boards at a time.
        accept_host_key: Accept unknown host keys this once.

    Raises:
        ConfigError: The inventory is invalid.
        UsageError: No board is selected.
    """
    members = select(load_inventory(inventory), selector)
    loader = build_board_loader(cache_folder() / "loader")
    answers: dict[str, Answer] = {}
    errors: dict[str, EdgekitError] = {}

    def ask(row: Row) -> Answer:
        with open_board(
            row.reached.board,
            state_folder=cache_folder(),
            accept_host_key=accept_host_key,
            loader=loader,
        ) as client:
            apps = client.status().apps
        return Answer(at=time.time(), apps=[served_release(*pair) for pair in sorted(apps.items())])

    def failed(row: Row, error: EdgekitError, again: bool) -> None:
        errors[row.name] = error

    settings = RolloutSettings(parallel=parallel, deadline_s=0.0)
    BoardPool(settings, lambda: False).each(
        [Row(member.name, 0, member) for member in members],
        ask,
        begin=lambda row: None,
        done=lambda row, answer: answers.__setitem__(board_address(row.reached), answer),
        failed=failed,
    )
    seen = LastAnswers(store.folder)
    before = seen.read()
    seen.add(answers)
    rollouts, by_ansible, now = store.rollouts(), saved_runs(store.folder), time.time()
    rows = []
    for member in members:
        place = board_address(member)
        answer = answers.get(place) or _last_known(member, before.get(place), rollouts)
        error = errors.get(member.name)
        states = [*_rollout_states(member, rollouts), *_ansible_states(member, by_ansible)]
        rows.append(_row(member, answer, error, states, now))
    return FleetBoards(
        schema="edgekit.fleet.boards/1",
        inventory=str(inventory),
        select=selector,
        counts=dict(sorted(Counter(row.state for row in rows).items())),
        boards=rows,
    )


def served_release(app: str, status: AppStatus) -> ServedRelease:
    """Returns the served release of an application from a board's status."""
    current = status.current_release
    if current is None:
        return ServedRelease(app=app, release=None, digest=None, since=None)
    ended = [*status.history, *([] if status.deployment is None else [status.deployment])]
    since = None
    for entry in ended:
        # a rollback makes the previous release serve again
        came = entry.release if entry.state == "committed" else entry.previous
        if entry.state in ("committed", "rolled-back") and came == current.id:
            since = max(since or "", entry.state_at)
    return ServedRelease(app=app, release=current.id, digest=current.digest, since=since)


def _last_known(
    member: FleetBoard, answer: Answer | None, rollouts: list[Rollout]
) -> Answer | None:
    """Returns the last answer of an unreachable board, updated with later rollouts."""
    apps = {served.app: served for served in answer.apps} if answer else {}
    at = answer.at if answer else 0.0
    for rollout, row in sorted(_rows(member, rollouts), key=lambda pair: pair[1].changed_at):
        serves = {"done": row.digest, "rolled-back": row.before}.get(row.state)
        # the board's own answer is newer than the rollout's record
        if serves is None or row.changed_at <= at:
            continue
        app, at = rollout.facts.app, row.changed_at
        # a rollback's record has the bundle, not the name of its release
        release = row.release if row.state == "done" else None
        apps[app] = ServedRelease(app=app, release=release, digest=serves or None, since=None)
    return Answer(at=at, apps=[apps[app] for app in sorted(apps)]) if at else None


def _rows(member: FleetBoard, rollouts: list[Rollout]) -> Iterator[tuple[Rollout, Row]]:
    """Yields the rollouts with a board, newest first, each with the board's row."""
    for rollout in rollouts:
        row = rollout.boards.get(member.name)
        if row is not None and board_address(row.reached) == board_address(member):
            yield rollout, row


@dataclass(frozen=True)
class _RolloutState:
    """A board's state in a rollout; ``at`` is its last change, in seconds since 1970."""

    at: float
    app: str
    rollout: str
    wave: int
    state: str


def _rollout_states(member: FleetBoard, rollouts: list[Rollout]) -> Iterator[_RolloutState]:
    for rollout, row in _rows(member, rollouts):
        facts = rollout.facts
        # 0: nothing has changed yet
        at = row.changed_at or facts.created_at
        yield _RolloutState(at, facts.app, rollout.name, row.wave + 1, row.state)


def _ansible_states(
    member: FleetBoard, runs: list[tuple[float, AnsibleRun]]
) -> Iterator[_RolloutState]:
    """Yields the board's states in Ansible's runs, which identify boards by name only."""
    for at, run in runs:
        for board in run.boards:
            if board.board == member.name:
                yield _RolloutState(at, run.app, run.rollout, board.wave, board.state)


def _row(
    member: FleetBoard,
    answer: Answer | None,
    error: EdgekitError | None,
    turns: list[_RolloutState],
    now: float,
) -> InventoryBoard:
    newest = {turn.app: turn for turn in sorted(turns, key=lambda turn: turn.at)}
    apps = {served.app: served for served in answer.apps} if answer else {}
    releases = []
    for app in sorted({*apps, *newest}):
        release = apps.get(app, ServedRelease(app=app, release=None, digest=None, since=None))
        row = BoardRelease(
            app=app, release=release.release, digest=release.digest, since=release.since
        )
        if app in newest:
            turn = newest[app]
            more = {"rollout": turn.rollout, "wave": turn.wave, "state": turn.state}
            row = row.model_copy(update=more)
        releases.append(row)
    state: BoardState = "reached"
    if error is not None:
        state = "away" if error.code in RETRIED_CODES else "failed"
    return InventoryBoard(
        board=member.name,
        host=member.board.host,
        labels=dict(member.labels),
        state=state,
        seen_at=iso_time(answer.at) if answer else None,
        age_s=round(max(0.0, now - answer.at), 1) if answer else None,
        apps=releases,
        error=to_failure(error) if error is not None else None,
    )
