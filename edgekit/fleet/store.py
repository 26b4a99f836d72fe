"""Rollouts on the disk: a file of JSON lines each. The first says what the rollout is, every other
what changed; a line is on the disk before it is acted upon. One process drives a rollout, by a lock
on that file; any other may read it. Here a rollout also becomes an ``edgekit.fleet/1``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from edgekit import timeouts
from edgekit.errors import EnvironmentLack, UsageError
from edgekit.fleet.hints import action_command, resume_command, state_option
from edgekit.fleet.waves import DEFAULT_WAVES, FleetBoard, RolloutSettings, State
from edgekit.removed import FormerDict
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    anything,
    array,
    choice,
    document,
    flag,
    integer,
    mapping,
    member,
    nullable,
    number,
    read,
    record,
    records,
    text,
    write,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.release.policy import Policy, read_policy

_SCHEMA = "edgekit.rollout/1"
_TEXT = nullable(text())
_TIME = number(0.0, 1e12)
_FAILURE = nullable(record(Failure))
_STATE = choice(*get_args(State))


@dataclass
class Row:
    """A board of a rollout; what changes of it is changed by ``Rollout.set_board`` alone.

    Attributes:
        wave: Its wave, from 0 on.
        reached: The board of the inventory.
        before: Digest that served before: "" for none, None while it is not known.
        digest: Digest of the bundle that it gets.
        release: The release that it serves.
        attempts: How often it was begun.
        bytes_sent: Bytes that were sent to it.
        seconds: How long its last deployment took.
        error: Why it is in trouble.
        cause: Why its deployment failed, of a board that was not rolled back then.
    """

    name: str = member(text())
    wave: int = member(fields.count)
    reached: FleetBoard = member(record(FleetBoard), key="member")
    state: State = member(_STATE, default="pending")
    before: str | None = member(_TEXT, default=None)
    digest: str | None = member(_TEXT, default=None)
    release: str | None = member(_TEXT, default=None)
    attempts: int = member(fields.count, default=0)
    bytes_sent: int = member(fields.count, default=0)
    seconds: float = member(_TIME, default=0.0)
    error: Failure | None = member(_FAILURE, default=None)
    cause: str = member(text(), absent="")

    @property
    def host(self) -> str:
        """The host where it is."""
        return self.reached.board.host


@document(frozen=True)
class Terms:
    """How a board judges what it gets, and how many releases stay on it."""

    keep: int = member(integer(1, 1 << 20))
    policy: Policy = member(read_policy)


@dataclass
class RolloutFacts:
    """The first line of a rollout's file, changed by ``Rollout.set`` alone.

    Attributes:
        config: The configuration's file.
        config_digest: By a configuration's path, its digest when the rollout began.
        bundle: A bundle file instead of builds.
        bundles: Digests of the bundles that were built, by configuration and kind of board.
        terms: By a configuration's path, the terms of its deployments.
        trust: Whether boards are to trust the configuration's signing key.
        wave: The wave that it is at, from 0 on.
        scope: The wave that is taken back; None for all.
        refused: The wave that had too many failures; None for none.
        canary: Boards of the first wave, as given, and ``waves``: the steps.
        error: Why it stopped.
        driver: The process that drove it last.
        created_at: Seconds since 1970, as ``updated_at``.
    """

    name: str = member(text())
    app: str = member(text())
    config: str = member(text())
    config_digest: Mapping[str, str] = member(mapping(text()))
    bundle: str | None = member(_TEXT)
    bundles: Mapping[str, str] = member(mapping(text()))
    inventory: str = member(text())
    selector: str | None = member(_TEXT)
    settings: RolloutSettings = member(record(RolloutSettings))
    terms: Mapping[str, Terms] = member(mapping(record(Terms)))
    trust: bool = member(flag)
    created_at: float = member(_TIME)
    updated_at: float = member(_TIME)
    boards: tuple[Row, ...] = member(records(Row))
    state: str = member(text(), default="paused")
    wave: int = member(fields.count, default=0)
    scope: int | None = member(nullable(fields.count), default=None)
    refused: int | None = member(fields.count, absent=None)
    canary: int = member(fields.count, absent=0)
    waves: str = member(text(), absent="")
    error: Failure | None = member(_FAILURE, default=None)
    driver: str | None = member(_TEXT, default=None)
    schema: str = member(choice(_SCHEMA), default=_SCHEMA)


@document(frozen=True)
class _Change:
    """A line of a rollout's file: new values by JSON's keys, of a board or of the rollout."""

    values: Mapping[str, object] = member(mapping(anything), key="set")
    at: float = member(_TIME)
    board: str | None = member(text(), absent=None)


class Rollout:
    """One rollout, as its file says; threads may share it.

    Attributes:
        path: The file.
        facts: What it is, and its state.
        boards: Its boards by name, in their order.
    """

    def __init__(self, path: Path, text: bytes) -> None:
        self.path = path
        self._lock = threading.Lock()
        # a line that a power cut left half written was not acted upon
        first, *changes = [json.loads(line) for line in text.split(b"\n")[:-1]]
        self.facts = read(RolloutFacts, first)
        self.boards = {row.name: row for row in self.facts.boards}
        for change in changes:
            self._take(read(_Change, change))

    @property
    def name(self) -> str:
        """The rollout's name."""
        return self.facts.name

    @property
    def folder(self) -> Path:
        """The folder of the state."""
        return self.path.parent.parent

    @property
    def waves(self) -> int:
        """How many waves it has."""
        return 1 + max((row.wave for row in self.boards.values()), default=-1)

    def wave(self, number: int) -> list[Row]:
        """Returns the boards of a wave, in their order."""
        return [row for row in self.boards.values() if row.wave == number]

    def deploy_command(self, *more: str) -> str:
        """Returns the command that starts a new rollout on the terms of this one.

        Args:
            more: Further options.
        """
        facts, usual = self.facts, RolloutSettings()
        settings = facts.settings
        words = ["edgekit", "fleet", "deploy", facts.config, "-i", facts.inventory]
        given: tuple[tuple[str, object, object], ...] = (
            ("--select", facts.selector, None),
            ("--bundle", facts.bundle, None),
            ("--canary", facts.canary, 0),
            ("--waves", facts.waves or DEFAULT_WAVES, DEFAULT_WAVES),
            ("--max-failures", settings.budget, usual.budget),
            ("--parallel", settings.parallel, usual.parallel),
            ("--soak", f"{settings.soak_s:g}", f"{usual.soak_s:g}"),
            ("--deadline", f"{settings.deadline_s:g}", f"{usual.deadline_s:g}"),
            ("--offline", settings.offline, usual.offline),
            ("--min-reached", settings.min_reached, usual.min_reached),
        )
        for option, value, default in given:
            words += [option, str(value)] if value != default else []
        flags = (("--trust-key", facts.trust), ("--again", settings.again))
        words += [flag for flag, is_set in flags if is_set and flag not in more]
        return shlex.join([*words, *more, *state_option(self.folder)])

    def set(self, **values: Any) -> None:
        """Changes the rollout; durable when it returns."""
        self._write(_Change(write(values), time.time()))

    def set_board(self, name: str, **values: Any) -> None:
        """Changes a board, by JSON's keys; durable when it returns."""
        self._write(_Change(write(values), time.time(), name))

    def _write(self, change: _Change) -> None:
        with self._lock:
            append = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            with os.fdopen(append, "wb") as file:
                file.write(json.dumps(write(change)).encode() + b"\n")
                file.flush()
                os.fsync(append)
            self._take(change)

    def _take(self, change: _Change) -> None:
        changed = self.facts if change.board is None else self.boards[change.board]
        known = {item.metadata["key"] or item.name: item for item in dataclasses.fields(changed)}
        for key, value in change.values.items():
            setattr(changed, known[key].name, known[key].metadata["rule"](value))
        self.facts.updated_at = change.at

    @property
    def _request(self) -> Path:
        return self.path.with_suffix(".request")

    def requested(self) -> str:
        """Returns "pause", "abort" or ""; what another process wants of the driver."""
        try:
            return self._request.read_text()
        except FileNotFoundError:
            return ""

    def request(self, action: str) -> None:
        """Asks the driver for "pause" or "abort"; "" takes that back."""
        if action:
            self._request.write_text(action)
        else:
            self._request.unlink(missing_ok=True)

    @contextlib.contextmanager
    def driven(self) -> Iterator[None]:
        """Holds the rollout for this process, and reads it as the last driver left it.

        Raises:
            UsageError: "fleet.driven": another process drives it, and which.
        """
        with self.path.open("r+b") as file:
            if not _held(file.fileno()):
                who = _read(self.path).facts.driver or "another process"
                raise UsageError(
                    f"{self.name} is already driven by {who}",
                    code="fleet.driven",
                    where=self.name,
                    hint=f"{action_command('status', self.name, self.folder)} shows its state; "
                    f"{action_command('pause', self.name, self.folder)} stops it",
                )
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)
            now = Rollout(self.path, text)
            self.facts, self.boards = now.facts, now.boards
            yield

    def is_driven(self) -> bool:
        """Whether some process drives it now."""
        with self.path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def _held(descriptor: int) -> bool:
    # is_driven() holds it for a moment, too
    for pause in timeouts.ROLLOUT_LOCK_S:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(pause)
    return False


