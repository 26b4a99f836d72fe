"""A fused part of the GPU's as the solver sees it: a price for the first layer taken out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from edgekit.placement._built import Built
from edgekit.placement._kernels import Kernel
from edgekit.placement._modes import Modes
from edgekit.placement._request import Request
from edgekit.solver import OUTSIDE, Border, Cost, Transfer

__all__ = ["broken_regions", "kept_whole"]

CALLERS = 0  # the mode of what enters a network


def broken_regions(
    request: Request,
    kernels: Sequence[Kernel],
    rows: Sequence[Mapping[int, Cost]],
    modes: Modes,
    watts: Sequence[float],
) -> Iterator[tuple[str, Border]]:
    """Yields a name and a border without a tensor for every part that a DLA could break.

    Like a tensor of the caller's that the GPU reformats once, however many kernels on a DLA read
    it, the price is paid once, however many of the part's kernels are on a DLA.
    """
    for region in request.regions.parts:
        inside = [v for v, k in enumerate(kernels) if not region.layers.isdisjoint(k.layers)]
        cores = {v: [m for m in rows[v] if modes.modes[m].device] for v in inside}
        able = tuple(v for v in inside if cores[v])
        if not able:
            continue
        load = [0.0] * (len(watts) + 1)
        load[0] = region.broken_us
        pairs = frozenset((CALLERS, m) for v in able for m in cores[v])
        price = Cost(tuple(load), region.broken_us * watts[0])
        name = f"({len(region.layers)} layers that the GPU fuses)"  # as no tensor is named
        yield name, Border(OUTSIDE, able, (Transfer(pairs, (price,)),))


def kept_whole(built: Built) -> Built:
    """Returns a problem whose fused parts stay on the GPU, for a search that cannot price them.

    A kernel that may not be on the GPU keeps its place on a DLA and breaks its part, unpriced.
    """
    problem, tensors = built.problem, built.tensors
    odd = [b for b, name in enumerate(tensors) if name.startswith("(")]
    if not odd:
        return built
    inside = {v for b in odd for v in problem.borders[b].consumers}
    costs = []
    for v, row in enumerate(problem.costs):
        on_gpu = tuple(None if problem.modes[m].device else cost for m, cost in enumerate(row))
        costs.append(on_gpu if v in inside and any(on_gpu) else row)
    keep = [b for b in range(len(tensors)) if b not in odd]
    return replace(
        built,
        problem=replace(
            problem, costs=tuple(costs), borders=tuple(problem.borders[b] for b in keep)
        ),
        tensors=tuple(tensors[b] for b in keep),
    )
