"""The plans that a tuning measures before it searches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.errors import EdgekitError, UsageError

if TYPE_CHECKING:
    from edgekit.config._schema_bench import BenchSection
    from edgekit.pipeline._tune import Tuning
    from edgekit.pipeline._tune_wish import Wish

__all__ = ["begin", "nothing_known", "too_short"]


def begin(tuning: Tuning) -> None:
    """Measures the starting plan, the other network's, and each device as far as it goes.

    Raises:
        EdgekitError: The starting plan cannot be measured; "tune.nothing-known".
    """
    from edgekit.placement._trial_pieces import signature

    if not tuning.trials:
        if tuning.wish.budget_s == 0:
            raise nothing_known()
        why = "the configuration's plan"
        tuning.attempt(tuning.start, signature(tuning.start), "start", why, must=True)
        _warn(tuning)
    _other(tuning)
    space = tuning.space
    for name, why in (("GPU", "the GPU alone"), ("DLA", "the DLA as far as it goes")):
        dla = any(device != "GPU" for device in space.devices)
        if tuning.over() or not (space.options.gpu if name == "GPU" else dla):
            continue
        plan = space.alone(name)
        if plan is not None and (key := signature(plan)) not in tuning.known(tuning.form):
            tuning.attempt(plan, key, name.lower(), f"{why}: it times every layer there")


def too_short(wish: Wish, bench: BenchSection) -> str:
    """Returns a sentence where the turns' mere measuring is more than the budget; else nothing."""
    least = 2 * wish.turns * (bench.duration_s + bench.warmup_ms / 1e3)
    if wish.budget_s is None or least <= wish.budget_s:
        return ""
    return (
        f"the budget of {wish.budget_s:.0f} s can prove nothing: the turns at the end measure for "
        f"{least:.0f} s, beside building and deploying (bench.duration_s and warmup_ms, --turns)"
    )


def _warn(tuning: Tuning) -> None:
    """Says so, now that it is known how long a plan takes, where the budget can prove nothing."""
    budget, turns = tuning.wish.budget_s, tuning.wish.turns
    if budget is None or not turns:
        return
    at_end = 2 * turns * tuning.again_s
    needed = tuning.seconds + tuning.longest_s + at_end
    if budget < needed:
        text = (
            f"the budget of {budget:.0f} s can prove nothing: {tuning.seconds:.0f} s are spent, "
            f"another plan takes about {tuning.longest_s:.0f} s and the turns at the end about "
            f"{at_end:.0f} s; about {needed:.0f} s would do"
        )
        tuning.tell(text)
        tuning.notes.append(text)


def nothing_known(where: str = "") -> UsageError:
    """Returns the error of a budget of 0 where no tuning was before."""
    return UsageError(
        "a budget of 0 measures nothing, and nothing is known yet", code="tune.nothing-known",
        where=where, hint="tune with a budget first, or name that tuning's folder with --out",
    )  # fmt: skip


def _other(tuning: Tuning) -> None:
    """Measures the best plan of the other network, as predicted."""
    from edgekit.placement._trial_pieces import signature

    other = tuning.other
    if other is None or other.name in tuning.forms:
        return
    if tuning.over():
        tuning.notes.append(f"the network {other.name} was not tried")
        return
    before = tuning.clock()
    why = f"the network {other.name}: its best plan, as predicted"
    tuning.tell(why)
    try:
        form = tuning.take_other()
        plan = other.start
    except EdgekitError as error:
        tuning.forms.pop(other.name, None)
        tuning.notes.append(f"the network {other.name} was not tried: {error.message}")
        return
    tuning.longest_s = max(tuning.longest_s, tuning.clock() - before)
    tuning.attempt(plan, signature(plan), "other", why, form=form.name)