def _read(path: Path) -> Rollout:
    try:
        return Rollout(path, path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, DeviceError) as error:
        raise EnvironmentLack(
            f"the state of a rollout cannot be read: {error}",
            code="fleet.state",
            where=str(path),
            hint="use the edgekit version that wrote it, or give another folder: --state FOLDER",
        ) from error


class RolloutStore:
    """The rollouts of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "rollouts"
        if (old := folder / "fleet.db").exists():
            raise EnvironmentLack(
                "the rollouts in this folder are from an older edgekit",
                code="fleet.state",
                where=str(old),
                hint="finish them with that version, or give another folder: --state FOLDER",
            )
        try:
            for made in (self.path, folder / "bundles"):
                made.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _not_writable(self.path, error) from error

    def create(
        self, facts: RolloutFacts, *, instead: Callable[[Rollout], bool] = lambda there: False
    ) -> Rollout:
        """Writes a rollout with its boards, all at once.

        Args:
            facts: The rollout.
            instead: Whether it takes the place of one of that name, which no process drives.

        Raises:
            FileExistsError: There is one of that name.
        """
        path = self.path / f"{facts.name}.jsonl"
        new = self.path / f".{os.getpid()}.new"
        if path.exists():
            with (there := _read(path)).driven():
                if instead(there):
                    path.unlink()
        try:
            with new.open("wb") as file:
                file.write(json.dumps(write(facts)).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(new, path)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except FileExistsError:
            raise
        except OSError as error:
            raise _not_writable(path, error) from error
        finally:
            new.unlink(missing_ok=True)
        return _read(path)

    def rollout(self, name: str) -> Rollout:
        """Returns a rollout as it is now; KeyError when there is none."""
        path = self.path / f"{Path(name).name}.jsonl"
        try:
            return _read(path)
        except FileNotFoundError:
            raise KeyError(name) from None

    def rollouts(self) -> list[Rollout]:
        """Returns all, the newest first."""
        found = [_read(path) for path in self.path.glob("[!.]*.jsonl")]
        return sorted(found, key=lambda rollout: rollout.facts.created_at, reverse=True)


def _not_writable(path: Path, error: OSError) -> EnvironmentLack:
    return EnvironmentLack(
        f"cannot save the fleet's state: {error}",
        code="fleet.state",
        where=str(path),
        hint="give a writable folder on a local disk: --state FOLDER",
    )


@document(frozen=True)
class RolloutHead:
    """A rollout.

    Attributes:
        wave: The wave that it is at, from 1 on.
        select: Which boards of the inventory.
        created_at: UTC, ISO 8601, as ``updated_at``.
        driven: Whether a process drives it now.
        counts: Boards by state.
        failure: Why it stopped.
        folder: The state's, for commands; not in JSON.
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
        """Returns the command of an action on it, for a user to copy."""
        return action_command(action, self.rollout, self.folder, *more)

    @property
    def resume_command(self) -> str:
        """The command by which it goes on."""
        return resume_command(self.rollout, self.folder, self.failure.code if self.failure else "")


