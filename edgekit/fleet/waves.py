"""Values of a rollout (boards, states, settings) and its waves: the order of the boards, their
number at a time, and the allowed failures.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from edgekit.deployment.board import Board
from edgekit.errors import UsageError
from edgekit.timeouts import ROLLOUT_RETRIES_S
from edgekit_device.protocol import codec
from edgekit_device.protocol.codec import (
    choice,
    document,
    flag,
    integer,
    mapping,
    nullable,
    number,
    path,
    record,
    text,
)

State = Literal[
    "pending", "running", "done", "failed", "offline", "rolled-back", "skipped", "aborted"
]
"""Of one board in a rollout. "offline" is tried again until the deadline."""

#: States of a board with remaining work.
LEFT = ("pending", "running", "offline")

#: States of a rollout without remaining work.
ENDED = ("done", "failed", "aborted", "rolled-back")
DEFAULT_WAVES = "10%,50%,100%"

#: Share of a rollout's boards to reach, rounded down, at least one.
MIN_REACHED = "80%"
_STEP = re.compile(r"\s*(\d+)\s*(%?)\s*")
_SECONDS = number(0.0, 1e12)


@document(frozen=True)
class AssignedRelease:
    """The release that an inventory assigns to a board.

    Attributes:
        bundle: The bundle's file.
        config: The bundle's configuration, unless the board has its own.
    """

    bundle: Path = codec.member(path)
    config: Path | None = codec.member(nullable(path), default=None)


@document(frozen=True)
class FleetBoard:
    """A board of an inventory; a rollout's state stores it as JSON, without secrets.

    Attributes:
        board: The board's address.
        labels: Labels for selectors; a group of Ansible is a label without a value.
        config: The board's own configuration, instead of the command's.
        where: The board's place in the inventory.
        release: The assigned release, for ``edgekit fleet apply``.
    """

    board: Board = codec.member(record(Board))
    labels: Mapping[str, str] = codec.member(mapping(text()), default=dict)
    config: Path | None = codec.member(nullable(path), default=None)
    where: str = codec.member(text(), default="")
    release: AssignedRelease | None = codec.member(record(AssignedRelease), absent=None)

    @property
    def name(self) -> str:
        """The board's name."""
        return self.board.name


@document(frozen=True)
class RolloutSettings:
    """Settings of a rollout.

    Attributes:
        parallel: Number of boards at a time.
        budget: Boards of a wave that may fail: "2", or "10%" of the wave.
        soak_s: Seconds to watch a wave before the next starts.
        deadline_s: Seconds to retry an unreachable board.
        offline: Treatment of a board that stays unreachable: "skip" or "fail".
        retry_s: First wait before a retry, in seconds; doubled each time, up to ``most_s``.
        most_s: Longest wait before a retry, in seconds.
        again: Deploy a bundle even if the board took it back.
        min_reached: Boards to reach for success: "12" or "80%".
    """

    parallel: int = codec.member(integer(1, 1 << 20), default=8)
    budget: str = codec.member(text(), default="0")
    soak_s: float = codec.member(_SECONDS, default=0.0)
    deadline_s: float = codec.member(_SECONDS, default=ROLLOUT_RETRIES_S)
    offline: Literal["skip", "fail"] = codec.member(choice("skip", "fail"), default="skip")
    retry_s: float = codec.member(_SECONDS, default=5.0)
    most_s: float = codec.member(_SECONDS, default=120.0)
    again: bool = codec.member(flag, default=False)
    min_reached: str = codec.member(text(), default=MIN_REACHED)


def make_waves(members: Sequence[FleetBoard], canary: int, waves: str) -> list[list[FleetBoard]]:
    """Returns the boards of each wave.

    Args:
        members: All boards, in the inventory's order.
        canary: Number of boards of an extra first wave, taken from each ``kind`` in turn, so that
            every kind is tried early; 0 for none.
        waves: Cumulative size after each wave: ``10%,50%,100%`` or numbers of boards. Percentages
            include canaries and are rounded up; empty waves are left out.

    Raises:
        UsageError: The steps do not increase, or do not end with all boards.
    """
    ends = _wave_ends(waves, len(members))
    ordered = _kinds_first(members, canary)
    made, at = [], 0
    for end in [min(canary, len(members)), *ends]:
        if end > at:
            made.append(ordered[at:end])
            at = end
    return made


def _wave_ends(waves: str, count: int) -> list[int]:
    ends, last = [], (0.0, "0")
    for step in waves.split(","):
        found = _STEP.fullmatch(step)
        number = int(found[1]) if found else 0
        if found is None or number < 1 or (found[2] and number > 100):
            raise _waves_error(
                f"--waves {waves!r}: {step.strip()!r} is neither a number of boards nor a "
                "percentage"
            )
        # shares, because numbers and percentages may be mixed
        share = number / 100 if found[2] else min(1.0, number / count)
        if share < last[0]:
            raise _waves_error(f"--waves {waves!r}: {step.strip()} comes after {last[1]}")
        last = (share, step.strip())
        # rounded up: 10 % of 3 boards is a board, not an empty wave
        ends.append(-(-number * count // 100) if found[2] else min(number, count))
    if ends[-1] < count:
        raise _waves_error(f"--waves {waves!r} ends at {ends[-1]} of {count} boards")
    return ends


def _waves_error(message: str) -> UsageError:
    hint = f"each step is the total so far, and the last is 100%: --waves {DEFAULT_WAVES}"
    return UsageError(message, code="fleet.waves", hint=hint)


def _kinds_first(members: Sequence[FleetBoard], canary: int) -> list[FleetBoard]:
    kinds: dict[str, list[FleetBoard]] = defaultdict(list)
    for member in members:
        kinds[member.labels.get("kind", "")].append(member)
    first: list[FleetBoard] = []
    while len(first) < min(canary, len(members)):
        for rows in kinds.values():
            if rows and len(first) < canary:
                first.append(rows.pop(0))
    taken = {member.name for member in first}
    return [*first, *(member for member in members if member.name not in taken)]


def check_budget(text: str) -> None:
    """Raises UsageError unless ``text`` is a number of boards or a percentage."""
    _share(text, "--max-failures", "fleet.budget", "--max-failures 2, or --max-failures 5%")


def allowed_failures(budget: str, size: int) -> int:
    """Returns the allowed failures of a wave of ``size`` boards; percentages are rounded down."""
    number, percent = _share(budget, "--max-failures", "fleet.budget", "")
    return number * size // 100 if percent else number


def least_reached(text: str, count: int) -> int:
    """Returns the least number of ``count`` boards to reach; percentages above 0 are rounded down,
    to at least one board.

    Raises:
        UsageError: The text is neither a number nor a percentage, or exceeds ``count``.
    """
    hint = f"--min-reached {count}, or --min-reached {MIN_REACHED}"
    number, percent = _share(text, "--min-reached", "fleet.min-reached", hint)
    if percent:
        return max(number * count // 100, min(number, 1))
    if number > count:
        raise UsageError(
            f"--min-reached {text} is more than the rollout's {count} boards",
            code="fleet.min-reached",
            hint=hint,
        )
    return number


def _share(text: str, option: str, code: str, hint: str) -> tuple[int, bool]:
    """Returns a number, and True if it is a percentage."""
    found = _STEP.fullmatch(text)
    if found is None or (found[2] and int(found[1]) > 100):
        message = f"{option} {text!r} is neither a number of boards nor a percentage"
        raise UsageError(message, code=code, hint=hint)
    return int(found[1]), bool(found[2])
