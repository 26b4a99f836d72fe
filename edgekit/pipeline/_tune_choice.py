"""Which plan a tuning measures next, and when nothing is left that is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.pipeline._tune_sweep import FAR, SWEEP, beside_best, swept

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning
    from edgekit.placement import Plan
    from edgekit.placement._trial_search import Candidate

__all__ = ["choose"]

LARGE = 60  # nodes of a problem from which on fewer placements are searched for
FEW = 6


def choose(tuning: Tuning) -> tuple[Candidate, str] | None:
    """Returns what promises most, and whose idea it is ("search", "sweep").

    None, with the tuning's status, where nothing does.
    """
    import numpy as np

    from edgekit.placement._trial_search import SIGMAS, candidates

    best, tolerance = tuning.best, tuning.wish.tolerance
    limit = best.cost(tuning.wish.objective) if best.counts else float("inf")
    enough = FEW if len(tuning.space.kernels) > LARGE else float("inf")
    tuning.tell("looking for plans that could be better")
    random: Any = np.random.default_rng([tuning.wish.seed, len(tuning.trials)])
    knowledge = tuning.knowledge()
    found = list(candidates(knowledge, tuning.known, random, enough=enough))
    tuning.bound = min((one.low for one in found), default=limit)
    worth = [one for one in found if one.low < limit * (1 - tolerance)]
    if not worth:
        beside = beside_best(tuning, knowledge, limit * (1 - tolerance))
        if beside:
            return _most(tuning, beside, limit, FAR / SIGMAS), SWEEP
        tuning.status, tuning.why = "converged", _converged(tuning, found)
        return None
    return _most(tuning, worth, limit), "search"


def _most(
    tuning: Tuning, plans: Sequence[Candidate], limit: float, doubt: float = 1.0
) -> Candidate:
    """Returns the plan that promises most, with so many times its deviation."""
    suspects = _suspects(tuning)

    def promise(one: Candidate) -> tuple[bool, float, float]:
        # a plan with the very loadable of one that failed likely fails, too
        fine = not suspects & _loadables(one.plan)
        return fine, replace(one, sd=doubt * one.sd).gain(limit), -one.mean

    return max(plans, key=promise)


def _converged(tuning: Tuning, found: Sequence[Candidate]) -> str:
    if not found:
        return "every plan that can be was tried"
    why = f"nothing that is left can be {tuning.wish.tolerance:.1%} better, by what was learnt"
    count = swept(tuning)
    return f"{why}, and {counted(count, 'plan')} beside the best were looked at" if count else why


def _suspects(tuning: Tuning) -> set[tuple[str, ...]]:
    """Returns loadables that only plans have that were dropped."""
    failed = [_loadables(trial.plan) for trial in tuning.trials if trial.dropped]
    fine = [_loadables(trial.plan) for trial in tuning.trials if trial.runs]
    return set().union(*failed) - set().union(*fine)


def _loadables(plan: Plan) -> set[tuple[str, ...]]:
    return {loadable.layers for loadable in plan.loadables}