@document(frozen=True)
class WaveCounts:
    """A wave: how many boards it has, and how many are in each state.

    Attributes:
        wave: Its number, from 1 on.
        boards: How many boards it has.
        counts: How many boards are in each state.
    """

    wave: int = member(fields.count)
    boards: int = member(fields.count)
    counts: Mapping[str, int] = member(mapping(fields.count))


@document(frozen=True)
class RolloutBoard:
    """A board of a rollout.

    Attributes:
        wave: Its wave, from 1 on.
        release: What it was given; None where it went back.
        serves: Digest of what it was last known to serve: "" for nothing, None for unknown.
        digest: Digest of the bundle that it gets.
        before: Digest of what served before.
        attempts: How often it was tried.
        bytes_sent: Bytes that were sent to it.
        seconds: How long its last deployment took.
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
        driver: The process that drove it last.
        notes: For people.
        requested: After a request to pause or abort it, the state that it reaches; not in JSON.
    """

    driver: str | None = member(_TEXT)
    waves: tuple[WaveCounts, ...] = member(records(WaveCounts))
    boards: tuple[RolloutBoard, ...] = member(records(RolloutBoard))
    notes: tuple[str, ...] = member(array(text()))
    schema: str = member(choice("edgekit.fleet/1"), default="edgekit.fleet/1")
    requested: str = field(default="", compare=False)


