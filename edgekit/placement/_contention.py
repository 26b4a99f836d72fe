"""How devices that work at once slow each other down: all of them share the DRAM.

The factors depend on which devices work (``targets/costs/contention.yaml``), so what devices can do
together is a polytope: time is divided among the sets of devices that work at once, and the work
that a device gets done in a set's time is that time over its slowdown there. What follows is exact
for that model: a plan's period is the largest of a few weighted sums of its loads
(:func:`sharing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from edgekit.placement._costs_data import cost_data

__all__ = ["contention_table", "energy_factors", "slowdown", "together"]


def slowdown(extra: Mapping[str, float], core: bool, cores: int, gpu: bool) -> float:
    """Returns how much longer a device takes.

    Args:
        extra: The factors of a DLA generation.
        core: Whether the device is a DLA core.
        cores: Other DLA cores that work.
        gpu: Whether the GPU, if that is another device, works.
    """
    if not core:
        return 1 + cores * extra["gpu_by_dla"]
    return 1 + gpu * extra["dla_by_gpu"] + bool(cores) * extra["dla_by_dla"]


def contention_table(generation: str | None) -> dict[str, dict[str, float]]:
    """Returns the slowdowns by device and by what works at the same time."""
    extra = cost_data("contention")["extra"].get(generation)
    if extra is None:
        return {}
    return {
        "gpu": {
            "dla": round(slowdown(extra, False, 1, False), 4),
            "dla+dla": round(slowdown(extra, False, 2, False), 4),
        },
        "dla": {
            "gpu": round(slowdown(extra, True, 0, True), 4),
            "dla": round(slowdown(extra, True, 1, False), 4),
            "dla+gpu": round(slowdown(extra, True, 1, True), 4),
        },
    }


def together(devices: Sequence[str], generation: str | None) -> tuple[tuple[float, ...], ...]:
    """Returns, by set of devices that work at once, each one's speed in it; 0 for those outside.

    Empty where no factors are known.
    """
    extra = cost_data("contention")["extra"].get(generation)
    if extra is None or len(devices) < 2:
        return ()
    found = []
    for size in range(1, len(devices) + 1):
        for inside in combinations(range(len(devices)), size):
            speeds = [0.0] * len(devices)
            for d in inside:
                others = [devices[e] for e in inside if e != d]
                cores = sum(name != "GPU" for name in others)
                speeds[d] = 1 / slowdown(extra, devices[d] != "GPU", cores, "GPU" in others)
            found.append(tuple(speeds))
    return tuple(found)


def energy_factors(generation: str | None) -> dict[str, tuple[float, float]]:
    """Returns what sharing the DRAM makes of power, by whose work all has the other beside it.

    Of "dla", the factors of the DLA's and of the GPU's watts that a microsecond of the DLA's work
    takes if all of it has the GPU at its side; of "gpu", those of the GPU's and of the DLA's watts.
    Neither can be more, so the less of the two sums is what sharing costs where the shorter of two
    devices works beside the longer one all the time.
    """
    extra = cost_data("contention")["extra"].get(generation)
    if extra is None:
        return {"dla": (1.0, 0.0), "gpu": (1.0, 0.0)}
    gpu, dla = slowdown(extra, False, 1, False), slowdown(extra, True, 0, True)
    return {"dla": (dla, dla * (1 - 1 / gpu)), "gpu": (gpu, gpu * (1 - 1 / dla))}
