"""VALID or INVALID: whether a measurement is worth quoting, why not, and what to do.

A measurement that nothing watched can be called VALID only for what its own times show; what could
not be seen is listed in "unchecked".
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.bench._limits import Limits, is_own, limit

if TYPE_CHECKING:
    from edgekit.targets import Target

__all__ = ["Judged", "Measured", "config_words", "verdict_of"]

AGAIN = "edgekit bench CONFIG"
"""What measures again; in a verdict, CONFIG is the file that was measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the rules look at.

    Attributes:
        facts: The measured part of the bench document, with "monitor", "power" and "trtexec".
        limits: How long is long enough.
        target: The board that the plan is for, if it is known.
        power_mode: The mode that the plan is for.
        config: What the remedies' commands take, from ``config_words``; "" where it is not known.
    """

    facts: Mapping[str, Any]
    limits: Limits
    target: Target | None = None
    power_mode: str = ""
    config: str = ""

    @property
    def clock(self) -> str:
        """Says whose clock it was."""
        return str(self.facts["clock"])

    @property
    def on_board(self) -> bool:
        """Whether a board was measured, not a CPU that imitates one."""
        return self.clock == "board-measured"

    def limit(self, name: str) -> float:
        """Returns a limit for this clock."""
        return limit(name, self.clock)

    @property
    def devices(self) -> frozenset[str]:
        """Devices that the frames ran on: "GPU", "DLA0", "DLA1"."""
        return frozenset(str(one.get("device")) for one in self.facts.get("segments") or ())

    def watched(self) -> list[Mapping[str, Any]]:
        """Returns the monitor's samples from the first measured frame to the last."""
        end = self.facts.get("duration_s")
        return [
            sample
            for sample in _rows(self.facts.get("monitor"), "samples")
            if isinstance(at := sample.get("t_s"), int | float)
            and 0 <= at <= (end if isinstance(end, int | float) else at)
        ]

    def idle(self) -> list[Mapping[str, Any]]:
        """Returns the monitor's samples of the time before, when nothing of ours ran."""
        return _rows(self.facts.get("monitor"), "idle")


@dataclass(slots=True)
class Judged:
    """What the rules found."""

    clock: str = ""
    reasons: list[dict[str, Any]] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def no(
        self, code: str, message: str, found: Any, limit: Any, remedy: str, *, by: str = "",
        option: str = "",
    ) -> None:  # fmt: skip
        """Adds a reason against the measurement.

        Args:
            code: Stable name.
            message: What is wrong.
            found: What was measured, as it is, without a unit.
            limit: What was allowed.
            remedy: What to do.
            by: The limit's name in ``targets/_bench.yaml``, so that one without a source is told to
                be edgekit's own; "" where it is none of them.
            option: What ``edgekit bench`` is to be given; it becomes part of ``command``.
        """
        if option and option not in self.options:
            self.options.append(option)
        if by and is_own(by, self.clock):
            message += " (edgekit's own limit)"
        self.reasons.append(
            {"code": code, "message": message, "found": found, "limit": limit, "remedy": remedy}
        )

    def unseen(self, text: str) -> None:
        """Adds what could not be seen."""
        if text not in self.unchecked:
            self.unchecked.append(text)


def verdict_of(measured: Measured) -> dict[str, Any]:
    """Returns {"status": "VALID" or "INVALID", "reasons", "unchecked", "command"}.

    "command" measures again with all that the reasons ask of ``edgekit bench``; "" for VALID.
    """
    from edgekit.bench import _verdict_clocks as clocks
    from edgekit.bench import _verdict_load as load
    from edgekit.bench import _verdict_times as times
    from edgekit.bench import _verdict_trtexec as trtexec

    judged = Judged(measured.clock)
    times.judge(measured, judged)
    if measured.on_board:
        clocks.judge(measured, judged)
    else:
        clocks.unjudged(measured, judged)
    load.judge(measured, judged)
    trtexec.judge(measured, judged)
    status = "INVALID" if judged.reasons else "VALID"
    for reason in judged.reasons:
        reason["remedy"] = _named(reason["remedy"], measured.config)
    again = _named(AGAIN, measured.config)
    return {
        "status": status, "reasons": judged.reasons, "unchecked": judged.unchecked,
        "command": " ".join((again, *judged.options)) if judged.reasons else "",
    }  # fmt: skip


def config_words(config: str, target: str, precision: str) -> str:
    """Returns what ``edgekit bench`` takes to measure the same again; "" without a file.

    Args:
        config: The configuration's file, or a model's.
        target: The board, which a model needs.
        precision: Of the plan, which a model needs, too.
    """
    words = [config] if config else []
    if config and not config.lower().endswith((".yaml", ".yml")):
        words += ["--target", target, "--precision", precision]
    return shlex.join(words)


def _named(remedy: str, config: str) -> str:
    """Returns a remedy whose commands name what was measured."""
    return remedy.replace(AGAIN, f"edgekit bench {config}") if config else remedy


def _rows(monitor: object, key: str) -> list[Mapping[str, Any]]:
    found = monitor.get(key) if isinstance(monitor, Mapping) else None
    return [row for row in found or () if isinstance(row, Mapping)]
