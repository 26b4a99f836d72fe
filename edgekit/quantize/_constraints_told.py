"""What scale constraints cost, and where given scales break them, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.dla import load_rules, scale_ties
from edgekit.quantize._constraints import bindings
from edgekit.quantize._scales import float32
from edgekit.quantize._types import Change

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["COSTLY_BITS", "Violation", "change_rows", "constraint_warnings", "violations"]

#: A tensor that loses more of its 8 bits is told of.
COSTLY_BITS = 2.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A layer whose tensors should share one scale and do not.

    Attributes:
        layer: Its name.
        rule: The rule that asks for it.
        scales: The scales, by tensor.
        disputed: The sources do not settle the rule.
    """

    layer: str
    rule: str
    scales: Mapping[str, float]
    disputed: bool = False

    @property
    def bits(self) -> float:
        """How far the scales lie apart: log2 of the largest over the smallest."""
        least = min(self.scales.values())
        return log2(max(self.scales.values()) / least) if least > 0 else float("inf")

    @property
    def message(self) -> str:
        """The violation in one line."""
        told = ", ".join(f"{name!r} {scale:.6g}" for name, scale in self.scales.items())
        return f"{self.layer}: unequal scales, {told} ({self.rule})"


def violations(
    network: Network,
    scales: Mapping[str, float],
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> tuple[Violation, ...]:
    """Returns the layers that given scales (Q/DQ nodes', a cache's) do not suit, in graph order.

    Scales are compared as float32; tensors without one break nothing. After ``tie`` there is none.

    Args:
        network: The layer graph.
        scales: Scale by tensor.
        dla_layers: Layers that can run on the target's DLA; None where all may.
        fp16_layers: Layers kept in FP16, which bind nothing.
    """
    found = []
    for bound in bindings(network, dla_layers=dla_layers, fp16_layers=fp16_layers):
        known = {name: float32(scales[name]) for name in bound.tensors if name in scales}
        if len(set(known.values())) > 1:
            rule = bound.tie.rule
            disputed = rule.certainty == "disputed"
            found.append(Violation(bound.layer.name, rule.id, known, disputed))
    return tuple(found)


def constraint_warnings(
    network: Network,
    scales: Mapping[str, float],
    changes: Iterable[Change],
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> tuple[str, ...]:
    """Says where a shared scale costs much, and where the sources leave open whether one is asked.

    Args:
        network: The layer graph.
        scales: Scale by tensor, after ``tie``.
        changes: What ``tie`` changed.
        dla_layers: Layers that can run on the target's DLA; None where all may.
        fp16_layers: Layers kept in FP16.
    """
    costly = [change for change in changes if change.bits > COSTLY_BITS]
    told = [_costly(change) for change in costly[:_SHOWN]]
    if len(costly) > _SHOWN:
        told.append(
            f"more than {COSTLY_BITS:g} of the 8 bits of INT8 are lost to a shared scale by "
            f"{counted(len(costly) - _SHOWN, 'more tensor')}"
        )
    return (*told, *_open(network, scales, dla_layers, fp16_layers))


def change_rows(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Returns changes as plain values; ``bits`` is the resolution lost."""
    return [
        {
            "tensor": change.tensor,
            "old": change.old,
            "new": change.new,
            "bits": round(change.bits, 4),
            "rule": change.rule,
            "layers": list(change.layers),
            "widest": change.widest,
        }
        for change in changes
    ]


def _costly(change: Change) -> str:
    layers = ", ".join(change.layers[:_SHOWN])
    everywhere = {tie.rule.id for tie in scale_ties() if tie.everywhere}
    place = "" if change.rule in everywhere else " or on the GPU"
    one = "that layer" if len(change.layers) == 1 else "these layers"
    return (
        f"tensor {change.tensor!r} loses {change.bits:.1f} of the 8 bits of INT8: {layers} gives "
        f"it the scale of {change.widest!r} ({change.rule}); keep {one} in FP16{place}, or rewrite "
        "the model so that the ranges are alike"
    )


def _open(
    network: Network,
    scales: Mapping[str, float],
    dla_layers: Collection[str] | None,
    fp16_layers: Collection[str],
) -> list[str]:
    """One warning for each rule that the sources do not settle and that scales do not keep."""
    apart: dict[str, list[Violation]] = {}
    found = bindings(network, dla_layers=dla_layers, fp16_layers=fp16_layers, apart=True)
    for bound in found:
        known = {name: float32(scales[name]) for name in bound.tensors if name in scales}
        if len(set(known.values())) > 1:
            rule = bound.tie.rule.id
            apart.setdefault(rule, []).append(Violation(bound.layer.name, rule, known))
    return [_doubt(rule, members) for rule, members in apart.items()]


def _doubt(rule: str, members: list[Violation]) -> str:
    worst = max(members, key=lambda one: one.bits)
    narrow = min(worst.scales, key=lambda name: worst.scales[name])
    many = f"{len(members)} products keep" if len(members) > 1 else f"product {worst.layer} keeps"
    return (
        f"{many} a scale for each factor; a DLA that takes the larger for both would leave "
        f"{narrow!r} {worst.bits:.1f} bits less ({rule}, disputed): "
        f"{load_rules().rules[rule].fix}"
    )
