"""The scale constraints of the configured board."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network
    from edgekit.quantize import Change, Scales

__all__ = ["Binding", "binding", "told_unequal", "widened"]

# the network is judged as it comes, and is given Q/DQ nodes afterwards
_LOWERED = "general.implicit_int8"
_SHOWN = 3


class Binding(TypedDict):
    """Which layers bind scales, as ``quantize.tie`` takes it."""

    dla_layers: Collection[str] | None
    fp16_layers: Collection[str]


def binding(judgement: Judgement, fp16_layers: Collection[str]) -> Binding:
    """Returns what binds scales on a board: what its DLA can run, less what is kept in FP16.

    A layer may end up on the GPU all the same; its scales are right there, too.
    """
    verdicts = judgement.verdicts.values()
    if any(reason.rule == _LOWERED for verdict in verdicts for reason in verdict.reasons):
        return {"dla_layers": None, "fp16_layers": fp16_layers}
    able = frozenset(verdict.layer for verdict in verdicts if verdict.placeable)
    return {"dla_layers": able, "fp16_layers": fp16_layers}


def told_unequal(scales: Scales, network: Network, bound: Binding) -> Scales:
    """Returns the scales of Q/DQ nodes as they are, with a warning where the board wants others."""
    from edgekit.quantize import violations

    found = [one for one in violations(network, scales.scales, **bound) if not one.disputed]
    if not found:
        return scales
    shown = "; ".join(one.message for one in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    many = "a layer" if len(found) == 1 else f"{len(found)} layers"
    warning = (
        f"the model's Q/DQ nodes give {many} unequal scales where the board has one for all: "
        f"{shown}{more}; TensorRT takes the largest or runs them in FP16, so quantise them alike"
    )
    return replace(scales, warnings=(*scales.warnings, warning))


def widened(changes: Sequence[Change], what: str) -> list[str]:
    """Says which scales of a Q/DQ model are wider in a build without Q/DQ nodes.

    Args:
        changes: What tying changed.
        what: What was done about it, or can be.
    """
    if not changes:
        return []
    shown = "; ".join(
        f"{change.tensor!r} {change.old or 0:.7g} -> {change.new:.7g} "
        f"({', '.join(change.layers[:_SHOWN])}, as {change.widest!r})"
        for change in changes[:_SHOWN]
    )
    more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return [f"unequal in the Q/DQ model: {shown}{more}; {what}"]
