"""Kernels that only a verdict, a pin or a loadable keeps apart run as one on one device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from edgekit.placement._built import Built
from edgekit.placement._costs import CostModel
from edgekit.placement._kernels import Kernel, join
from edgekit.placement._request import Request
from edgekit.solver import OUTSIDE, Border, Cost, Problem, Transfer

__all__ = ["fused"]

_Saved = dict[tuple[int, int], float]  # by (earlier part, later part): microseconds


def fused(request: Request, built: Built, wholes: Mapping[str, Sequence[Kernel]]) -> Built:
    """Lets the parts of a kernel run as one where they are on the same device.

    The later part then costs what it adds to the kernel; coming from another device it costs what
    it takes alone, and the border between the two, which nobody else reads, pays the difference.

    Args:
        request: The network and its costs.
        built: The problem of the parts.
        wholes: By device, the kernels that it would run.
    """
    for device, name in enumerate(built.problem.devices):
        saved = _saved(request, built, device, wholes.get(name, ()))
        if saved:
            built = _with_savings(request.model, built, device, saved)
    return built


def _saved(request: Request, built: Built, device: int, wholes: Sequence[Kernel]) -> _Saved:
    network, model, kernels = request.network, request.model, built.kernels
    whole_of: dict[int, Hashable] = {i: n for n, k in enumerate(wholes) for i in k.layers}
    parts = {k.layers for k in kernels}
    if not whole_of or all(whole.layers in parts for whole in wholes):
        return {}
    name = built.problem.devices[device]
    consumers = network.consumers()
    last_of: dict[Hashable, tuple[int, tuple[int, ...]]] = {}  # latest part, layers so far
    saved: _Saved = {}
    for v, kernel in enumerate(kernels):
        found = {whole_of[i] for i in kernel.layers}
        if len(found) != 1 or not _modes(built.problem, v, device):
            continue
        whole = found.pop()
        u, before = last_of.get(whole, (v, ()))
        layers = tuple(sorted((*before, *kernel.layers)))
        last_of[whole] = (v, layers)
        if before and set(kernels[u].outputs) & set(kernel.inputs):
            prefix = model.kernel_us(network, join(network, before, consumers), name)
            together = model.kernel_us(network, join(network, layers, consumers), name)
            alone = model.kernel_us(network, kernel, name)
            if max(0.0, together - prefix) < alone:
                saved[u, v] = alone - max(0.0, together - prefix)
    return saved


def _modes(problem: Problem, v: int, device: int) -> list[int]:
    """Returns the modes of a node on a device."""
    row = problem.costs[v]
    return [m for m, cost in enumerate(row) if cost and problem.device(m) == device]


def _with_savings(model: CostModel, built: Built, device: int, saved: _Saved) -> Built:
    problem = built.problem
    watts = model.watts(problem.devices[device])

    def cost(us: float) -> Cost:
        load = [0.0] * (len(problem.devices) + 1)
        load[device] = us
        return Cost(tuple(load), us * watts)

    costs = [list(row) for row in problem.costs]
    for (_, v), us in saved.items():
        for m in _modes(problem, v, device):
            own = costs[v][m]
            assert own is not None
            costs[v][m] = cost(max(0.0, own.load_us[device] - us))
    borders: list[Border] = []
    left = dict(saved)
    for border in problem.borders:
        extra: list[Transfer] = []
        for v in border.consumers if border.producer != OUTSIDE else ():
            us = left.pop((border.producer, v), 0.0)
            sources = [m for m, own in enumerate(problem.costs[border.producer])
                       if own and problem.device(m) != device]  # fmt: skip
            if us and sources:
                goals = _modes(problem, v, device)
                extra.append(Transfer(frozenset((a, b) for a in sources for b in goals),
                                      (cost(us),)))  # fmt: skip
        borders.append(replace(border, transfers=(*border.transfers, *extra)))
    problem = replace(problem, costs=tuple(map(tuple, costs)), borders=tuple(borders))
    return replace(built, problem=problem)
