"""Rollouts on disk: a file of JSON lines for each. The first line is the rollout, and every further
line a change, written durably before its action. The process that drives a rollout holds a lock on
the file; other processes may read it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from edgekit import timeouts
from edgekit.config.loader import Config
from edgekit.errors import EnvironmentLack, UsageError
from edgekit.fleet.hints import action_command, state_option
from edgekit.fleet.waves import DEFAULT_WAVES, FleetBoard, RolloutSettings, State
from edgekit_device.errors import DeviceError
from edgekit_device.files import take_lock
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    anything,
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
    """A board of a rollout; only ``Rollout.set_board`` changes it.

    Attributes:
        wave: The board's wave, counted from 0.
        reached: The board of the inventory.
        before: Digest of the bundle that served before: "" for none, None while unknown.
        digest: Digest of the bundle to deploy.
        release: The release that it serves.
        attempts: Number of attempts.
        bytes_sent: Bytes sent to the board.
        seconds: Duration of the last deployment in seconds.
        error: The last error.
        cause: Why its deployment failed, if it was not rolled back.
        serves: Digest of the bundle that a failed board serves: "" for none, None if unknown.
        changed_at: Time of the last change in seconds since 1970; 0 for none.
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
    serves: str | None = member(text(), absent=None)
    changed_at: float = member(_TIME, absent=0.0)

    @property
    def host(self) -> str:
        """The board's host."""
        return self.reached.board.host


@document(frozen=True)
class Terms:
    """A deployment's health limits, and the number of releases that stay on the board."""

    keep: int = member(integer(1, 1 << 20))
    policy: Policy = member(read_policy)


def deployment_terms(config: Config) -> Terms:
    """Returns the terms that ``edgekit deploy`` sends with a bundle."""
    deploy = config.file.deploy
    return Terms(deploy.keep, deploy.health.policy())


@dataclass
class RolloutFacts:
    """The first line of a rollout's file; only ``Rollout.set`` changes it.

    Attributes:
        config: The configuration's file.
        config_digest: Digests of the configurations at the start, by path.
        bundle: A bundle file to use instead of builds.
        bundles: Digests of the built bundles, by configuration and kind of board.
        terms: Terms of the deployments, by the configuration's path.
        trust: True if boards shall trust the configuration's signing key.
        wave: The current wave, counted from 0.
        scope: The wave to roll back; None for all.
        refused: The wave with too many failures; None for none.
        canary: Number of boards of the first wave; ``waves`` has the steps.
        error: Why it stopped.
        driver: The last process that drove it.
        created_at: Seconds since 1970, like ``updated_at``.
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
    """A line of a rollout's file: new values, by JSON key, of a board or of the rollout."""

    values: Mapping[str, object] = member(mapping(anything), key="set")
    at: float = member(_TIME)
    board: str | None = member(text(), absent=None)


