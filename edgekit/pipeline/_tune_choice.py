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


def choose(tuning: Tuning) -> tuple[Candidate, str, str] | None:
    """Returns what promises most, whose idea it is ("search", "sweep"), and its network's name.

    None, with the tuning's status, where nothing does.
    """
    import numpy as np

    from edgekit.placement._trial_search import SIGMAS, candidates

    best, tolerance = tuning.best, tuning.wish.tolerance
    limit = best.cost(tuning.wish.objective) if best.counts else float("inf")
    tuning.tell("looking for plans that could be better")
    random: Any = np.random.default_rng([tuning.wish.seed, len(tuning.trials)])
    found: list[tuple[Candidate, str]] = []
    for name, form in tuning.forms.items():
        if name != tuning.form and not any(t.runs for t in tuning.trials if t.form == name):
            continue  # not even its best plan could be measured
        enough = FEW if len(form.space.kernels) > LARGE else float("inf")
        known = tuning.known(name)
        some = candidates(tuning.knowledge(form), known, random, enough=enough)
        found += [(one, name) for one in some]
    tuning.bound = min((one.low for one, _ in found), default=limit)
    worth = [pair for pair in found if pair[0].low < limit * (1 - tolerance)]
    if worth:
        one, name = _most(tuning, worth, limit)
        return one, "search", name
    form = tuning.form_of(best)
    beside = beside_best(tuning, tuning.knowledge(form), limit * (1 - tolerance))
    if beside:
        one, name = _most(tuning, [(one, form.name) for one in beside], limit, FAR / SIGMAS)
        return one, SWEEP, name
    tuning.status, tuning.why = "converged", _converged(tuning, found)
    return None


def _most(
    tuning: Tuning, plans: Sequence[tuple[Candidate, str]], limit: float, doubt: float = 1.0
) -> tuple[Candidate, str]:
    """Returns the plan that promises most, with so many times its deviation."""
    suspects = _suspects(tuning)

    def promise(pair: tuple[Candidate, str]) -> tuple[bool, float, float]:
        one = pair[0]
        # a plan with the very loadable of one that failed likely fails, too
        fine = not suspects & _loadables(one.plan)
        return fine, replace(one, sd=doubt * one.sd).gain(limit), -one.mean

    return max(plans, key=promise)


def _converged(tuning: Tuning, found: Sequence[object]) -> str:
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
