"""The CP-SAT model of a placement with its running order.

The running order is a row of positions, each of one device: a level is a position for the runs on
devices without loadables, then a position for each core. A node's position is order-encoded
(``after``), never before its producers', and decides its device; a core's position is a loadable. A
row that is too short for every placement may end with a tail: a position for all devices that
ignores order and loadables, so that the optimum is a bound (see ``running_order``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from edgekit.solver.problem import Effort
from edgekit.solver.program import Progress, load_cp_model, make_solver, search_within


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """A memory pool: the need of each node, and the limit of a loadable."""

    needs: Sequence[int]
    limit: int


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """A transfer: its number of ways, and the clauses that force a way."""

    ways: int
    clauses: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """A sum that is bounded or minimised: by node and mode, transfer and way, and core."""

    modes: Sequence[Mapping[int, int]]
    ways: Sequence[Sequence[int]]
    launch: Sequence[int]
    limit: int | None


@dataclass(frozen=True, slots=True)
class OrderHint:
    """Initial mode and position by node."""

    mode: Sequence[int]
    position: Sequence[int]


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """A placement with its running order, in integers.

    Attributes:
        allowed: Modes by node.
        mode_device: Device by mode.
        cores: Devices that run loadables.
        twins: Pairs of cores that can be exchanged.
        edges: Pairs of nodes, the first before the second.
        positions: Devices by position.
        width: Positions of a level.
        tail: True if the last position represents all further levels.
        max_transitions: The most changes between devices.
        pools: Memory pools.
        min_size: The least size of a loadable.
        sizes: Sizes by node.
        max_loadables: The most loadables of a core.
        transfers: Transfers.
        measures: Sums.
        objective: Indices of the sums to minimise.
        lower: Lower bound of the objective.
        upper: Upper limit of the objective.
        hint: Initial modes and positions.
        gap: Relative distance from the bound at which the search ends.
        forbidden: Sets of nodes that must not share a loadable.
    """

    allowed: Sequence[Sequence[int]]
    mode_device: Sequence[int]
    cores: Sequence[int]
    twins: Sequence[Sequence[int]]
    edges: Sequence[tuple[int, int]]
    positions: Sequence[Sequence[int]]
    width: int
    tail: bool
    max_transitions: int | None
    pools: Sequence[PoolRequest]
    min_size: int
    sizes: Sequence[int]
    max_loadables: int | None
    transfers: Sequence[TransferRequest]
    measures: Sequence[MeasureRequest]
    objective: Sequence[int]
    lower: int
    upper: int
    hint: OrderHint | None
    gap: float = 0.0
    forbidden: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """The result of a search.

    Attributes:
        bound: Lower bound, an integer; None if provably no placement exists.
        mode: Mode by node; None if no placement was found.
        position: Position by node.
        ways: Pairs of transfer and way.
    """

    bound: float | None
    mode: Sequence[int] | None = None
    position: Sequence[int] = ()
    ways: Sequence[tuple[int, int]] = ()


def solve_model(
    request: OrderRequest,
    effort: Effort,
    report: Progress | None = None,
    *,
    share: float = 1.0,
) -> OrderAnswer:
    """Solves the integer problem that ``running_order`` describes, deterministically.

    Args:
        request: The problem.
        effort: The account of the search.
        report: Called with the best value and the bound, as integers, now and then.
        share: Share of the remaining effort that this search may take.
    """
    steps = OrderModel(request, load_cp_model().CpModel())
    solver = make_solver(gap=request.gap)
    solver.parameters.linearization_level = 2
    status = search_within(effort, solver, steps.model, report, share=share)
    bound = solver.best_objective_bound
    if status == "INFEASIBLE":
        return OrderAnswer(None)
    if status in {"OPTIMAL", "FEASIBLE"}:
        return steps.answer(solver)
    # CP-SAT has no bound yet
    return OrderAnswer(bound if abs(bound) < 1e18 else request.lower)


class OrderModel:
    def __init__(self, request: OrderRequest, model: Any) -> None:
        self.request = request
        self.model = model
        self.nodes = range(len(request.allowed))
        self.mode = [{m: model.new_bool_var("") for m in allowed} for allowed in request.allowed]
        for choice in self.mode:
            model.add_exactly_one(choice.values())
        # by node, 1 at position p if the node is at p or later: a precedence is an implication
        self.after = [self._add_order(v) for v in self.nodes]
        self.tail: dict[int, Any] = {}
        self.used = self._positions()
        self.ways = [self._transfer(t) for t in request.transfers]
        self._slots()
        self._goal()
        self._hint()

    def on(self, v: int, devices: set[int]) -> Any:
        """Returns a linear expression that is 1 if the node is on any of the devices."""
        where = self.request.mode_device
        return sum(b for m, b in self.mode[v].items() if where[m] in devices)

    def inside(self, v: int, p: int) -> Any:
        """Returns a linear expression that is 1 if the node is at the position."""
        after = self.after[v]
        return after[p] - after[p + 1]

    def _add_order(self, v: int) -> list[Any]:
        count = len(self.request.positions)
        after = [1, *(self.model.new_bool_var("") for _ in range(count - 1)), 0]
        for first, second in pairwise(after[1:-1]):
            self.model.add_implication(second, first)
        return after

    def _positions(self) -> dict[int, Any]:
        """Adds the order and the loadables; returns a variable by position, 1 if it is used."""
        model, request = self.model, self.request
        for u, v in request.edges:
            for before, following in zip(self.after[u][1:-1], self.after[v][1:-1], strict=True):
                model.add_implication(before, following)
        where = request.mode_device
        row = request.positions
        last, ends, limited = len(row) - 1, request.tail, request.max_transitions is not None
        for v in self.nodes:
            tail = self.inside(v, last) if ends else 0
            for devices in sorted({tuple(ds) for p, ds in enumerate(row) if p < last or not ends}):
                here = [
                    p for p, d in enumerate(row) if tuple(d) == devices and (p < last or not ends)
                ]
                spent = sum(self.inside(v, p) for p in here)
                on = self.on(v, set(devices))
                model.add(spent <= on)
                # a node in the tail keeps its device, but has no position of it
                model.add(spent + tail >= on)
        cores = set(request.cores)
        used: dict[int, Any] = {}
        for p, own in enumerate(row[: last + 1 - ends]):
            core = own[0] in cores
            # runs without loadables have no launch
            if not core and not limited:
                continue
            used[p] = model.new_bool_var("")
            able = [v for v in self.nodes if any(where[m] in own for m in self.mode[v])]
            for v in able:
                model.add(self.inside(v, p) <= used[p])
            if core:
                self._loadable(p, able, used[p])
        final = self._levels(used)
        if ends:
            self.tail = self._tail(last, final)
        if limited:
            self._transitions(used)
        return used

    def _loadable(self, p: int, able: list[int], used: Any) -> None:
        model, request = self.model, self.request
        for pool in request.pools:
            needs = [(pool.needs[v], v) for v in able if pool.needs[v]]
            model.add(sum(need * self.inside(v, p) for need, v in needs) <= pool.limit * used)
        if request.min_size > 1:
            size = sum(request.sizes[v] * self.inside(v, p) for v in able)
            model.add(size >= request.min_size * used)
        else:
            model.add(sum(self.inside(v, p) for v in able) >= used)
        for together in request.forbidden:
            if set(together) <= set(able):
                model.add(sum(self.inside(v, p) for v in together) <= len(together) - 1)

    def _levels(self, used: dict[int, Any]) -> list[Any]:
        """Requires levels to be used in order, without gaps; returns the uses of the last level."""
        cores = set(self.request.cores)
        row, width = self.request.positions, self.request.width
        count = len(row) - self.request.tail
        levels = [
            [p for p in range(start, min(start + width, count)) if row[p][0] in cores]
            for start in range(0, count, width)
        ]
        # no empty level before a used level: fewer descriptions of the same order
        for level, following in pairwise(levels):
            for p in following:
                self.model.add_bool_or([*(used[q] for q in level), ~used[p]])
        full = [level for level in levels if level]
        return [used[p] for p in full[-1]] if full else []

    def _tail(self, last: int, final: list[Any]) -> dict[int, Any]:
        """Returns the least number of loadables in the tail, by core."""
        model, request = self.model, self.request
        most = len(self.nodes)
        counts: dict[int, Any] = {}
        for core in request.cores:
            used = model.new_bool_var("")
            counts[core] = model.new_int_var(0, most, "")
            model.add(counts[core] >= used)
            model.add(counts[core] <= most * used)
            # the tail is used only if the last level is
            model.add_bool_or([*final, ~used])
            here = {}
            for v in self.nodes:
                on = self.on(v, {core})
                if isinstance(on, int):
                    continue
                here[v] = model.new_bool_var("")
                model.add(here[v] >= self.inside(v, last) + on - 1)
                model.add(here[v] <= self.inside(v, last))
                model.add(here[v] <= on)
                model.add_implication(here[v], used)
            for pool in request.pools:
                needs = sum(pool.needs[v] * b for v, b in here.items())
                model.add(needs <= pool.limit * counts[core])
            size = sum(request.sizes[v] * b for v, b in here.items())
            model.add(size >= max(1, request.min_size) * counts[core])
        return counts

    def _transitions(self, used: dict[int, Any]) -> None:
        """Limits device changes: an unused position may count as any device."""
        model, row = self.model, self.request.positions
        devices = sorted({d for ds in row for d in ds})
        carry = [{d: model.new_bool_var("") for d in devices} for p in used]
        enter: list[dict[int, Any]] = []
        for p, own in enumerate(row[: len(carry)]):
            model.add_exactly_one(carry[p].values())
            model.add_implication(used[p], carry[p][own[0]])
            enter.append({d: model.new_bool_var("") for d in devices})
            for d in devices:
                before = [] if p == 0 else [carry[p - 1][d]]
                # a device is carried on from the position before, or entered
                model.add_bool_or([~carry[p][d], *before, enter[p][d]])
        # the first device is entered without a change
        changes = sum(sum(e.values()) for e in enter[1:])
        if self.request.max_transitions is not None:
            model.add(changes <= self.request.max_transitions)

    def _transfer(self, transfer: TransferRequest) -> list[Any]:
        """Returns a variable by way of a transfer; a way is taken if a consumer needs it."""
        model = self.model
        ways = [model.new_bool_var("") for _ in range(transfer.ways)]
        for producer, writes, consumer, reads in transfer.clauses:
            # a way is taken unless either end is in a mode without a transfer
            clause = list(ways)
            for v, modes in ((producer, writes), (consumer, reads)):
                if v >= 0:
                    clause += [b for m, b in self.mode[v].items() if m not in modes]
            model.add_bool_or(clause)
        return ways

    def _slots(self) -> None:
        request = self.request
        self.count = {}
        for core in request.cores:
            self.count[core] = sum(
                self.used[p]
                for p, devices in enumerate(request.positions)
                if p in self.used and devices[0] == core
            ) + self.tail.get(core, 0)
            if request.max_loadables is not None:
                self.model.add(self.count[core] <= request.max_loadables)

    def _goal(self) -> None:
        model, request = self.model, self.request
        for first, twin in request.twins:
            # symmetry: of two exchanged placements only one is searched
            model.add(self.count[first] >= self.count[twin])
        sums = self.sums()
        self.limit(sums)
        goals = [sums[i] for i in request.objective]
        if len(goals) == 1:
            model.add_linear_constraint(goals[0], request.lower, request.upper)
            model.minimize(goals[0])
            return
        most = model.new_int_var(request.lower, request.upper, "")
        for goal in goals:
            model.add(goal <= most)
        model.minimize(most)

    def limit(self, sums: list[Any]) -> None:
        """Keeps the measures within their limits."""
        for total, measure in zip(sums, self.request.measures, strict=True):
            if measure.limit is not None:
                self.model.add(total <= measure.limit)

    def sums(self) -> list[Any]:
        """Returns the measures as linear expressions."""
        sums = []
        for measure in self.request.measures:
            total = sum(
                cost * self.mode[v][m]
                for v, costs in enumerate(measure.modes)
                for m, cost in costs.items()
                if cost
            )
            for ways, costs in zip(self.ways, measure.ways, strict=True):
                total += sum(c * w for c, w in zip(costs, ways, strict=True) if c)
            for core, cost in zip(self.request.cores, measure.launch, strict=True):
                total += cost * self.count[core]
            sums.append(total)
        return sums

    def _hint(self) -> None:
        hint = self.request.hint
        if hint is None:
            return
        for v in self.nodes:
            for m, b in self.mode[v].items():
                self.model.add_hint(b, int(m == hint.mode[v]))
            for p, b in enumerate(self.after[v][1:-1], start=1):
                self.model.add_hint(b, int(hint.position[v] >= p))

    def answer(self, solver: Any) -> OrderAnswer:
        return OrderAnswer(
            solver.best_objective_bound,
            mode=[
                next(m for m, b in choice.items() if solver.boolean_value(b))
                for choice in self.mode
            ],
            position=[sum(solver.boolean_value(b) for b in a[1:-1]) for a in self.after],
            ways=[
                (t, w)
                for t, ways in enumerate(self.ways)
                for w, b in enumerate(ways)
                if solver.boolean_value(b)
            ],
        )
