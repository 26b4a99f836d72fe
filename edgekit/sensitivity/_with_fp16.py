"""A plan with some layers in FP16, each where it was."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.placement import PlacedLayer, Plan

__all__ = ["with_fp16"]


def with_fp16(plan: Plan, layers: Collection[str]) -> Plan:
    """Returns the plan with these layers in FP16 where they were in INT8.

    It is for trying numerics out: places and predicted times stay those of INT8.
    """

    def changed(placed: tuple[PlacedLayer, ...]) -> tuple[PlacedLayer, ...]:
        return tuple(
            replace(layer, precision="fp16")
            if layer.name in layers and layer.precision == "int8"
            else layer
            for layer in placed
        )

    return replace(
        plan,
        layers=changed(plan.layers),
        plans=tuple(replace(share, layers=changed(share.layers)) for share in plan.plans),
    )
