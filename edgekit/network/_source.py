"""How a user names what is no file."""

from __future__ import annotations

from edgekit.errors import UsageError

__all__ = ["PYTHON", "parse_builtin"]

#: In the place of data, before a function of a module: ``python:module:function``.
PYTHON = "python:"
_BUILTIN = "builtin:"
_DIGITS = 20  # a seed has 64 bits


def parse_builtin(source: str) -> tuple[str, int] | None:
    """Returns name and seed of "builtin:NAME?seed=N"; None where ``source`` is none of these.

    Raises:
        UsageError: The seed is no number.
    """
    if not source.startswith(_BUILTIN):
        return None
    name, _, seed = source.removeprefix(_BUILTIN).partition("?seed=")
    if seed and not (seed.isdecimal() and len(seed) < _DIGITS):
        raise UsageError(f"{seed!r} is not a seed", where=source, hint=f"{_BUILTIN}{name}?seed=1")
    return name, int(seed or 0)
