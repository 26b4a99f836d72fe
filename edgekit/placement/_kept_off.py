"""Which wishes keep a network off the DLA where a plan of the GPU alone came of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edgekit.errors import GateError
from edgekit.placement._ask import UNITS, Ask, plan_value
from edgekit.placement._conflicts import Wish, Wishes
from edgekit.placement._options import usable_cores
from edgekit.placement._types import Plan

__all__ = ["explain_gpu_only"]


def explain_gpu_only(
    ask: Ask, plan: Plan, progress: Callable[[int, int], None] | None = None
) -> Plan:
    """Returns a plan with the wishes that keep it off the DLA: in ``kept_off`` and in its notes.

    A plan that uses a DLA comes back as it is, and so does one whose network has nothing for the
    DLA or that would be the same without any wish.
    """
    if any(layer.device != "GPU" for part in plan.plans for layer in part.layers):
        return plan
    if not usable_cores(ask.options, ask.target, ask.precision):
        return plan  # a note says so
    if not any(verdict.placeable for verdict in ask.judgement.verdicts.values()):
        return plan
    wishes = Wishes(ask)
    own = [wish for wish in wishes.all if not wish.default and wish.kind != "gpu"]
    tell = progress or (lambda done, total: None)

    def without(*dropped: Wish) -> Plan | None:
        try:
            other = ask.plan(wishes.without(frozenset(dropped)))
        except GateError:
            return None
        used = any(layer.device != "GPU" for part in other.plans for layer in part.layers)
        return other if used else None

    if not own or (free := without(*own)) is None:
        return plan
    found = []
    for number, wish in enumerate(own):
        tell(number, len(own))
        other = without(wish) if len(own) > 1 else free
        if other is not None:
            found.append((wish.text, other))
    tell(len(own), len(own))
    together = " and ".join(wish.text for wish in own)
    named = found or [(together, free)]
    notes = [note for note in plan.notes if not note.startswith("the GPU alone is best")]
    for text, other in named:
        keep, it = ("keeps", "it") if found else ("keep", "them")
        value = f"{plan_value(other):.6g} {UNITS[plan.objective]}"
        notes.append(
            f"{text} {keep} everything off the DLA: without {it} {plan.objective} would be {value} "
            f"instead of {plan_value(plan):.6g} (predicted)"
        )
    return replace(plan, kept_off=tuple(text for text, _ in named), notes=tuple(notes))
