"""Times of earlier tunings (``--from``): each counts for the network that it was measured of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgekit._files import parse_json, regular
from edgekit.errors import DataError

if TYPE_CHECKING:
    from edgekit.pipeline._tune_forms import Source
    from edgekit.placement import Plan

__all__ = ["PROFILE_NAME", "Table", "belongs", "read_table", "same_conditions"]

PROFILE_NAME = "tuned.profile.json"


@dataclass(frozen=True)
class Table:
    """An ``edgekit.profile/1`` and its file."""

    path: Path
    document: Mapping[str, Any]


class Networks(Protocol):
    """Whose networks are tuned: a ``BoardMeasurer``."""

    @property
    def clock(self) -> str: ...

    @property
    def backend(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def other(self) -> Source | None: ...


def read_table(path: Path) -> Table:
    """Reads a table.

    Raises:
        DataError: "profile.unreadable", "profile.unknown" or "profile.time".
    """
    from edgekit.placement._profile_table import SCHEMA, check_table

    try:
        document = parse_json(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            "cannot read the measured times", code="profile.unreadable", where=str(path),
            hint=f"give the {PROFILE_NAME} of an earlier tuning",
        ) from error  # fmt: skip
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise DataError(
            f"this is no {SCHEMA}", code="profile.unknown", where=str(path),
            hint=f"give the {PROFILE_NAME} of an earlier tuning; other profiles are for "
            "placement.profile",
        )  # fmt: skip
    return Table(path, check_table(document, path))


def belongs(table: Table, networks: Networks) -> str:
    """Checks, before anything is built, that a table is of one of the networks that are tried.

    Returns:
        A note where it is of the other one; else nothing.

    Raises:
        DataError: "profile.clock"; "profile.merge": it is of another model or backend.
    """
    found = table.document
    if found.get("clock") != networks.clock:
        raise DataError(
            f"the earlier times are {found.get('clock')}, these will be {networks.clock}",
            code="profile.clock", where=str(table.path),
            hint="times of different clocks are never mixed",
        )  # fmt: skip
    _same(table, "backend", networks.backend)
    if found.get("model") == networks.model:
        return ""
    other = networks.other
    if other is not None and found.get("model") == other.model:
        return f"the times of {table.path} are of the network {other.name} and count for that one"
    raise DataError(
        "the earlier times are of another model, or of a network that is not tried here",
        code="profile.merge", where=str(table.path),
        hint="rewrite.always and rewrite.enable say which network is tried; leave --from away "
        "for another model",
    )  # fmt: skip


def same_conditions(table: Table, plan: Plan) -> None:
    """Checks that a table is of the board, power mode and precision of a plan.

    Raises:
        DataError: "profile.merge": it is not.
    """
    _same(table, "board", plan.target)
    _same(table, "power_mode", plan.power_mode)
    _same(table, "precision", plan.precision)


def _same(table: Table, key: str, here: str | None) -> None:
    if table.document.get(key) != here:
        raise DataError(
            f"the earlier times are of another {key.replace('_', ' ')}: "
            f"{table.document.get(key)!r}, and here it is {here!r}",
            code="profile.merge", where=str(table.path),
            hint="give what the same board measured under the same conditions",
        )  # fmt: skip
