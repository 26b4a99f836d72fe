"""The end of a tuning: the first and the best plan in turns, and which of them stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.errors import EdgekitError, EnvironmentLack
from edgekit.pipeline._tune_values import better_by

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning

__all__ = ["decide"]


def decide(tuning: Tuning) -> None:
    """Measures the first and the best plan in turns, and sets the tuning's ``duel``.

    Raises:
        EnvironmentLack: Nothing can be measured any more.
    """
    first, best = tuning.first, tuning.best
    if best is first:
        tuning.duel = {"winner": first.number, "fraction": 0.0, "low": None, "high": None,
                       "turns": 0, "better": False}  # fmt: skip
        return
    if first.breaks and not best.breaks:
        tuning.notes.append(f"the starting plan breaks a bound: {first.breaks[0]}")
    ours: list[float] = []
    theirs: list[float] = []
    took = 2 * tuning.again_s
    for turn in range(tuning.wish.turns):
        before = tuning.seconds
        if tuning.wish.budget_s is not None and turn and tuning.wish.budget_s - before < took:
            tuning.notes.append(f"the budget ended the turns after {turn} of {tuning.wish.turns}")
            break
        tuning.tell(f"turn {turn + 1} of {tuning.wish.turns}: {first.name} and {best.name}")
        order = (first, best) if turn % 2 == 0 else (best, first)
        try:
            cost = {trial.number: tuning.measure(trial) for trial in order}
        except EnvironmentLack:
            raise
        except EdgekitError as error:
            tuning.notes.append(f"the turns ended early: {error.message}")
            break
        took = max(took, tuning.seconds - before)
        ours.append(cost[best.number])
        theirs.append(cost[first.number])
    found = better_by(ours, theirs, seed=tuning.wish.seed)
    wins = found["better"] or bool(first.breaks and not best.breaks)
    tuning.duel = {**found, "winner": (best if wins else first).number, "challenger": best.number}
    if wins:
        return
    short = len(ours) < 5
    tuning.notes.append(
        f"{best.name} looked better than the starting plan, and "
        + (f"{len(ours)} turns prove nothing" if short else "was not so in turns")
        + ": the starting plan stays"
    )
