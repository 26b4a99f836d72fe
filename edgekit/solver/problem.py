"""A placement problem without its network: the cost of each node on each device, the cost of
transfers, the constraints, and a placement. Times are in microseconds.
Also identical cores (``twin_cores``), the remaining effort of a search (``Effort``), and the
scaling of loads and energies for solvers (``Units``).

Nodes are kernels of a network, or groups of kernels. Every node gets one mode (a device and the
tensor formats it reads and writes there). Costs are vectors of loads, so that every objective is a
weighted sum of loads or their maximum:

- latency: all nodes in sequence, the sum of all loads;
- period: one plan in steady state, the largest load of a device; if devices slow each other down
  while they work at once, the largest of several weighted sums of loads
  (``PlacementProblem.shares``);
- gpu_time: the load of the GPU;
- energy: a separate sum.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations
from typing import TypeVar, overload

OPTIMAL_GAP = 1e-4
"""Relative gap to the proven bound up to which an answer is called optimal (docs/placement.md)."""

OUTSIDE = -1
"""Producer of a network's inputs; it is in the mode ``PlacementProblem.outside``."""

_ROUNDING = 1e-9
CLOCK = 10.0
"""Wall-clock seconds for each unit: a last resort; no usable machine takes so long."""
# A small part of a search must not end by the clock of a busy machine: its answer would change.
LEAST_S = 10.0
LEAST, MOST = 2.0, 2.0**22  # totals that are not scaled
AIM = 12  # the binary exponent of scaled totals
T = TypeVar("T")
#: The metric of each objective of one plan.
METRIC = {
    "latency": "latency_us",
    "energy": "energy_uj",
    "gpu_time": "gpu_us",
    "period": "period_us",
    "throughput": "period_us",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A device (index into ``PlacementProblem.devices``), and a node's formats in and out there."""

    device: int
    reads: str = ""
    writes: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds by resource (the devices, then the delay), and microjoules.

    The delay is time in which no device works, such as a copy by another engine: it counts for
    the latency, but not for the load of a device.
    """

    load_us: tuple[float, ...]
    energy_uj: float = 0.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """A conversion of a tensor, paid once for any number of consumers.

    It is paid if for any consumer (producer's mode, consumer's mode) is in ``pairs``. The caller,
    who reads a network's outputs, is in the mode ``PlacementProblem.outside``. ``ways`` are
    alternatives; the best way for the goal is taken.
    """

    pairs: frozenset[tuple[int, int]]
    ways: tuple[Cost, ...]


@dataclass(frozen=True, slots=True)
class Border:
    """A tensor with its producer (a node or OUTSIDE) and consumers; ``output``: of the network.

    A tensor without transfers still orders its consumers after its producer.
    """

    producer: int
    consumers: tuple[int, ...]
    transfers: tuple[Transfer, ...] = ()
    output: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """A memory pool: the sum of ``needs`` over a loadable's nodes is at most ``limit``."""

    name: str
    limit: float
    needs: tuple[float, ...]


@dataclass(frozen=True)
class PlacementProblem:
    """The nodes to place, and the constraints.

    A loadable is a set of nodes in modes of one core. All loadables and the runs of nodes between
    loadables can be ordered: the graph over loadables and single other nodes has no cycle (so a
    loadable is convex). Two loadables of a core may follow each other directly.

    Attributes:
        devices: Names; devices with a launch cost are cores that run loadables ("DLA0", ...).
        modes: All modes, of all nodes.
        costs: By node (in a topological order) and mode; None if the node cannot run in the mode.
        borders: The tensors; they define the edges.
        launch: Cost of starting a loadable, by device; None for a device without loadables.
        max_loadables: Loadables that each core can hold; None: no limit.
        pools: Memory limits of a loadable.
        fits: Returns True if a set of nodes can be a loadable, beyond the pools; true for all
            subsets of a set that fits. None: every set fits.
        min_size: The least sum of ``sizes`` of a loadable.
        sizes: Number of layers by node; empty: 1 each.
        outside: The mode of the network's inputs and outputs.
        max_transitions: The most device changes along the running order, or None.
        together: Each set of devices that can work at once, as their speeds while they do (0 for
            the others): a microsecond's work takes 1 / speed. Empty: devices do not slow each
            other down.
    """

    devices: tuple[str, ...]
    modes: tuple[Mode, ...]
    costs: tuple[tuple[Cost | None, ...], ...]
    borders: tuple[Border, ...]
    launch: tuple[Cost | None, ...]
    max_loadables: int | None = None
    pools: tuple[MemoryPool, ...] = ()
    fits: Callable[[frozenset[int]], bool] | None = field(default=None, compare=False)
    min_size: int = 0
    sizes: tuple[int, ...] = ()
    outside: int = 0
    max_transitions: int | None = None
    together: tuple[tuple[float, ...], ...] = ()

    @property
    def shares(self) -> tuple[tuple[float, ...], ...]:
        """Rows of weights by device: the period is the largest weighted sum of loads."""
        return solve_shares(self.together or ((1.0,) * len(self.devices),))

    def period_us(self, load_us: Sequence[float]) -> float:
        """Returns the least time in which the devices, working at once, complete their loads."""
        return max(_dot(row, load_us) for row in self.shares)

    @cached_property
    def cores(self) -> tuple[int, ...]:
        """Devices that run loadables."""
        return tuple(d for d, cost in enumerate(self.launch) if cost is not None)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Producing nodes by node, without OUTSIDE, ascending and each once."""
        found: list[set[int]] = [set() for _ in self.costs]
        for border in self.borders:
            for user in border.consumers:
                if border.producer != OUTSIDE:
                    found[user].add(border.producer)
        return tuple(tuple(sorted(before)) for before in found)

    def device(self, mode: int) -> int:
        """Returns the device of a mode."""
        return self.modes[mode].device


@dataclass(frozen=True)
class Goal:
    """The objective to minimise, and the bounds on other metrics.

    Attributes:
        weights: By resource (devices, then the delay); None: the largest load of a device.
        energy: Weight of the energy relative to the loads.
        bounds: Limits by metric: latency_us, energy_uj, gpu_us, period_us.
        shares: Without weights, ``shares`` of the problem whose period is minimised; empty: the
            largest load counts.
    """

    weights: tuple[float, ...] | None
    energy: float = 0.0
    bounds: Mapping[str, float] = field(default_factory=dict)
    shares: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(
        cls, problem: PlacementProblem, objective: str, bounds: Mapping[str, float] | None = None
    ) -> Goal:
        """Returns the goal of an objective: latency, period, energy or gpu_time."""
        count = len(problem.devices)
        weights: dict[str, tuple[float, ...] | None] = {
            "latency": (1.0,) * (count + 1),
            "period": None,
            "energy": (0.0,) * (count + 1),
            "gpu_time": (*(float(d == "GPU") for d in problem.devices), 0.0),
        }
        energy = float(objective == "energy")
        return cls(weights[objective], energy, dict(bounds or {}), problem.shares)

    def value(self, load_us: Sequence[float], energy_uj: float) -> float:
        """Returns the value to minimise; ``load_us`` is by resource."""
        if self.weights is None:
            if not self.shares:
                # the delay is no device's load
                return max(load_us[:-1])
            return max(_dot(row, load_us) for row in self.shares)
        total = sum(w * us for w, us in zip(self.weights, load_us, strict=True))
        return total + self.energy * energy_uj


@dataclass(frozen=True, slots=True)
class ExecutionStep:
    """One loadable, or one run on a device without loadables; nodes ascending."""

    device: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placing:
    """A placement that keeps every constraint.

    Attributes:
        modes: By node.
        steps: Loadables and runs, in running order.
        ways: For every transfer paid: indices of the border, the border's transfer, and the way.
        load_us: Microseconds by resource.
        energy_uj: Microjoules.
        value: Value of the goal.
    """

    modes: tuple[int, ...]
    steps: tuple[ExecutionStep, ...]
    ways: tuple[tuple[int, int, int], ...]
    load_us: tuple[float, ...]
    energy_uj: float
    value: float


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best placement found and a proven lower bound of the goal.

    Without a placement the bound is infinite if provably none exists. ``clocked``: the wall clock
    ended the search, so that another run may find more or less.
    """

    placing: Placing | None
    bound: float
    clocked: bool = False


def metrics(
    problem: PlacementProblem, load_us: Sequence[float], energy_uj: float
) -> dict[str, float]:
    """Returns latency_us, energy_uj, gpu_us and period_us of loads by resource."""
    gpus = [d for d, name in enumerate(problem.devices) if name == "GPU"]
    return {
        "latency_us": sum(load_us),
        "energy_uj": energy_uj,
        "gpu_us": sum(load_us[d] for d in gpus),
        "period_us": problem.period_us(load_us),
    }


def _dot(row: Sequence[float], load_us: Sequence[float]) -> float:
    # not strict: the last load is the delay, which occupies no device
    return sum(weight * us for weight, us in zip(row, load_us, strict=False))


@cache
def solve_shares(together: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    """Returns the weights whose largest weighted sum of loads is the least time for the loads.

    That time is a linear programme: time for each set of devices, such that every device completes
    its load. The dual's constraints do not depend on the loads: the weights are the corners of a
    polytope, without dominated corners. All corners are tried, as devices are few.
    """
    count = len(together[0])
    rows = [(row, 1.0) for row in together]
    # no weight is negative
    rows += [(tuple(float(d == e) for e in range(count)), 0.0) for d in range(count)]
    corners: list[tuple[float, ...]] = []
    for chosen in combinations(rows, count):
        corner = _solve_equations([[*row, value] for row, value in chosen])
        if corner is None or min(corner) < -_ROUNDING:
            continue
        # the chosen constraints meet here, but the point breaks another constraint
        if any(_dot(row, corner) > 1 + _ROUNDING for row in together):
            continue
        # rounded, as other constraints may give the same corner with other rounding errors
        corner = tuple(max(0.0, round(weight, 12)) for weight in corner)
        if corner not in corners:
            corners.append(corner)
    return tuple(
        point
        for point in sorted(corners, reverse=True)
        if not any(
            other != point and all(a <= b for a, b in zip(point, other, strict=True))
            for other in corners
        )
    )


def _solve_equations(rows: list[list[float]]) -> tuple[float, ...] | None:
    """Returns the solution of linear equations, or None without a unique solution."""
    count = len(rows)
    for column in range(count):
        pivot = max(range(column, count), key=lambda r: abs(rows[r][column]))
        if abs(rows[pivot][column]) < _ROUNDING:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for r in range(count):
            if r != column:
                factor = rows[r][column] / rows[column][column]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column], strict=True)]
    return tuple(rows[r][-1] / rows[r][r] for r in range(count))


def swapped_modes(problem: PlacementProblem, first: int, second: int) -> tuple[int, ...] | None:
    """Returns each mode's image when two devices are exchanged, or None if a mode has no image."""
    change = {first: second, second: first}
    index = {mode: i for i, mode in enumerate(problem.modes)}
    # equal modes leave open which is the image of which
    if len(index) < len(problem.modes):
        return None
    images = [
        index.get(Mode(change.get(m.device, m.device), m.reads, m.writes)) for m in problem.modes
    ]
    return None if None in images else tuple(i for i in images if i is not None)


def twin_cores(problem: PlacementProblem) -> tuple[tuple[int, int], ...]:
    """Returns pairs of neighbouring cores that can be exchanged without any difference."""
    pairs = zip(problem.cores, problem.cores[1:], strict=False)
    return tuple(pair for pair in pairs if _are_alike(problem, *pair))


def _are_alike(problem: PlacementProblem, first: int, second: int) -> bool:
    image = swapped_modes(problem, first, second)
    if image is None or image[problem.outside] != problem.outside:
        return False
    change = {first: second, second: first}

    def moved(cost: Cost | None) -> Cost | None:
        if cost is None:
            return None
        loads = cost.load_us
        return replace(cost, load_us=tuple(loads[change.get(d, d)] for d in range(len(loads))))

    if problem.launch[second] != moved(problem.launch[first]):
        return False
    turned_speeds = [
        tuple(row[change.get(d, d)] for d in range(len(row))) for row in problem.together
    ]
    if Counter(turned_speeds) != Counter(problem.together):
        return False
    for row in problem.costs:
        if any(row[image[m]] != moved(cost) for m, cost in enumerate(row)):
            return False
    for border in problem.borders:
        # neither the order of a border's transfers nor that of their ways matters
        plain = Counter((t.pairs, frozenset(t.ways)) for t in border.transfers)
        turned = Counter(
            (
                frozenset((image[a], image[b]) for a, b in t.pairs),
                frozenset(way for way in map(moved, t.ways) if way is not None),
            )
            for t in border.transfers
        )
        if plain != turned:
            return False
    return True


