"""What the trials of ``edgekit tune`` are called: on the board and in the history."""

from __future__ import annotations

import re

__all__ = ["NO_TRIAL", "group_of", "is_trial", "trial_name"]

_LONGEST = 64
NO_TRIAL = f"name NOT GLOB '*-tune-{'[0-9a-f]' * 6}'"
"""SQL: the result is of no trial."""
_TRIAL = re.compile(r".*-tune-[0-9a-f]{6}", re.DOTALL)


def trial_name(name: str, digest: str) -> str:
    """Returns ``NAME-tune-XXXXXX``, cut to what an application may be called.

    Args:
        name: The configuration's.
        digest: Of what tells one tuning of it from others, hexadecimal.
    """
    ending = f"-tune-{digest[:6]}"
    return name[: _LONGEST - len(ending)].rstrip("._-") + ending


def group_of(name: str) -> str:
    """Returns what results are counted together by: all tunings of a configuration are one."""
    return name[:-6] if is_trial(name) else name


def is_trial(name: str, of: str | None = None) -> bool:
    """Whether it is the name of trials; of this configuration's only where one is given."""
    if not _TRIAL.fullmatch(name):
        return False
    return of is None or trial_name(of, name[-6:]) == name
