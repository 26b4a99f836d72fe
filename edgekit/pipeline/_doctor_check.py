"""One line of ``edgekit doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of ``edgekit doctor``.

    Attributes:
        id: Stable name.
        what: What was looked for.
        status: "ok", "warn" (works, with less) or "missing" (something will not work).
        found: What was found.
        fix: What to do about it; empty when nothing is to be done.
    """

    id: str
    what: str
    status: Status
    found: str
    fix: str = ""
