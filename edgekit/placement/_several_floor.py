"""What no placement of several networks can beat, from what each of them can do alone."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.placement._several_routes import Single
from edgekit.solver import Workload

__all__ = ["floor_of"]


def floor_of(workload: Workload, singles: Sequence[Single], objective: str) -> float:
    """Returns a proven lower bound of an objective over all placements, whatever the groups.

    Sharing the board makes no network faster, so each one's bounds alone hold; GPU times and
    energies of all networks add up.
    """

    def total(metric: str) -> float:
        rows = zip(singles, workload.frames, strict=True)
        return sum(single.bounds[metric] * frames for single, frames in rows)

    if objective in ("energy", "gpu_time"):
        return total("energy_uj" if objective == "energy" else "gpu_us")
    if objective == "period":
        return max(total("gpu_us"), *(single.bounds["period_us"] for single in singles))
    if objective == "makespan":
        return max(total("gpu_us"), *(single.bounds["latency_us"] for single in singles))
    return max(
        single.bounds["latency_us"] / chain.deadline_us
        for single, chain in zip(singles, workload.chains, strict=True)
        if chain.deadline_us
    )
