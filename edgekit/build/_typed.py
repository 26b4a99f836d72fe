"""Numerics of a strongly typed network: Q/DQ nodes say which tensors are rounded to INT8.

Nothing is left to the builder there: a tensor with Q/DQ nodes is INT8 whoever reads it, and what
an INT8 layer hands on without them stays within its fused kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from edgekit.build._graph import Unit

__all__ = ["typed_inside"]


def typed_inside(
    units: Iterable[Unit], precision: Mapping[str, str], quantised: Collection[str]
) -> set[str]:
    """Returns the tensors that INT8 units write and that have no Q/DQ nodes.

    Args:
        units: The layers of a lane.
        precision: Of each, by name.
        quantised: Tensors with Q/DQ nodes.
    """
    return {
        name
        for unit in units
        if precision[unit.name] == "int8"
        for name in unit.writes
        if name not in quantised
    }