class Effort:
    """The remaining effort of a search or of a part; a part also spends the whole's units.

    A unit is about a second on a free core of 2024, but it counts work: CP-SAT's deterministic
    time, simplex iterations, sets tried. The wall clock ends a search only after ``CLOCK`` times as
    many seconds.

    Attributes:
        left: Units left.
    """

    def __init__(
        self, units: float, whole: Effort | None = None, *, seconds: float | None = None
    ) -> None:
        """Counts ``units``; the clock ends it after ``seconds``, or ``CLOCK`` times the units."""
        self.left = units
        self._whole = whole
        self._clocked = False
        self.ends = time.monotonic() + (max(LEAST_S, CLOCK * units) if seconds is None else seconds)
        if whole is not None:
            self.ends = min(self.ends, whole.ends)

    def part(self, units: float) -> Effort:
        """Returns an account of at most ``units``, charged to this account, too."""
        return Effort(max(0.0, min(units, self.left)), self)

    def spend(self, units: float) -> None:
        """Subtracts units from this account and the whole's."""
        self.left -= units
        if self._whole is not None:
            self._whole.spend(units)

    @property
    def over(self) -> bool:
        """True if no units or no time are left."""
        if self.left <= 0:
            return True
        if time.monotonic() < self.ends:
            return False
        self.note_clock()
        return True

    def note_clock(self) -> None:
        """Notes that the clock ended the search."""
        self._clocked = True
        if self._whole is not None:
            self._whole.note_clock()

    @property
    def clocked(self) -> bool:
        """True if the clock ended any part, so that another run may end elsewhere."""
        return self._clocked

    @property
    def seconds(self) -> float:
        """Seconds left on the clock, for solvers that also have a time limit."""
        # never 0, which GLOP takes as no limit
        return max(0.1, self.ends - time.monotonic())


