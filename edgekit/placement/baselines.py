"""The baselines of a plan: the GPU alone, TensorRT's automatic DLA placement, the best single
cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from edgekit.network.model import Layer
from edgekit.placement.inputs import PlacementInputs
from edgekit.placement.problem import (
    BuiltProblem,
    auto_kernels,
    auto_runs,
    build_problem,
    gpu_kernels,
    problem_from_kernels,
)
from edgekit.solver.problem import OUTSIDE, Cost, PlacementProblem

Value = Callable[[PlacementProblem, Sequence[float], float], float]


@dataclass(frozen=True)
class Baseline:
    """A placement that ignores pins and bounds: its problem, modes by kernel, loads, energy.

    The energy is computed from these loads (``CostModel.energy``), as for a plan.
    """

    built: BuiltProblem
    modes: tuple[int, ...]
    load_us: tuple[float, ...]
    energy_uj: float


def baselines(request: PlacementInputs, value: Value) -> dict[str, Baseline | None]:
    """Returns gpu_only, tensorrt_auto and best_cut (least ``value``); None if impossible.

    All may use the GPU and the first core in use, regardless of the options, and have every tensor
    in its best format.
    """
    options = replace(
        request.options, gpu=True, pins=(), bounds={}, max_transitions=None, min_loadable_layers=1
    )
    plain = replace(request, options=options, cores=request.cores[:1], pins={})
    kernels = gpu_kernels(plain)
    on_gpu = problem_from_kernels(plain, kernels, lambda _, device: device == "GPU", plain=True)
    return {
        "gpu_only": _only_placement(plain, on_gpu, 0),
        "tensorrt_auto": _tensorrt_auto(plain) if plain.cores else None,
        "best_cut": _best_cut(plain, value) if plain.cores else None,
    }


def _tensorrt_auto(request: PlacementInputs) -> Baseline | None:
    """Returns the placement of TensorRT: kept candidates are loadables, the rest is on the GPU."""
    run_of = auto_runs(request)

    def allowed(layers: Sequence[Layer], device: str) -> bool:
        return (layers[0].name in run_of) == (device != "GPU")

    capacity = request.capacity.without_limits()
    built = problem_from_kernels(
        replace(request, capacity=capacity), auto_kernels(request), allowed, plain=True
    )
    return _only_placement(request, built, max(run_of.values(), default=0))


def _only_placement(request: PlacementInputs, built: BuiltProblem, loadables: int) -> Baseline:
    """Returns the only placement of a problem."""
    problem = built.problem
    modes = tuple(next(m for m, cost in enumerate(row) if cost) for row in problem.costs)
    # with equal modes on both sides every cut is this placement
    load = _CutLoads(problem, modes, modes).totals(loadables)[-1]
    return Baseline(built, modes, load, request.model.energy(problem.devices, load)[0])


def _best_cut(request: PlacementInputs, value: Value) -> Baseline | None:
    """Returns the best placement with the first kernels on one device, the rest on the other."""
    built = build_problem(request, plain=True)
    problem = built.problem
    count = len(problem.costs)
    on_gpu = tuple(
        next(m for m, c in enumerate(row) if c and not problem.device(m)) for row in problem.costs
    )
    core = next((m for m in range(1, len(problem.modes)) if problem.device(m)), None)
    if core is None:
        return None
    on_dla = (core,) * count
    able = [row[core] is not None for row in problem.costs]
    first = next((v for v in range(count) if not able[v]), count)  # the DLA can run earlier kernels
    last = next((v for v in range(count - 1, -1, -1) if not able[v]), -1)
    found: list[tuple[float, int, tuple[float, ...], float, tuple[int, ...]]] = []
    for left, right, low, high in (
        (on_dla, on_gpu, 1, min(first, count - 1)),
        (on_gpu, on_dla, max(last + 1, 1), count - 1),
    ):
        totals = _CutLoads(problem, left, right).totals(1)
        for at in range(low, high + 1):
            load = totals[at]
            energy, _ = request.model.energy(problem.devices, load)
            score = value(problem, load, energy)
            found.append((score, len(found), load, energy, (*left[:at], *right[at:])))
    # memory is tested for the best cuts only, until one fits
    for _, _, load, energy, modes in sorted(found):
        inside = frozenset(v for v, m in enumerate(modes) if m == core)
        if problem.fits is None or problem.fits(inside):
            return Baseline(built, modes, load, energy)
    return None


class _CutLoads:
    """Loads of every placement with ``left`` modes before a kernel and ``right`` modes from it on.

    A transfer is paid for one or two contiguous ranges of cuts, so all cuts together take as long
    to compute as a single cut.
    """

    def __init__(
        self, problem: PlacementProblem, left: Sequence[int], right: Sequence[int]
    ) -> None:
        self.problem, self.left, self.right = problem, left, right
        self._count = len(left)
        resources = len(problem.devices) + 1
        self._steps = [[0.0] * resources for _ in range(self._count + 2)]

    def totals(self, loadables: int) -> list[tuple[float, ...]]:
        """Returns loads by the number of kernels before the cut."""
        for v, row in enumerate(self.problem.costs):
            self._add(row[self.left[v]], v + 1, self._count)
            self._add(row[self.right[v]], 0, v)
        for b in range(len(self.problem.borders)):
            self._add_border(b)
        if len(self.problem.launch) > 1 and loadables:
            launch = self.problem.launch[1]
            for _ in range(loadables):
                self._add(launch, 0, self._count)
        columns = [list(accumulate(column)) for column in zip(*self._steps, strict=True)]
        return list(zip(*columns, strict=True))[: self._count + 1]

    def _add(self, cost: Cost | None, low: int, high: int) -> None:
        """Adds a cost to the cuts from ``low`` to ``high``, both included."""
        if cost is None or low > high:
            return
        for at, sign in ((low, 1.0), (high + 1, -1.0)):
            row = self._steps[at]
            for resource, us in enumerate(cost.load_us):
                row[resource] += sign * us

    def _add_border(self, index: int) -> None:
        border = self.problem.borders[index]
        p, end, outside = border.producer, self._count, self.problem.outside
        inside = p != OUTSIDE
        sides = [(c, self.left[c], self.right[c]) for c in border.consumers]
        if border.output:
            sides.append((end, outside, outside))
        for transfer in border.transfers:
            cost, pairs = transfer.ways[0], transfer.pairs
            if inside and any((self.right[p], right) in pairs for _, _, right in sides):
                self._add(cost, 0, p)
            source = self.left[p] if inside else outside
            start = p + 1 if inside else 0
            # cuts up to a consumer leave it on the right, later cuts have it on the left
            until = max((c for c, _, right in sides if (source, right) in pairs), default=-1)
            since = min((c for c, left, _ in sides if (source, left) in pairs), default=end)
            if since < until:
                self._add(cost, start, end)
            else:
                self._add(cost, start, until)
                self._add(cost, max(start, since + 1), end)
