"""Each network alone: its best plans as routes of tasks, an alternative to its chain of groups, and
proven bounds over all of its placements.

Groups keep every tensor in its best format and change the device only at single-tensor borders. The
plans of :func:`~edgekit.placement.placing.place` have neither limit, so a joint placement is no
worse than a choice among the networks' own plans. The bounds that these plans prove for each
network alone also hold for every joint placement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from edgekit.errors import GateError
from edgekit.placement.inputs import make_inputs
from edgekit.placement.placing import Prepared
from edgekit.placement.problem import BuiltProblem, build_problem
from edgekit.placement.search import Solved, search
from edgekit.schedule.binding import BindingLimit, infeasible
from edgekit.schedule.timetable import DeviceTask, Route
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import OUTSIDE, Border, Goal, PlacementProblem, Placing, Transfer
from edgekit_device.protocol.fields import dla_core

_METRICS = {"latency": "latency_us", "gpu_time": "gpu_us", "energy": "energy_uj"}
_MOST_TASKS = 300  # tasks of all frames on a network's routes
_LEAST_ROUTES = 4  # routes that are kept for any number of tasks
_PIECES = 5  # pieces of a long GPU run in a frame: other tasks may run between them
_ROUNDS = 8


@dataclass(frozen=True)
class OwnPlan:
    """A plan of a network alone; ``nodes`` are the problem's nodes by task of the route."""

    prepared: Prepared
    built: BuiltProblem
    placing: Placing
    route: Route
    nodes: tuple[tuple[int, ...], ...]


class NetworkAlone:
    """A network's best plans and bounds if it has the board alone.

    Attributes:
        bounds: Proven lower bounds over all its placements: latency_us, gpu_us, energy_uj and
            period_us (for any mix of plans); 0 if there is no proof.

    Raises:
        GateError: The network has no placement.
    """

    def __init__(self, forms: Sequence[Prepared], *, one_core: bool) -> None:
        """Finds the best plans of a network.

        Args:
            forms: The network; both forms, for the same devices, if it can be planned with and
                without its rewrites.
            one_core: True if a plan may use only a single DLA core.
        """
        self.bounds = dict.fromkeys(_METRICS.values(), math.inf)
        self._best = dict.fromkeys(_METRICS, forms[0])
        self._devices = forms[0].request.devices
        self._groups = [
            (form, alike) for form in forms for alike in _by_usable_devices(form, one_core)
        ]
        self._found: list[OwnPlan] = []
        self._priced: dict[tuple[float, int], PricedLoad] = {}
        refusal: GateError | None = None
        for objective, metric in _METRICS.items():
            # infinite: a form without any placement does not lower the minimum
            proved = dict.fromkeys(map(id, forms), math.inf)
            for form, alike in self._groups:
                try:
                    built, solved = _solve_objective(alike[0], objective)
                except GateError as error:
                    refusal = refusal or error
                    if error.code != "plan.infeasible":
                        proved[id(form)] = 0.0  # no proof
                    continue
                proved[id(form)] = min(proved[id(form)], solved.bound)
                for part in solved.parts:
                    self._add(alike, built, part.placing)
            # any form may be used, so only the smaller bound holds
            self.bounds[metric] = min(proved.values())
            self._best[objective] = min(forms, key=lambda form: proved[id(form)])
        if refusal is not None and not self._found:
            raise refusal
        cores = len(self._groups[0][1][0].request.cores)
        self.bounds["period_us"] = least_load(lambda price: self.cheapest(price, cores))

    def form_for(self, objective: str) -> Prepared:
        """Returns the form of the network that is better alone, under a joint objective."""
        return self._best.get(objective, self._best["latency"])

    def cheapest(self, price: float, cores: int) -> PricedLoad:
        """Returns the plan with the least price * GPU time + (1 - price) * DLA time / cores."""
        known = self._priced.get((price, cores))
        if known is not None:
            return known
        loads, bound = list[PricedLoad](), math.inf
        for _, alike in self._groups:
            problem = alike[0].problem
            # the cores share their price, as the busiest core works at least their mean
            weights = [price, *([(1 - price) / max(1, cores)] * len(problem.cores)), 0.0]
            optimum = minimise(problem, Goal(tuple(weights)))
            bound = min(bound, optimum.bound)
            if optimum.placing is None:
                continue
            self._add(alike, alike[0].built, optimum.placing)
            load = optimum.placing.load_us
            loads.append(PricedLoad(load[0], sum(load[1:-1]) / max(1, cores), 0.0))
        best = min(loads, key=lambda load: load.at(price), default=PricedLoad(0.0, 0.0, 0.0))
        found = replace(best, bound=bound if loads else 0.0)
        self._priced[price, cores] = found
        return found

    def _add(self, alike: Sequence[Prepared], built: BuiltProblem, placing: Placing) -> None:
        self._found += [_on_core(prepared, built, placing, self._devices) for prepared in alike]

    def plans(self, frames: int) -> tuple[OwnPlan, ...]:
        """Returns the plans found; fewer plans for a network with many frames to schedule."""
        retained, tasks = list[OwnPlan](), 0
        for plan in _drop_repeats(self._found):
            tasks += len(plan.route.tasks) * frames
            if len(retained) < _LEAST_ROUTES or tasks <= _MOST_TASKS:
                retained.append(plan)
        return tuple(retained)