@document(frozen=True)
class FleetListing(FormerDict):
    """``edgekit.fleets/1``: all rollouts, the newest first."""

    rollouts: tuple[RolloutHead, ...] = member(records(RolloutHead))
    schema: str = member(choice("edgekit.fleets/1"), default="edgekit.fleets/1")


@document(frozen=True)
class RehearsedBoard:
    """A board that a rollout would change: ``before`` and ``after`` are bundles' digests.

    Attributes:
        wave: Its wave, from 1 on.
    """

    board: str = member(text())
    host: str = member(text())
    wave: int = member(fields.count)
    before: str | None = member(_TEXT, key="from", default=None)
    after: str | None = member(_TEXT, key="to", default=None)


@document(frozen=True)
class Rehearsal(FormerDict):
    """``edgekit.fleet.rehearsal/1``: the boards that a rollout or its way back would reach.

    Attributes:
        min_reached: How many of them have to be reached, or the rollout is not done.
    """

    action: Literal["deploy", "rollback"] = member(choice("deploy", "rollback"))
    rollout: str = member(text())
    app: str = member(text())
    boards: tuple[RehearsedBoard, ...] = member(records(RehearsedBoard))
    min_reached: int = member(fields.count, absent=0)
    schema: str = member(choice("edgekit.fleet.rehearsal/1"), default="edgekit.fleet.rehearsal/1")


def document_of(rollout: Rollout, *, driven: bool, notes: Sequence[str] = ()) -> FleetRollout:
    """Returns a rollout with its waves and boards.

    Args:
        rollout: The rollout.
        driven: Whether a process drives it now.
        notes: What a person should know.
    """
    waves = [rollout.wave(number) for number in range(rollout.waves)]
    return FleetRollout(
        **vars(_head(rollout, driven)),
        driver=rollout.facts.driver,
        waves=tuple(WaveCounts(n, len(wave), _counts(wave)) for n, wave in enumerate(waves, 1)),
        boards=tuple(map(_board, rollout.boards.values())),
        notes=tuple(notes),
    )


def listing_of(store: RolloutStore) -> FleetListing:
    """Returns all rollouts."""
    return FleetListing(tuple(_head(one, one.is_driven()) for one in store.rollouts()))


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
        created_at=_time(facts.created_at),
        updated_at=_time(facts.updated_at),
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
        # the release's name on a board that went back is unknown: "serves" has its bundle
        release=None if row.state == "rolled-back" else row.release,
        # what serves on a board that failed was not queried
        serves={"done": row.digest, "rolled-back": row.before}.get(row.state),
        digest=row.digest,
        before=row.before or None,
        attempts=row.attempts,
        bytes_sent=row.bytes_sent,
        seconds=round(row.seconds, 3),
        error=row.error,
    )


def _counts(rows: Iterable[Row]) -> dict[str, int]:
    return dict(sorted(Counter(row.state for row in rows).items()))


def _time(seconds: float) -> str:
    at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return at.isoformat(timespec="seconds")
