"""What a tuning reads and keeps in its folder: the journal, one JSON line for each thing done and
on disk before the next begins; times of earlier tunings; the lock that keeps others out.

A tuning that was cut off reads its journal and goes on; a line that a power cut left half, or that
was changed since, is left out: each ends with a digest of itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError, UsageError
from edgekit.files import parse_json, read_file
from edgekit.placement.profiles.profile import SCHEMA as PROFILE_SCHEMA
from edgekit.placement.profiles.profile import ProfileTable, table_from_json

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan
    from edgekit.tuning.trials import TunedNetwork


SCHEMA = "edgekit.tune.journal/1"
_SUM = ',"sum":"'
PROFILE_NAME = "tuned.profile.json"
LOCK_NAME = "lock"
_LONGEST_NAME = 200
_LARGEST = 256 << 20  # bytes of a table, or of the record of trials


class TuningJournal:
    """Lines of one tuning, which its identity distinguishes from others.

    Args:
        path: The file.
        identity: What the measurements depend on; a journal of another one is set aside as
            ``NAME.old``.
        anew: Whether to set aside what there is in any case.
        keeps: Leave the file of another one as it is; then nothing may be added.

    Attributes:
        entries: What was done.
        damaged: How many lines are left out.
    """

    def __init__(
        self, path: Path, identity: str, *, anew: bool = False, keeps: bool = False
    ) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self.damaged = 0
        lines = list(self._lines())
        same = lines and lines[0].get("identity") == identity and not anew
        if same:
            self.entries = lines[1:]
        elif keeps:
            return
        elif path.exists():
            os.replace(path, path.with_name(f"{path.name}.old"))
        if not self.entries:
            path.unlink(missing_ok=True)
            self._write({"schema": SCHEMA, "identity": identity})
        else:
            self._end_line()

    def add(self, entry: Mapping[str, Any]) -> None:
        """Keeps an entry, durably."""
        self.entries.append(dict(entry))
        self._write(entry)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Returns the entries of an "event"."""
        return [entry for entry in self.entries if entry.get("event") == kind]

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            body = json.dumps(entry, separators=(",", ":"))[:-1]
            file.write(f'{body}{_SUM}{_sum(body)}"}}\n')
            file.flush()
            os.fsync(file.fileno())

    def _end_line(self) -> None:
        """What follows a half line begins a line of its own."""
        with self.path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = read_file(self.path, _LARGEST).decode("utf-8", "replace")
        except OSError:
            return
        for line in text.split("\n"):
            body, mark, rest = line.rpartition(_SUM)
            if mark and rest == f'{_sum(body)}"}}':
                yield json.loads(body + "}")
            elif line:
                self.damaged += 1


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:12]


@dataclass(frozen=True)
class EarlierTable:
    """An ``edgekit.profile/1`` and its file."""

    path: Path
    document: ProfileTable


def read_table(path: Path) -> EarlierTable:
    """Reads a table.

    Raises:
        DataError: "profile.unreadable", "profile.unknown" or "profile.time".
    """
    try:
        document = parse_json(read_file(path, _LARGEST))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            "cannot read the measured times", code="profile.unreadable", where=str(path),
            hint=f"give the {PROFILE_NAME} of an earlier tuning",
        ) from error  # fmt: skip
    if not isinstance(document, dict) or document.get("schema") != PROFILE_SCHEMA:
        raise DataError(
            f"not a file of schema {PROFILE_SCHEMA}", code="profile.unknown", where=str(path),
            hint=f"give the {PROFILE_NAME} of an earlier tuning; other profiles are for "
            "placement.profile",
        )  # fmt: skip
    return EarlierTable(path, table_from_json(document, path))


def check_network(
    table: EarlierTable, network: TunedNetwork, other: TunedNetwork | None = None
) -> str:
    """Checks, before anything is built, that a table is of one of the networks that are tried.

    Returns:
        A note where it is of the other one; else nothing.

    Raises:
        DataError: "profile.clock"; "profile.merge": it is of another model or backend.
    """
    found = table.document
    if found.clock != network.clock:
        raise DataError(
            f"the earlier times are {found.clock}, but the new ones will be {network.clock}",
            code="profile.clock", where=str(table.path),
            hint="times from different clocks cannot be mixed; remove --from",
        )  # fmt: skip
    _same(table, "backend", network.backend)
    if found.model == network.model:
        return ""
    if other is not None and found.model == other.model:
        return (
            f"the times of {table.path} are from the network {other.name} and are used only for it"
        )
    raise DataError(
        "the earlier times are from another model, or from a network that is not tried here",
        code="profile.merge", where=str(table.path),
        hint="rewrite.always and rewrite.enable choose the network to try; for another model "
        "remove --from",
    )  # fmt: skip


def check_conditions(table: EarlierTable, plan: Plan) -> None:
    """Checks that a table is of the board, power mode and precision of a plan.

    Raises:
        DataError: "profile.merge": it is not.
    """
    _same(table, "board", plan.target)
    _same(table, "power_mode", plan.power_mode)
    _same(table, "precision", plan.precision)


def _same(table: EarlierTable, key: str, here: str | None) -> None:
    there = getattr(table.document, key)
    if there != here:
        raise DataError(
            f"the earlier times are from another {key.replace('_', ' ')}: "
            f"{there!r} instead of {here!r}",
            code="profile.merge", where=str(table.path),
            hint="give times measured on the same board under the same conditions",
        )  # fmt: skip


# One tuning of a folder at a time: a flock, which the system lets go of when the process dies.


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Holds a folder for this process: its journal and its application on the board are one's.

    Raises:
        UsageError: "tune.busy": another process tunes there, and which.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_NAME).open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = file.read(_LONGEST_NAME).decode("utf-8", "replace").strip() or "another process"
            raise UsageError(
                f"{who} is already tuning in this folder", code="tune.busy", where=str(folder),
                hint="wait for it, or use another folder: --out FOLDER",
            ) from error  # fmt: skip
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield
