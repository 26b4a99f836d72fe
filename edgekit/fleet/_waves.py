"""Waves: which boards go first, how many at a time, and how many of them may fail."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from edgekit.errors import UsageError
from edgekit.fleet._types import Member

__all__ = ["DEFAULT_WAVES", "allowed_failures", "check_budget", "make_waves"]

DEFAULT_WAVES = "10%,50%,100%"
_STEP = re.compile(r"\s*(\d+)\s*(%?)\s*")


def make_waves(members: Sequence[Member], canary: int, waves: str) -> list[list[Member]]:
    """Returns the boards of each wave.

    Args:
        members: All boards, in the inventory's order.
        canary: Boards of a first wave of their own; they are taken from each ``kind`` in turn, so
            that every kind is tried early. 0 for none.
        waves: How far each wave brings the rollout: ``10%,50%,100%`` or numbers of boards. A
            percentage is rounded up, canaries included; a wave that would be empty is left out.

    Raises:
        UsageError: The steps do not rise, or do not end with all boards.
    """
    ends = _ends(waves, len(members))
    ordered = _kinds_first(members, canary)
    made, at = [], 0
    for end in [min(canary, len(members)), *ends]:
        if end > at:
            made.append(ordered[at:end])
            at = end
    return made


def _ends(waves: str, count: int) -> list[int]:
    ends, last = [], (0.0, "0")
    for step in waves.split(","):
        found = _STEP.fullmatch(step)
        number = int(found[1]) if found else 0
        if found is None or number < 1 or (found[2] and number > 100):
            raise _wrong(f"--waves {waves!r}: {step.strip()!r} is neither boards nor a percentage")
        share = number / 100 if found[2] else min(1.0, number / count)
        if share < last[0]:
            raise _wrong(f"--waves {waves!r}: {step.strip()} comes after {last[1]}")
        last = (share, step.strip())
        ends.append(-(-number * count // 100) if found[2] else min(number, count))
    if ends[-1] < count:
        raise _wrong(f"--waves {waves!r} ends with {ends[-1]} of {count} boards")
    return ends


def _wrong(message: str) -> UsageError:
    hint = f"each step says how far the rollout is then, the last is 100%: --waves {DEFAULT_WAVES}"
    return UsageError(message, code="fleet.waves", hint=hint)


def _kinds_first(members: Sequence[Member], canary: int) -> list[Member]:
    kinds: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        kinds[member.labels.get("kind", "")].append(member)
    first: list[Member] = []
    while len(first) < min(canary, len(members)):
        for rows in kinds.values():
            if rows and len(first) < canary:
                first.append(rows.pop(0))
    taken = {member.name for member in first}
    return [*first, *(member for member in members if member.name not in taken)]


def check_budget(text: str) -> None:
    """Raises UsageError unless ``text`` is a number of boards or a percentage."""
    found = _STEP.fullmatch(text)
    if found is None or (found[2] and int(found[1]) > 100):
        raise UsageError(
            f"--max-failures {text!r} is neither boards nor a percentage",
            code="fleet.budget",
            hint="--max-failures 2, or --max-failures 5%",
        )


def allowed_failures(budget: str, size: int) -> int:
    """Returns how many of a wave's ``size`` boards may fail; a percentage is rounded down."""
    found = _STEP.fullmatch(budget)
    assert found is not None
    number = int(found[1])
    return number * size // 100 if found[2] else number
