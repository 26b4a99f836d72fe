"""How a tuning ended: kept in its journal, and told again where nothing was measured since."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning

__all__ = ["end"]

_TOLD = ("status", "why", "bound")


def end(tuning: Tuning, told: int) -> None:
    """Keeps how it ended, or takes over how the one before did that left nothing to measure.

    Args:
        tuning: One that is decided.
        told: How many of its notes are not of its search and its turns.
    """
    before = tuning.ended
    if before is None:
        facts = {name: getattr(tuning, name) for name in _TOLD}
        tuning.note({"event": "end", **facts, "notes": tuning.notes[told:]})
    elif tuning.status != "converged":
        # rounds and budget end this command; what ended the tuning was known before
        for name in _TOLD:
            setattr(tuning, name, before[name])
        tuning.notes[told:] = before["notes"]
