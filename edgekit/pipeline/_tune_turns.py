"""The end of a tuning: the first and the best plan in turns, and which of them stays.

A turn that was measured counts for good, also in a command that carries the tuning on: what was
proven once is not lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgekitError, EnvironmentLack
from edgekit.pipeline._tune_values import better_by

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning
    from edgekit.pipeline._tune_trials import Trial

__all__ = ["decide", "settle"]


def decide(tuning: Tuning) -> None:
    """Measures the first and the best plan in turns, and sets the tuning's ``duel``.

    Raises:
        EnvironmentLack: Nothing can be measured any more.
    """
    first, best = tuning.first, tuning.best
    if best is not first:
        if first.breaks and not best.breaks:
            tuning.notes.append(f"the starting plan breaks a bound: {first.breaks[0]}")
        _measure(tuning, best)
    if settle(tuning):
        return
    wins = bool(first.breaks and not best.breaks)
    other = best if wins or tuning.pairs(best) else _last(tuning) or best
    found = _found(tuning, other)
    tuning.duel = {**found, "winner": (best if wins else first).number}
    if wins or other is first:
        return
    turns = found["turns"]
    tuning.notes.append(
        f"{other.name} looked better than the starting plan, and "
        + (f"{turns} turns prove nothing" if turns < 5 else "was not so in turns")
        + ": the starting plan stays"
    )


def settle(tuning: Tuning) -> bool:
    """Sets the ``duel`` of the plan that was proven best in turns; False where none was."""
    found = [
        _found(tuning, trial)
        for trial in tuning.trials
        if trial is not tuning.first and trial.counts
    ]
    proven = [one for one in found if one["better"]]
    if not proven:
        return False
    best = max(proven, key=lambda one: float(one["fraction"]))
    tuning.duel = {**best, "winner": best["challenger"]}
    return True


def _last(tuning: Tuning) -> Trial | None:
    """Returns the plan of the newest turn: its turns may be why the first is the best now."""
    for turn in sorted(tuning.turns, reverse=True):
        for trial in tuning.trials:
            if trial.number in tuning.turns[turn] and tuning.pairs(trial):
                return trial
    return None


def _found(tuning: Tuning, trial: Trial) -> dict[str, Any]:
    """Returns how a plan did beside the first in all turns of the two."""
    pairs = tuning.pairs(trial)
    ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
    return {**better_by(ours, theirs, seed=tuning.wish.seed), "challenger": trial.number}


def _measure(tuning: Tuning, best: Trial) -> None:
    """Measures the turns that are not known yet, as far as the budget goes."""
    first, budget = tuning.first, tuning.wish.budget_s
    took = 2 * tuning.again_s
    for turn in range(len(tuning.pairs(best)), tuning.wish.turns):
        before = tuning.seconds
        if budget is not None and budget - before < took:
            tuning.notes.append(f"the budget ended the turns after {turn} of {tuning.wish.turns}")
            return
        tuning.tell(f"turn {turn + 1} of {tuning.wish.turns}: {first.name} and {best.name}")
        number = 1 + max(tuning.turns, default=0)
        try:
            for trial in (first, best) if turn % 2 == 0 else (best, first):
                tuning.measure(trial, number)
        except EnvironmentLack:
            raise
        except EdgekitError as error:
            tuning.notes.append(f"the turns ended early: {error.message}")
            return
        took = max(took, tuning.seconds - before)
