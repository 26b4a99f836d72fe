"""Documents about rollouts: ``edgekit.fleet/1`` (a rollout with its waves and boards),
``edgekit.fleets/1`` (all rollouts, including Ansible's) and ``edgekit.fleet.rehearsal/1``.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, get_args

from edgekit.fleet.hints import action_command, resume_command
from edgekit.fleet.store import Rollout, RolloutStore, Row
from edgekit.fleet.waves import RolloutSettings, State
from edgekit.removed import FormerDict
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    mapping,
    member,
    nullable,
    number,
    record,
    records,
    text,
)
from edgekit_device.protocol.failure import Failure

_TEXT = nullable(text())
_TIME = number(0.0, 1e12)
_FAILURE = nullable(record(Failure))
_STATE = choice(*get_args(State))


@document(frozen=True)
class RolloutHead:
    """A rollout.

    Attributes:
        wave: The current wave, counted from 1.
        select: The selector of the boards.
        created_at: UTC, ISO 8601, like ``updated_at``.
        driven: True while a process drives it.
        counts: Number of boards by state.
        failure: Why it stopped.
        folder: The state folder, for commands; not in JSON.
    """

    rollout: str = member(text())
    app: str = member(text())
    state: str = member(text())
    wave: int = member(fields.count)
    config: str = member(text())
    inventory: str = member(text())
    select: str | None = member(_TEXT)
    settings: RolloutSettings = member(record(RolloutSettings))
    created_at: str = member(text())
    updated_at: str = member(text())
    driven: bool = member(flag)
    counts: Mapping[str, int] = member(mapping(fields.count))
    failure: Failure | None = member(_FAILURE)
    folder: Path = field(default=Path(), kw_only=True, compare=False)

    def command(self, action: str, *more: str) -> str:
        """Returns the command of an action on the rollout, for a user to copy."""
        return action_command(action, self.rollout, self.folder, *more)

    @property
    def resume_command(self) -> str:
        """The command that resumes the rollout."""
        return resume_command(self.rollout, self.folder, self.failure.code if self.failure else "")


@document(frozen=True)
class WaveCounts:
    """A wave's numbers of boards.

    Attributes:
        wave: Number of the wave, counted from 1.
        boards: Number of boards.
        counts: Number of boards by state.
    """

    wave: int = member(fields.count)
    boards: int = member(fields.count)
    counts: Mapping[str, int] = member(mapping(fields.count))


@document(frozen=True)
class RolloutBoard:
    """A board of a rollout.

    Attributes:
        wave: The board's wave, counted from 1.
        release: The deployed release; None after a rollback.
        serves: Digest of the last known served bundle: "" for none, None if unknown.
        digest: Digest of the bundle to deploy.
        before: Digest of the bundle that served before.
        attempts: Number of attempts.
        bytes_sent: Bytes sent to the board.
        seconds: Duration of the last deployment in seconds.
    """

    board: str = member(text())
    host: str = member(text())
    labels: Mapping[str, str] = member(mapping(text()))
    wave: int = member(fields.count)
    state: State = member(_STATE)
    release: str | None = member(_TEXT)
    serves: str | None = member(_TEXT)
    digest: str | None = member(_TEXT)
    before: str | None = member(_TEXT)
    attempts: int = member(fields.count)
    bytes_sent: int = member(fields.count)
    seconds: float = member(_TIME)
    error: Failure | None = member(_FAILURE)


@document(frozen=True, kw_only=True)
class FleetRollout(FormerDict, RolloutHead):
    """``edgekit.fleet/1``: a rollout with its waves and boards.

    Attributes:
        driver: The last process that drove it.
        notes: Notes for people.
        requested: The state after a requested pause or abort; not in JSON.
    """

    driver: str | None = member(_TEXT)
    waves: tuple[WaveCounts, ...] = member(records(WaveCounts))
    boards: tuple[RolloutBoard, ...] = member(records(RolloutBoard))
    notes: tuple[str, ...] = member(array(text()))
    schema: str = member(choice("edgekit.fleet/1"), default="edgekit.fleet/1")
    requested: str = field(default="", compare=False)


@document(frozen=True)
class AnsibleHead:
    """A rollout by Ansible.

    Attributes:
        state: "running", or the outcome of the last run.
        folder: The export's folder.
        updated_at: UTC, ISO 8601.
        counts: Number of boards by state.
        failure: Why it failed.
    """

    rollout: str = member(text())
    app: str = member(text())
    state: str = member(choice("running", "done", "failed", "interrupted"))
    folder: str = member(text())
    updated_at: str = member(text())
    counts: Mapping[str, int] = member(mapping(fields.count))
    failure: Failure | None = member(_FAILURE)


@document(frozen=True)
class FleetListing(FormerDict):
    """``edgekit.fleets/1``: all rollouts, newest first.

    Attributes:
        ansible: Rollouts by Ansible.
    """

    rollouts: tuple[RolloutHead, ...] = member(records(RolloutHead))
    ansible: tuple[AnsibleHead, ...] = member(records(AnsibleHead), absent=())
    schema: str = member(choice("edgekit.fleets/1"), default="edgekit.fleets/1")


@document(frozen=True)
class RehearsedBoard:
    """A board that a rollout would change: ``before`` and ``after`` are bundles' digests.

    Attributes:
        wave: The board's wave, counted from 1.
    """

    board: str = member(text())
    host: str = member(text())
    wave: int = member(fields.count)
    before: str | None = member(_TEXT, key="from", default=None)
    after: str | None = member(_TEXT, key="to", default=None)


@document(frozen=True)
class Rehearsal(FormerDict):
    """``edgekit.fleet.rehearsal/1``: the boards that a rollout or rollback would reach.

    Attributes:
        min_reached: Least number of reached boards for success.
    """

    action: Literal["deploy", "rollback"] = member(choice("deploy", "rollback"))
    rollout: str = member(text())
    app: str = member(text())
    boards: tuple[RehearsedBoard, ...] = member(records(RehearsedBoard))
    min_reached: int = member(fields.count, absent=0)
    schema: str = member(choice("edgekit.fleet.rehearsal/1"), default="edgekit.fleet.rehearsal/1")


def rollout_document(rollout: Rollout, *, driven: bool, notes: Sequence[str] = ()) -> FleetRollout:
    """Returns a rollout with its waves and boards.

    Args:
        rollout: The rollout.
        driven: True if a process drives it now.
        notes: Notes for people.
    """
    waves = [rollout.wave(number) for number in range(rollout.waves)]
    return FleetRollout(
        **vars(_head(rollout, driven)),
        driver=rollout.facts.driver,
        waves=tuple(WaveCounts(n, len(wave), _counts(wave)) for n, wave in enumerate(waves, 1)),
        boards=tuple(map(_board, rollout.boards.values())),
        notes=tuple(notes),
    )


def rollout_listing(store: RolloutStore, ansible: Sequence[AnsibleHead] = ()) -> FleetListing:
    """Returns all rollouts, with Ansible's in ``ansible``."""
    heads = tuple(_head(rollout, rollout.is_driven()) for rollout in store.rollouts())
    return FleetListing(heads, tuple(ansible))