def least_busy_time(networks: Sequence[NetworkAlone], frames: Sequence[int], cores: int) -> float:
    """Returns a lower bound of the busiest device's work in a hyperperiod; collects plans on
    the way.
    """

    def cheapest(price: float) -> PricedLoad:
        loads = [own.cheapest(price, cores) for own in networks]
        rows = list(zip(loads, frames, strict=True))
        return PricedLoad(
            sum(load.gpu_us * count for load, count in rows),
            sum(load.core_us * count for load, count in rows),
            sum(load.bound * count for load, count in rows),
        )

    return least_load(cheapest)


def _by_usable_devices(whole: Prepared, one_core: bool) -> list[list[Prepared]]:
    """Returns the network on each usable set of devices; like sets are grouped."""
    request = whole.request
    if len(request.cores) < 2:
        return [[whole]]
    each = list[Prepared]()
    for core in request.cores:
        options = replace(request.options, dla_cores=(core,))
        try:
            own = make_inputs(request.network, request.judgement, request.model, options)
        except GateError:  # a pin to another core
            continue
        each.append(Prepared(own))
    if one_core and not each:
        raise infeasible(
            "its pins need two DLA cores, but a hybrid engine uses only one",
            "pin to DLA instead of to a core, or set build.mode: split",
            BindingLimit("placement"),
        )
    # without a pin to one of them, cores differ only in name: the first is solved for all
    named = any(dla_core(device) is not None for device in request.pins.values())
    groups = [[prepared] for prepared in each] if named else [each]
    return groups if one_core else [[whole], *groups]


def _solve_objective(prepared: Prepared, objective: str) -> tuple[BuiltProblem, Solved]:
    request = prepared.request
    own_request = replace(request, options=replace(request.options, objective=objective, bounds={}))
    built, solved, _ = search(own_request, prepared.built, prepared.baselines)
    return built, solved


def _on_core(
    prepared: Prepared, built: BuiltProblem, placing: Placing, devices: Sequence[str]
) -> OwnPlan:
    """Returns a plan that was found for a core, moved to a like core."""
    if built.problem.devices != prepared.request.devices:
        # the search can have taken a baseline's kernels
        same = prepared.built.kernels == built.kernels
        built = prepared.built if same else build_problem(prepared.request, kernels=built.kernels)
    route, nodes = plan_route(built.problem, placing, devices)
    return OwnPlan(prepared, built, placing, route, nodes)


def _drop_repeats(plans: Sequence[OwnPlan]) -> Iterator[OwnPlan]:
    seen = set()
    for plan in plans:
        # a timetable sees only devices and durations
        key = tuple((task.device, round(task.work_us, 3)) for task in plan.route.tasks)
        if key not in seen:
            seen.add(key)
            yield plan


def plan_route(
    problem: PlacementProblem, placing: Placing, devices: Sequence[str]
) -> tuple[Route, tuple[tuple[int, ...], ...]]:
    """Returns a route over ``devices``, and the nodes of each of its tasks.

    A reformat is work of the GPU's adjacent task, or a task of its own between two loadables; it
    runs after its tensor's producer and before the first consumer that needs it. The tasks add up
    to the placement's latency.
    """
    index = [devices.index(name) for name in problem.devices]
    work = _ExtraWork(problem, placing)
    most = sum(placing.load_us) / _PIECES
    tasks: list[DeviceTask] = []
    nodes: list[tuple[int, ...]] = []

    def add(device: int, own: Sequence[int], us: float, extra: float) -> None:
        first = sum(map(len, nodes))
        tasks.append(DeviceTask(index[device], first, first + len(own) - 1, us, extra))
        nodes.append(tuple(own))

    for s, step in enumerate(placing.steps):
        if work.between[s]:
            add(0, (), work.between[s], work.between[s])
        if step.device in problem.cores:
            us = sum(work.node_us(v) for v in step.nodes)
            add(step.device, step.nodes, us + work.extra[s], work.extra[s])
            continue
        pieces = _cut_pieces(step.nodes, [work.node_us(v) for v in step.nodes], most)
        for number, piece in enumerate(pieces):
            # reformats that end a run read outputs of any of its nodes
            extra = work.before[s] if not number else 0.0
            extra += work.extra[s] if number == len(pieces) - 1 else 0.0
            add(0, piece, sum(work.node_us(v) for v in piece) + extra, extra)
    if work.between[-1]:
        add(0, (), work.between[-1], work.between[-1])
    count = [0] * len(devices)
    for step in placing.steps:
        count[index[step.device]] += step.device in problem.cores
    return Route(tuple(tasks), placing.energy_uj, tuple(count)), tuple(nodes)


