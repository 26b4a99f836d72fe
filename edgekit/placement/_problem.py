"""The placement problem without its network: kernels, what they cost where, and what a move costs.

Every metric is a weighted sum of the loads of the devices (microseconds a frame): latency runs
everything one after the other, energy weighs each load by that device's power, ``gpu_us`` is the
GPU's load, and the period is the largest load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["OUTSIDE", "Border", "Problem", "loads", "metrics"]

OUTSIDE = -1
"""Producer of the network's inputs: it counts as the GPU, because the GPU reformats them."""


@dataclass(frozen=True, slots=True)
class Border:
    """A tensor between kernels and what it costs to hand it over, once per direction.

    ``producer`` is a kernel index or OUTSIDE; ``output`` says that the caller reads it too.
    """

    producer: int
    consumers: tuple[int, ...]
    to_dla_us: float = 0.0
    to_gpu_us: float = 0.0
    output: bool = False


@dataclass(frozen=True)
class Problem:
    """Kernels in topological order, their times by device, and the borders between them.

    Attributes:
        devices: "GPU" first, then the DLA cores in use.
        times: Microseconds by kernel and device; None where the kernel may not run.
        borders: Every tensor read by a kernel or by the caller.
        launch_us: Cost of one loadable on a DLA core.
        max_loadables: Loadables that one core can hold.
        watts: Power by device while it works, idle power of the module included.
    """

    devices: tuple[str, ...]
    times: tuple[tuple[float | None, ...], ...]
    borders: tuple[Border, ...]
    launch_us: float
    max_loadables: int
    watts: tuple[float, ...]

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Producing kernels by kernel, without OUTSIDE, ascending and each once."""
        found: list[set[int]] = [set() for _ in self.times]
        for border in self.borders:
            for user in border.consumers:
                if border.producer != OUTSIDE:
                    found[user].add(border.producer)
        return tuple(tuple(sorted(users)) for users in found)

    @cached_property
    def cores(self) -> tuple[int, ...]:
        """Indices of the DLA cores in ``devices``."""
        return tuple(range(1, len(self.devices)))

    @cached_property
    def twins(self) -> bool:
        """Whether all cores are alike, so that they can be swapped."""
        return all(len({row[c] for c in self.cores}) <= 1 for row in self.times) and (
            len({self.watts[c] for c in self.cores}) <= 1
        )

    def only(self, core: int) -> Problem:
        """Returns the problem with the GPU and one core."""
        return Problem(
            (self.devices[0], self.devices[core]),
            tuple((row[0], row[core]) for row in self.times),
            self.borders,
            self.launch_us,
            self.max_loadables,
            (self.watts[0], self.watts[core]),
        )


def loads(problem: Problem, devices: Sequence[int], loadables: Mapping[int, int]) -> list[float]:
    """Returns the load of every device in microseconds a frame.

    Args:
        problem: The problem.
        devices: Device index by kernel.
        loadables: Number of loadables by core.

    Transfers are reformat kernels and load the GPU, whichever way they go.
    """
    total = [0.0] * len(problem.devices)
    for row, device in zip(problem.times, devices, strict=True):
        total[device] += row[device] or 0.0
    for border in problem.borders:
        on_dla = border.producer != OUTSIDE and devices[border.producer] != 0
        if on_dla:
            if border.output or any(devices[user] == 0 for user in border.consumers):
                total[0] += border.to_gpu_us
        elif any(devices[user] != 0 for user in border.consumers):
            total[0] += border.to_dla_us
    for core, count in loadables.items():
        total[core] += problem.launch_us * count
    return total


def metrics(problem: Problem, load: Sequence[float]) -> dict[str, float]:
    """Returns latency_us, energy_uj, gpu_us and period_us of a plan with these loads."""
    return {
        "latency_us": sum(load),
        "energy_uj": sum(w * us for w, us in zip(problem.watts, load, strict=True)),
        "gpu_us": load[0],
        "period_us": max(load),
    }