def _head(rollout: Rollout, driven: bool) -> RolloutHead:
    facts = rollout.facts
    return RolloutHead(
        rollout=facts.name,
        app=facts.app,
        state=facts.state,
        wave=facts.wave + 1,
        config=facts.config,
        inventory=facts.inventory,
        select=facts.selector,
        settings=facts.settings,
        created_at=iso_time(facts.created_at),
        updated_at=iso_time(facts.updated_at),
        driven=driven,
        counts=_counts(rollout.boards.values()),
        failure=facts.error,
        folder=rollout.folder,
    )


def _board(row: Row) -> RolloutBoard:
    return RolloutBoard(
        board=row.name,
        host=row.host,
        labels=row.reached.labels,
        wave=row.wave + 1,
        state=row.state,
        # after a rollback the release's name is unknown; "serves" has its bundle
        release=None if row.state == "rolled-back" else row.release,
        serves={"done": row.digest, "rolled-back": row.before}.get(row.state, row.serves),
        digest=row.digest,
        before=row.before or None,
        attempts=row.attempts,
        bytes_sent=row.bytes_sent,
        seconds=round(row.seconds, 3),
        error=row.error,
    )


def _counts(rows: Iterable[Row]) -> dict[str, int]:
    return dict(sorted(Counter(row.state for row in rows).items()))


def iso_time(seconds: float) -> str:
    """Returns a time in seconds since 1970 as UTC, ISO 8601."""
    at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return at.isoformat(timespec="seconds")
