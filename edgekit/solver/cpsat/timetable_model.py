"""The CP-SAT model of several chains that repeat on shared devices, in integer time units.
``edgekit.schedule.timetable`` scales the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from edgekit.solver.program import load_cp_model, make_solver, search


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """A placement of a whole chain: device and duration by task, loadables by device, cost."""

    tasks: Sequence[tuple[int, int]]
    loadables: Sequence[int]
    cost: int


@dataclass(frozen=True, slots=True)
class ChainRequest:
    """A chain of parts; durations and times are in units.

    Attributes:
        times: Durations by part and device; None if the device cannot run the part.
        hands: Durations of hand-overs by border, device before and device after.
        cost: Costs, indexed like ``times``.
        hand_cost: Costs, indexed like ``hands``.
        frames: Frames in a cycle.
        period: Units between frames; 0 without a cycle.
        weight: Weight of the chain's latency.
        limit: The most units from a frame's arrival to its end.
        too_large: Runs of parts, first and last, that do not fit one loadable.
        routes: Placements of the whole chain that may be taken instead.
    """

    times: Sequence[Sequence[int | None]]
    hands: Sequence[Sequence[Sequence[int]]]
    cost: Sequence[Sequence[int]]
    hand_cost: Sequence[Sequence[Sequence[int]]]
    frames: int
    period: int
    weight: int
    limit: int
    too_large: Sequence[Sequence[int]]
    routes: Sequence[RouteRequest]


@dataclass(frozen=True, slots=True)
class TimetableRequest:
    """Chains that share devices.

    Attributes:
        devices: Number of devices; the first is the GPU.
        cores: Devices that run loadables.
        launch: Units for starting a loadable, by device.
        launch_cost: Cost of starting a loadable, by device.
        slots: Loadables that a core holds; None: any number.
        one_core: True if each chain uses at most one core.
        hyper: Units of a cycle; None without a cycle.
        copies: Number of later cycles in which a frame may still run.
        goal: "ratio", "end", "load" or "cost".
        most: The largest value of the goal.
        chains: The chains.
        hint: Initial devices by chain and part, or a route as a single negative number.
        workers: Parallel searches that share results.
        effort: The most deterministic time.
    """

    devices: int
    cores: Sequence[int]
    launch: Sequence[int]
    launch_cost: Sequence[int]
    slots: int | None
    one_core: bool
    hyper: int | None
    copies: int
    goal: str
    most: int
    chains: Sequence[ChainRequest]
    hint: Sequence[Sequence[int]] | None = None
    workers: int = 1
    effort: float = 1.0


@dataclass(frozen=True, slots=True)
class TimetableAnswer:
    """The result of a search.

    Attributes:
        status: "found", "unknown" or "infeasible".
        bound: Lower bound of the goal.
        proved: True if the value is optimal.
        places: Devices by chain and part, or a route as a single negative number.
        starts: By chain, frame and part, or task of the route.
        hands: By chain and frame, border and start of each hand-over.
    """

    status: str
    bound: float = 0.0
    proved: bool = False
    places: Sequence[Sequence[int]] = ()
    starts: Sequence[Sequence[Sequence[int]]] = ()
    hands: Sequence[Sequence[Sequence[tuple[int, int]]]] = ()


def solve(request: TimetableRequest, seconds: float) -> TimetableAnswer:
    """Solves a request; ``seconds`` limits the wall clock."""
    model = load_cp_model().CpModel()
    built = _Variables(model, request)
    built.minimise()
    solver = make_solver(gap=2e-5, effort=request.effort, seconds=seconds, workers=request.workers)
    status = search(solver, model)
    if status == "INFEASIBLE":
        return TimetableAnswer("infeasible")
    if status not in {"OPTIMAL", "FEASIBLE"}:
        return TimetableAnswer("unknown", solver.best_objective_bound)
    return built.answer(solver, proved=status == "OPTIMAL")


class _Variables:
    """Variables of a request."""

    def __init__(self, model: Any, request: TimetableRequest) -> None:
        self.model = model
        self.request = request
        self.devices = range(request.devices)
        self.cores = request.cores
        self.chains = request.chains
        self.busy: list[list[tuple[Any, Any, Any]]] = [[] for _ in self.devices]  # start, size, on
        self.on: list[list[list[Any]]] = []  # by chain, part and device
        self.first: list[dict[tuple[int, int], Any]] = []  # by chain: part begins a loadable there
        self.pair: list[dict[tuple[int, int, int], Any]] = []  # by chain: border, before, after
        self.used: list[dict[int, Any]] = []  # by chain: core is used
        self.route: list[list[Any]] = []  # by chain: it runs on this route, not part by part
        self.loads: list[list[Any]] = []  # by chain and device
        for number, chain in enumerate(self.chains):
            self._place(number, chain)
        self._share()
        self.ends: list[list[Any]] = []
        self.starts: list[list[list[Any]]] = []
        self.hands: list[list[dict[int, Any]]] = []
        self.begins: list[list[list[list[Any]]]] = []  # by chain, frame and route, of tasks
        if request.goal != "load":
            for number, chain in enumerate(self.chains):
                self._frames(number, chain)
            self._no_overlap()
        self._hint()

    def _both(self, a: Any, b: Any, name: str) -> Any:
        both = self.model.new_bool_var(name)
        self.model.add_bool_or(a.negated(), b.negated(), both)
        self.model.add_implication(both, a)
        self.model.add_implication(both, b)
        return both

    def _any(self, literals: list[Any], name: str) -> Any:
        found = self.model.new_bool_var(name)
        self.model.add_bool_or(found.negated(), *literals)
        for literal in literals:
            self.model.add_implication(literal, found)
        return found

    def _place(self, number: int, chain: ChainRequest) -> None:
        model = self.model
        on = []
        routes = [model.new_bool_var(f"r{number}_{k}") for k in range(len(chain.routes))]
        self.route.append(routes)
        # a chain that cannot be divided into parts has routes only
        if not chain.times:
            model.add_exactly_one(routes)
        for part, row in enumerate(chain.times):
            own = [model.new_bool_var(f"on{number}_{part}_{d}") for d in self.devices]
            for d in self.devices:
                if row[d] is None:
                    model.add(own[d] == 0)
            model.add_exactly_one([*own, *routes])
            on.append(own)
        self.on.append(on)
        first: dict[tuple[int, int], Any] = {}
        for c in self.cores:
            for part, own in enumerate(on):
                if not part:
                    first[part, c] = own[c]
                    continue
                before = on[part - 1][c].negated()
                first[part, c] = self._both(own[c], before, f"first{number}_{part}_{c}")
        self.first.append(first)
        used = {}
        for c in self.cores:
            there = [lit for lit, r in self._routes(number) if r.loadables[c]]
            used[c] = self._any([*(own[c] for own in on), *there], f"core{number}_{c}")
        self.used.append(used)
        if self.request.one_core and len(self.cores) > 1:
            model.add_at_most_one(list(used.values()))
        for i, j in chain.too_large:
            for c in self.cores:
                model.add_bool_or([on[part][c].negated() for part in range(i, j + 1)])
        self.pair.append(self._pairs(number, chain, on))
        self.loads.append([self._load(number, chain, d) for d in self.devices])

    def _routes(self, number: int) -> list[tuple[Any, RouteRequest]]:
        return list(zip(self.route[number], self.chains[number].routes, strict=True))

    def _pairs(
        self, number: int, chain: ChainRequest, on: list[list[Any]]
    ) -> dict[tuple[int, int, int], Any]:
        """Returns a variable by border, place before and after: 1 if the hand-over takes place."""
        # the index of the caller in ``hands``, after the devices
        caller = len(self.devices)
        pair: dict[tuple[int, int, int], Any] = {}
        for border, rows in enumerate(chain.hands if on else []):
            befores = [caller] if border == 0 else list(self.devices)
            afters = [caller] if border == len(on) else list(self.devices)
            for a, b in product(befores, afters):
                if not rows[a][b]:
                    continue
                if border == 0:
                    pair[border, a, b] = on[0][b]
                elif border == len(on):
                    pair[border, a, b] = on[-1][a]
                else:
                    name = f"pair{number}_{border}_{a}_{b}"
                    pair[border, a, b] = self._both(on[border - 1][a], on[border][b], name)
        return pair

    def _load(self, number: int, chain: ChainRequest, d: int) -> Any:
        """Returns the units that a frame takes on a device."""
        rows = enumerate(chain.times)
        load = sum(self.on[number][part][d] * row[d] for part, row in rows if row[d] is not None)
        if d in self.cores:
            opens = [lit for (_, c), lit in self.first[number].items() if c == d]
            load += sum(opens) * self.request.launch[d]
        if d == 0:
            pairs = self.pair[number].items()
            load += sum(chain.hands[b][i][j] * lit for (b, i, j), lit in pairs)
        for lit, route in self._routes(number):
            load += lit * sum(work for device, work in route.tasks if device == d)
        return load

    def _share(self) -> None:
        """Adds the limit of slots, and lower bounds that hold for every timetable."""
        model, request = self.model, self.request
        if request.slots is not None:
            for c in self.cores:
                used = [first[key] for first in self.first for key in first if key[1] == c]
                whole = sum(
                    lit * route.loadables[c]
                    for number in range(len(self.chains))
                    for lit, route in self._routes(number)
                )
                model.add(sum(used) + whole <= request.slots)
        if request.hyper is not None and request.goal != "load":
            for d in self.devices:
                # redundant: a cycle must hold all of a device's work
                model.add(self._total(d) <= request.hyper)

    def _total(self, d: int) -> Any:
        return sum(
            loads[d] * chain.frames for loads, chain in zip(self.loads, self.chains, strict=True)
        )

    def _frames(self, number: int, chain: ChainRequest) -> None:
        model = self.model
        sizes = self._sizes(number, chain)
        starts, hands, ends, begins = [], [], [], []
        for frame in range(chain.frames):
            own, lone, end = self._frame(number, chain, frame, sizes)
            starts.append(own)
            hands.append(lone)
            ends.append(end)
            begins.append(self._by_route(number, chain, frame, own, end))
        # frames of a network are identical: running each part in frame order loses no optimum
        for before, after in pairwise(starts):
            for size, a, b in zip(sizes, before, after, strict=True):
                model.add(b >= a + size)
        if self.request.hyper is not None:
            # the next cycle's first frame follows this cycle's last
            for size, a, b in zip(sizes, starts[-1], starts[0], strict=True):
                model.add(b + self.request.hyper >= a + size)
        self.ends.append(ends)
        self.starts.append(starts)
        self.hands.append(hands)
        self.begins.append(begins)

    def _sizes(self, number: int, chain: ChainRequest) -> list[Any]:
        """Returns each part's duration at its place, with launch and the GPU's hand-overs."""
        found = []
        for part, row in enumerate(chain.times):
            size = sum(
                self.on[number][part][d] * row[d] for d in self.devices if row[d] is not None
            )
            size += sum(self.first[number][part, c] * self.request.launch[c] for c in self.cores)
            for (border, a, b), lit in self.pair[number].items():
                if (border == part and b == 0 != a) or (border == part + 1 and a == 0):
                    size += lit * chain.hands[border][a][b]
            var = self.model.new_int_var(0, chain.limit, f"size{number}_{part}")
            self.model.add(var == size)
            found.append(var)
        return found

    def _frame(
        self, number: int, chain: ChainRequest, frame: int, sizes: list[Any]
    ) -> tuple[list[Any], dict[int, Any], Any]:
        """Returns a frame's starts, the starts of separate hand-overs, and its end."""
        model, on = self.model, self.on[number]
        low = frame * chain.period
        high = low + chain.limit
        starts: list[Any] = []
        stops: list[Any] = []
        for part, size in enumerate(sizes):
            start = model.new_int_var(low, high, f"s{number}_{frame}_{part}")
            stop = model.new_int_var(low, high, f"e{number}_{frame}_{part}")
            for d in self.devices:
                if chain.times[part][d] is not None:
                    name = f"i{number}_{frame}_{part}_{d}"
                    interval = model.new_optional_interval_var(start, size, stop, on[part][d], name)
                    self.busy[d].append((interval, (start, size, stop), on[part][d]))
            if part:
                model.add(start >= stops[-1])
                for c in self.cores:  # a loadable runs without interruption
                    same = (on[part][c], on[part - 1][c])
                    model.add(start == stops[-1]).only_enforce_if(*same)
            starts.append(start)
            stops.append(stop)
        end = model.new_int_var(low, high, f"end{number}_{frame}")
        if stops:
            model.add(end >= stops[-1])
        hands: dict[int, Any] = {}
        for (border, a, b), lit in self.pair[number].items():
            if a == 0 or b == 0:
                continue  # a part of the GPU's own work
            hand = chain.hands[border][a][b]
            # at most one pair of a border is active: they share a start
            if border not in hands:
                hands[border] = model.new_int_var(low, high, f"h{number}_{frame}_{border}")
            begin = hands[border]
            name = f"hi{number}_{frame}_{border}_{a}_{b}"
            interval = model.new_optional_fixed_size_interval_var(begin, hand, lit, name)
            self.busy[0].append((interval, (begin, hand, None), lit))
            if border:
                model.add(begin >= stops[border - 1]).only_enforce_if(lit)
            after = starts[border] if border < len(sizes) else end
            model.add(after >= begin + hand).only_enforce_if(lit)
        # redundant: a frame's work is sequential
        model.add(end - low >= sum(self.loads[number]))
        return starts, hands, end

    def _by_route(
        self, number: int, chain: ChainRequest, frame: int, parts: list[Any], end: Any
    ) -> list[list[Any]]:
        """Adds a frame's tasks on each route; returns their starts."""
        model = self.model
        low = frame * chain.period
        found = []
        for k, (lit, route) in enumerate(self._routes(number)):
            begins: list[Any] = []
            before: Any = None
            for n, (device, work) in enumerate(route.tasks):
                begin = model.new_int_var(low, low + chain.limit, f"r{number}_{frame}_{k}_{n}")
                # an unused route has one solution instead of many
                model.add(begin == low).only_enforce_if(lit.negated())
                name = f"ri{number}_{frame}_{k}_{n}"
                interval = model.new_optional_fixed_size_interval_var(begin, work, lit, name)
                self.busy[device].append((interval, (begin, work, None), lit))
                if before is not None:
                    model.add(begin >= before).only_enforce_if(lit)
                begins.append(begin)
                before = begin + work
            model.add(end >= (low if before is None else before)).only_enforce_if(lit)
            for start in parts:  # unused with a route
                model.add(start == low).only_enforce_if(lit)
            found.append(begins)
        return found

    def _no_overlap(self) -> None:
        model = self.model
        for d in self.devices:
            intervals = [interval for interval, _, _ in self.busy[d]]
            for copy in range(1, self.request.copies + 1):
                # a frame that runs into the next cycle must not meet that cycle's frames
                shift = copy * (self.request.hyper or 0)
                for number, (_, (start, size, stop), on) in enumerate(self.busy[d]):
                    end = start + size if stop is None else stop
                    intervals.append(
                        model.new_optional_interval_var(
                            start + shift, size, end + shift, on, f"copy{d}_{copy}_{number}"
                        )
                    )
            model.add_no_overlap(intervals)

    def minimise(self) -> None:
        model, goal, request = self.model, self.request.goal, self.request
        if goal == "cost":
            model.minimize(self._cost())
            return
        value = model.new_int_var(0, request.most, "value")
        self.value = value
        if goal == "load":
            for d in self.devices:
                model.add(value >= self._total(d))
        elif goal == "end":
            for ends in self.ends:
                # a makespan has a single frame of each network
                model.add(value >= ends[0])
            for d in self.devices:
                model.add(value >= self._total(d))
        else:
            for chain, ends in zip(self.chains, self.ends, strict=True):
                for frame, end in enumerate(ends):
                    model.add(value >= (end - frame * chain.period) * chain.weight)
            # the first frames all arrive at once: chains with early deadlines share each device
            by_deadline = sorted(
                range(len(self.chains)), key=lambda i: self.chains[i].weight, reverse=True
            )
            for count in range(1, len(by_deadline) + 1):
                some = by_deadline[:count]
                least = self.chains[some[-1]].weight
                for d in self.devices:
                    model.add(value >= least * sum(self.loads[i][d] for i in some))
        model.minimize(value)

    def _cost(self) -> Any:
        total: Any = 0
        for number, chain in enumerate(self.chains):
            own: Any = sum(
                self.on[number][part][d] * row[d]
                for part, row in enumerate(chain.cost)
                for d in self.devices
            )
            own += sum(
                lit * self.request.launch_cost[c] for (_, c), lit in self.first[number].items()
            )
            own += sum(
                lit * chain.hand_cost[b][i][j] for (b, i, j), lit in self.pair[number].items()
            )
            own += sum(lit * route.cost for lit, route in self._routes(number))
            total += own * chain.frames
        return total

    def _hint(self) -> None:
        for number, places in enumerate(self.request.hint or ()):
            chosen = -1 - places[0] if places[0] < 0 else None
            for k, lit in enumerate(self.route[number]):
                self.model.add_hint(lit, int(k == chosen))
            for part, own in enumerate(self.on[number]):
                for d in self.devices:
                    self.model.add_hint(own[d], int(chosen is None and d == places[part]))

    def answer(self, solver: Any, *, proved: bool) -> TimetableAnswer:
        """Returns the places, and the starts of parts and hand-overs or of a route's tasks."""
        chosen = [
            next((k for k, lit in enumerate(routes) if solver.boolean_value(lit)), None)
            for routes in self.route
        ]
        begins = [
            starts if k is None else [routes[k] for routes in frames]
            for k, starts, frames in zip(chosen, self.starts, self.begins, strict=False)
        ]
        return TimetableAnswer(
            "found",
            solver.best_objective_bound,
            proved,
            places=[
                [next(d for d in self.devices if solver.boolean_value(own[d])) for own in on]
                if k is None
                else [-1 - k]
                for k, on in zip(chosen, self.on, strict=True)
            ],
            starts=[
                [[solver.value(start) for start in frame] for frame in chain] for chain in begins
            ],
            hands=[
                [[(border, solver.value(v)) for border, v in frame.items()] for frame in chain]
                for chain in self.hands
            ],
        )
