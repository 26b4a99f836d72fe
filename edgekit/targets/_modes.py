"""Power modes by NVIDIA's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.targets._types import PowerMode, Target

__all__ = ["find_mode"]

_PREFIX = "MODE_"


def _plain(name: str) -> str:
    return name.strip().upper().replace(" ", "_").removeprefix(_PREFIX)


def find_mode(target: Target, name: str | None = None) -> PowerMode:
    """Returns the power mode called ``name``.

    ``MODE_`` in front is optional and case does not matter ("mode_30w" is "30W"; "MAXN SUPER", as
    some tools print it, is "MAXN_SUPER"). Without a name: MAXN where the board has it, otherwise
    the mode the board starts in.

    Raises:
        UsageError: The board has no such mode (code ``target.mode``).
    """
    modes = target.power_modes
    if name is None:
        default = next((m for m in modes.values() if m.default), next(iter(modes.values())))
        return modes.get("MAXN", default)
    found = modes.get(_plain(name))
    if found is not None:
        return found
    from difflib import get_close_matches

    near = get_close_matches(_plain(name), list(modes), n=1, cutoff=0.4)
    guess = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"there is no power mode {name!r}",
        code="target.mode",
        where=target.name,
        hint=f"{guess}its modes are {', '.join(modes)}",
    )
