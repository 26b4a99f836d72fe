"""What no placement of several networks can beat, from what each of them can do alone."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.placement._several_routes import Alone
from edgekit.solver import Workload

__all__ = ["floor_of"]


def floor_of(
    workload: Workload, alone: Sequence[Alone], objective: str, together_us: float
) -> float:
    """Returns a proven lower bound of an objective over all placements, whatever the groups.

    Sharing the board makes no network faster, so each one's bounds alone hold; GPU times and
    energies of all networks add up. ``together_us`` is what the busiest device works at least.
    """

    def total(metric: str) -> float:
        rows = zip(alone, workload.frames, strict=True)
        return sum(own.bounds[metric] * frames for own, frames in rows)

    if objective in ("energy", "gpu_time"):
        return total("energy_uj" if objective == "energy" else "gpu_us")
    if objective == "period":
        return max(together_us, *(own.bounds["period_us"] for own in alone))
    if objective == "makespan":
        return max(together_us, *(own.bounds["latency_us"] for own in alone))
    return max(
        own.bounds["latency_us"] / chain.deadline_us
        for own, chain in zip(alone, workload.chains, strict=True)
        if chain.deadline_us
    )
