"""Layers that could run on the DLA, in runs that found no slot on a core."""

from __future__ import annotations

from edgekit.dla._candidates import SLOTS
from edgekit.dla._rules import load_rules
from edgekit.dla._types import Judgement, Reason

__all__ = ["without_slot"]


def without_slot(judgement: Judgement) -> tuple[Reason, tuple[str, ...]] | None:
    """Returns why layers that the DLA allows stay on the GPU, and these layers; None if none do.

    Args:
        judgement: A network's verdicts and loadables.
    """
    lost = [group.layers for group in judgement.candidates if group.dropped == SLOTS]
    if not lost:
        return None
    rule = load_rules().rules[SLOTS]
    names = tuple(name for layers in lost for name in layers)
    found = "1 layer" if len(names) == 1 else f"{len(names):,} layers"
    limit = f"{judgement.slots} loadables"
    message = f"{found} could run on the DLA, but all {limit} of a core are taken"
    return Reason(rule.id, message, found, limit, "; ".join(rule.sources), rule.fix), names
