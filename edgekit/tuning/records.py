"""Times of earlier tunings, and the lock of a tuning's folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.documents import load_json
from edgekit.errors import DataError, UsageError
from edgekit.placement.profiles.profile import SCHEMA as PROFILE_SCHEMA
from edgekit.placement.profiles.profile import ProfileTable, table_from_json

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan
    from edgekit.tuning.trials import TunedNetwork


PROFILE_NAME = "tuned.profile.json"
LOCK_NAME = "lock"
_LONGEST_NAME = 200
_LARGEST = 256 << 20  # bytes of a table


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
    document = load_json(
        path,
        _LARGEST,
        unreadable="profile.unreadable",
        invalid="profile.unreadable",
        hint=f"give the {PROFILE_NAME} of an earlier tuning",
    )
    if not isinstance(document, dict) or document.get("schema") != PROFILE_SCHEMA:
        raise DataError(
            f"not a file of schema {PROFILE_SCHEMA}",
            code="profile.unknown",
            where=str(path),
            hint=f"give the {PROFILE_NAME} of an earlier tuning; other profiles are for "
            "placement.profile",
        )
    return EarlierTable(path, table_from_json(document, path))


def check_network(
    table: EarlierTable, network: TunedNetwork, other: TunedNetwork | None = None
) -> str:
    """Checks, before any build, that a table belongs to a network of this tuning.

    Returns:
        A note if it belongs to the other network; else an empty string.

    Raises:
        DataError: "profile.clock"; "profile.merge": it belongs to another model or backend.
    """
    found = table.document
    if found.clock != network.clock:
        raise DataError(
            f"the earlier times are {found.clock}, but the new ones will be {network.clock}",
            code="profile.clock",
            where=str(table.path),
            hint="times from different clocks cannot be mixed; remove --from",
        )
    _require_equal(table, "backend", network.backend)
    if found.model == network.model:
        return ""
    if other is not None and found.model == other.model:
        return (
            f"the times of {table.path} are from the network {other.name} and are used only for it"
        )
    raise DataError(
        "the earlier times are from another model, or from a network that is not tried here",
        code="profile.merge",
        where=str(table.path),
        hint="rewrite.always and rewrite.enable choose the network to try; for another model "
        "remove --from",
    )


def check_conditions(table: EarlierTable, plan: Plan) -> None:
    """Checks that a table has the board, power mode and precision of a plan.

    Raises:
        DataError: "profile.merge": a condition differs.
    """
    _require_equal(table, "board", plan.target)
    _require_equal(table, "power_mode", plan.power_mode)
    _require_equal(table, "precision", plan.precision)


def _require_equal(table: EarlierTable, key: str, here: str | None) -> None:
    there = getattr(table.document, key)
    if there != here:
        raise DataError(
            f"the earlier times are from another {key.replace('_', ' ')}: "
            f"{there!r} instead of {here!r}",
            code="profile.merge",
            where=str(table.path),
            hint="give times measured on the same board under the same conditions",
        )


# One tuning per folder at a time: a flock, which the system releases when the process dies.


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Locks a folder, its journal and its application on the board for this process.

    Raises:
        UsageError: "tune.busy": another process (named in the message) tunes in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # append mode creates the file, but keeps the holder's name for the message
    with (folder / LOCK_NAME).open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = file.read(_LONGEST_NAME).decode("utf-8", "replace").strip() or "another process"
            raise UsageError(
                f"{who} is already tuning in this folder",
                code="tune.busy",
                where=str(folder),
                hint="wait for it, or use another folder: --out FOLDER",
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield
