"""Which rewrites to try, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.rewrite._all import APPROXIMATE, rewrites
from edgekit.rewrite._raised import RAISED

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["chosen"]


def chosen(
    enable: str | Sequence[str], disable: Sequence[str], allow_approx: Sequence[str]
) -> list[Rewrite]:
    """Returns the rewrites to try; raising the opset, which may be named, is none of them.

    Raises:
        UsageError: "rewrite.unknown".
    """
    exact = [item.name for item in rewrites() if not item.name.startswith(APPROXIMATE)]
    approximate = [item.name for item in rewrites() if item.name.startswith(APPROXIMATE)]
    listed = [] if isinstance(enable, str) else list(enable)
    for name in listed:
        if name in approximate:
            raise UsageError(
                f"rewrite '{name}' changes results",
                code="rewrite.unknown",
                where="rewrite.enable",
                hint=f"allow it with --allow-approx {name} (rewrite.allow_approx)",
            )
    for key, names in (("enable", listed), ("disable", disable)):
        for name in names:
            if name not in (*exact, *approximate, RAISED):
                raise _unknown("rewrite", name, exact, key)
    for name in allow_approx:
        if name not in approximate:
            raise _unknown("approximate rewrite", name, approximate, "allow_approx")
    wanted = {*(exact if enable == "all" else listed), *allow_approx} - set(disable)
    return [item for item in rewrites() if item.name in wanted]


def _unknown(what: str, name: str, known: Sequence[str], key: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return UsageError(
        f"unknown {what} '{name}'",
        code="rewrite.unknown",
        where=f"rewrite.{key}",
        hint=f"did you mean '{near[0]}'?" if near else "`edgekit rewrite --list` has them all",
    )