def _exponent(total: float) -> int:
    """Returns the exponent of the power of two that scales a total to a suitable size.

    The tolerances of GLOP are absolute, and sums of CP-SAT must stay below 1e13. Totals far larger
    or smaller than a few thousand are therefore scaled by a power of two for solvers, and results
    are scaled back: this is exact.
    """
    if total == 0 or LEAST <= total <= MOST or not math.isfinite(total):
        return 0
    return AIM - math.frexp(total)[1]


@dataclass(frozen=True, slots=True)
class Units:
    """The powers of two by which loads, energies and the goal's value are multiplied."""

    load: int = 0
    energy: int = 0
    value: int = 0

    @classmethod
    def of(cls, problem: PlacementProblem, goal: Goal) -> Units:
        """Returns the units that suit a problem and goal."""
        load = _exponent(_typical_total(problem, lambda cost: sum(cost.load_us)))
        energy = _exponent(_typical_total(problem, lambda cost: cost.energy_uj))
        if goal.weights is None:
            # the value is a period, a sum of loads
            return cls(load, energy, load)
        base = load if any(goal.weights) else energy
        # prices of a mix can make values far smaller than the loads that they weigh
        own = _typical_total(problem, lambda cost: goal.value(cost.load_us, cost.energy_uj))
        return cls(load, energy, base + _exponent(math.ldexp(own, base)))

    @property
    def plain(self) -> bool:
        """True if all factors are 1."""
        return not (self.load or self.energy or self.value)

    def problem(self, problem: PlacementProblem) -> PlacementProblem:
        """Returns a problem in these units."""
        if not (self.load or self.energy):
            return problem
        return replace(
            problem,
            costs=tuple(tuple(map(self._cost, row)) for row in problem.costs),
            launch=tuple(map(self._cost, problem.launch)),
            borders=tuple(
                replace(
                    border,
                    transfers=tuple(
                        replace(transfer, ways=tuple(map(self._cost, transfer.ways)))
                        for transfer in border.transfers
                    ),
                )
                for border in problem.borders
            ),
        )

    @overload
    def _cost(self, cost: Cost) -> Cost: ...
    @overload
    def _cost(self, cost: None) -> None: ...
    def _cost(self, cost: Cost | None) -> Cost | None:
        if cost is None:
            return None
        loads = tuple(math.ldexp(us, self.load) for us in cost.load_us)
        return Cost(loads, math.ldexp(cost.energy_uj, self.energy))

    def goal(self, goal: Goal) -> Goal:
        """Returns a goal in these units."""
        if self.plain:
            return goal
        weights = goal.weights
        if weights is not None:
            weights = tuple(math.ldexp(w, self.value - self.load) for w in weights)
        bounds = {
            name: math.ldexp(limit, self.energy if name == "energy_uj" else self.load)
            for name, limit in goal.bounds.items()
        }
        energy = math.ldexp(goal.energy, self.value - self.energy)
        return Goal(weights, energy, bounds, goal.shares)

    def placing(self, placing: T, back: int = 1) -> T:
        """Returns a placement (or None) in these units."""
        if not isinstance(placing, Placing) or self.plain:
            return placing
        return replace(
            placing,
            load_us=tuple(math.ldexp(us, back * self.load) for us in placing.load_us),
            energy_uj=math.ldexp(placing.energy_uj, back * self.energy),
            value=math.ldexp(placing.value, back * self.value),
        )

    def real(self, placing: T) -> T:
        """Returns a placement (or None) in microseconds and microjoules."""
        return self.placing(placing, -1)

    def real_value(self, value: float) -> float:
        """Returns a value or a bound of the goal in the units of the request."""
        return math.ldexp(value, -self.value)


def _typical_total(problem: PlacementProblem, amount: Callable[[Cost], float]) -> float:
    """Returns the least total of all nodes; if it is 0, the largest amount of any cost."""
    rows = [[amount(cost) for cost in row if cost is not None] for row in problem.costs]
    least = math.fsum(min(row) for row in rows if row)
    return least if least > 0 else max(map(abs, _every(problem, rows, amount)), default=0.0)


def _every(
    problem: PlacementProblem, rows: list[list[float]], amount: Callable[[Cost], float]
) -> Iterable[float]:
    for row in rows:
        yield from row
    for border in problem.borders:
        for transfer in border.transfers:
            yield from map(amount, transfer.ways)
    yield from (amount(cost) for cost in problem.launch if cost is not None)