class Rollout:
    """A rollout read from its file; threads may share it.

    Attributes:
        path: The file.
        facts: The rollout's settings and state.
        boards: The boards by name, in their order.
    """

    def __init__(self, path: Path, text: bytes) -> None:
        self.path = path
        self._lock = threading.Lock()
        # a partial line from a power cut had no effect yet
        first, *changes = [json.loads(line) for line in text.split(b"\n")[:-1]]
        self.facts = read(RolloutFacts, first)
        self.boards = {row.name: row for row in self.facts.boards}
        for change in changes:
            self._apply(read(_Change, change))

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
        """The number of waves."""
        return 1 + max((row.wave for row in self.boards.values()), default=-1)

    def wave(self, number: int) -> list[Row]:
        """Returns the boards of a wave, in their order."""
        return [row for row in self.boards.values() if row.wave == number]

    def deploy_command(self, *more: str) -> str:
        """Returns the command that starts a new rollout with the same terms.

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
        """Changes the rollout durably."""
        self._write(_Change(write(values), time.time()))

    def set_board(self, name: str, **values: Any) -> None:
        """Changes a board's values, by JSON key, durably."""
        self._write(_Change(write(values), time.time(), name))

    def _write(self, change: _Change) -> None:
        with self._lock:
            append = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            with os.fdopen(append, "wb") as file:
                file.write(json.dumps(write(change)).encode() + b"\n")
                file.flush()
                os.fsync(append)
            self._apply(change)

    def _apply(self, change: _Change) -> None:
        changed: Row | RolloutFacts = self.facts
        if change.board is not None:
            changed = row = self.boards[change.board]
            row.changed_at = change.at
        known = {item.metadata["key"] or item.name: item for item in dataclasses.fields(changed)}
        for key, value in change.values.items():
            setattr(changed, known[key].name, known[key].metadata["rule"](value))
        self.facts.updated_at = change.at

    @property
    def _request(self) -> Path:
        return self.path.with_suffix(".request")

    def requested(self) -> str:
        """Returns another process's request: "pause", "abort" or ""."""
        try:
            return self._request.read_text()
        except FileNotFoundError:
            return ""

    def request(self, action: str) -> None:
        """Requests "pause" or "abort" from the driving process; "" withdraws the request."""
        if action:
            self._request.write_text(action)
        else:
            self._request.unlink(missing_ok=True)

    @contextlib.contextmanager
    def driven(self) -> Iterator[None]:
        """Locks the rollout for this process and reads its present state.

        Raises:
            UsageError: "fleet.driven", with the process that drives it.
        """
        with self.path.open("r+b") as file:
            # waits, because is_driven() also takes the lock for a moment
            if not take_lock(file.fileno(), timeouts.ROLLOUT_LOCK_S):
                who = _read(self.path).facts.driver or "another process"
                raise UsageError(
                    f"{self.name} is already driven by {who}",
                    code="fleet.driven",
                    where=self.name,
                    hint=f"{action_command('status', self.name, self.folder)} shows its state; "
                    f"{action_command('pause', self.name, self.folder)} stops it",
                )
            text = file.read()
            # a partial line would otherwise be continued by the next change
            file.truncate(text.rfind(b"\n") + 1)
            now = Rollout(self.path, text)
            self.facts, self.boards = now.facts, now.boards
            yield

    def is_driven(self) -> bool:
        """Returns True if a process drives it now."""
        with self.path.open("rb") as file:
            # shared, so that two queries do not take each other for a driver
            return not take_lock(file.fileno(), shared=True)


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
            raise _write_error(self.path, error) from error

    def create(
        self, facts: RolloutFacts, *, instead: Callable[[Rollout], bool] = lambda there: False
    ) -> Rollout:
        """Writes a new rollout with its boards atomically.

        Args:
            facts: The rollout.
            instead: Returns True if it may replace the existing rollout, which no process drives.

        Raises:
            FileExistsError: A rollout with that name exists.
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
            # unlike a rename, a link fails if the name exists
            os.link(new, path)
            # the new name itself must survive a power cut
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except FileExistsError:
            raise
        except OSError as error:
            raise _write_error(path, error) from error
        finally:
            new.unlink(missing_ok=True)
        return _read(path)

    def rollout(self, name: str) -> Rollout:
        """Returns a rollout's present state.

        Raises:
            KeyError: The rollout does not exist.
        """
        # a name of the command line must not lead out of the folder
        path = self.path / f"{Path(name).name}.jsonl"
        try:
            return _read(path)
        except FileNotFoundError:
            raise KeyError(name) from None

    def has(self, name: str) -> bool:
        """Returns True if a rollout has the name."""
        return (self.path / f"{Path(name).name}.jsonl").is_file()

    def rollouts(self) -> list[Rollout]:
        """Returns all rollouts, newest first."""
        found = [_read(path) for path in self.path.glob("[!.]*.jsonl")]
        return sorted(found, key=lambda rollout: rollout.facts.created_at, reverse=True)


def _write_error(path: Path, error: OSError) -> EnvironmentLack:
    return EnvironmentLack(
        f"cannot save the fleet's state: {error}",
        code="fleet.state",
        where=str(path),
        hint="give a writable folder on a local disk: --state FOLDER",
    )