def _cut_pieces(nodes: Sequence[int], us: Sequence[float], most: float) -> list[list[int]]:
    """Returns the nodes in consecutive pieces of up to about ``most`` microseconds."""
    found: list[list[int]] = [[]]
    filled = 0.0
    for v, own in zip(nodes, us, strict=True):
        if found[-1] and filled + own > most:
            found.append([])
            filled = 0.0
        found[-1].append(v)
        filled += own
    return found


class _ExtraWork:
    """The time of each step in addition to its nodes, and of the GPU between two steps."""

    def __init__(self, problem: PlacementProblem, placing: Placing) -> None:
        self.problem, self.placing = problem, placing
        steps = placing.steps
        self.step_of = {v: s for s, step in enumerate(steps) for v in step.nodes}
        self.extra = [0.0] * len(steps)
        self.before = [0.0] * len(steps)  # in a GPU run, before its first node
        self.between = [0.0] * (len(steps) + 1)  # on the GPU, before a step
        for s, step in enumerate(steps):
            launch = problem.launch[step.device]
            self.extra[s] += sum(launch.load_us) if launch else 0.0
        for b, t, w in placing.ways:
            border = problem.borders[b]
            self._pay(border, border.transfers[t], border.transfers[t].ways[w].load_us)

    def node_us(self, v: int) -> float:
        """Returns a node's microseconds on its device."""
        cost = self.problem.costs[v][self.placing.modes[v]]
        assert cost is not None
        return sum(cost.load_us)

    def _pay(self, border: Border, transfer: Transfer, load_us: Sequence[float]) -> None:
        steps, modes = self.placing.steps, self.placing.modes
        outside = self.problem.outside
        source = outside if border.producer == OUTSIDE else modes[border.producer]
        users = [v for v in border.consumers if (source, modes[v]) in transfer.pairs]
        first = min((self.step_of[v] for v in users), default=len(steps))
        writer = -1 if border.producer == OUTSIDE else self.step_of[border.producer]
        # inputs have no writer, and outputs no reader
        ends = [s for s in (first, writer) if 0 <= s < len(steps)]
        for device, us in enumerate(load_us):
            if not us:
                continue
            own = [s for s in ends if steps[s].device == device]
            if device in self.problem.cores and own:
                self.extra[own[0]] += us
            # the GPU does the rest: in its run that writes the tensor, in its run just before the
            # reader, or in its run that reads the tensor
            elif writer >= 0 and steps[writer].device == 0:
                self.extra[writer] += us
            elif first and steps[first - 1].device == 0:
                self.extra[first - 1] += us
            elif first < len(steps) and steps[first].device == 0:
                self.before[first] += us
            else:
                self.between[first] += us


@dataclass(frozen=True, slots=True)
class PricedLoad:
    """The GPU's time, the mean time of a core, and a proven bound of their weighted sum.

    A lower bound of the busiest device's work, by prices of the devices' time.

    For any placement, the busiest device works at least a weighted mean of all devices' work. For
    given weights (prices of a microsecond of the GPU and of the cores) that mean is least if each
    network takes its cheapest plan, so that networks are independent of each other and every price
    gives a bound (Lagrange); the best bound is that of the linear programme over all plans.
    """

    gpu_us: float
    core_us: float
    bound: float

    def at(self, price: float) -> float:
        """Returns the weighted sum at another GPU price."""
        return price * self.gpu_us + (1 - price) * self.core_us


def least_load(cheapest: Callable[[float], PricedLoad]) -> float:
    """Returns a lower bound of the busiest device's load.

    ``cheapest`` takes the price of the GPU (the cores' is 1 less that) and returns the plans with
    the least weighted sum. The sum as a function of the price is concave, and each answer is a line
    above it; the next price is the intersection of the lines on either side (Kelley, 1960).
    """
    left, right = cheapest(0.0), cheapest(1.0)
    best = max(left.bound, right.bound)
    for _ in range(_ROUNDS):
        up, down = left.gpu_us - left.core_us, right.core_us - right.gpu_us
        if up <= 0 or down <= 0:
            break
        price = min(1.0, max(0.0, (right.core_us - left.core_us) / (up + down)))
        found = cheapest(price)
        best = max(best, found.bound)
        if found.at(price) >= left.at(price) * (1 - 1e-6):
            break
        if found.gpu_us > found.core_us:
            left = found
        else:
            right = found
    return best
