"""The request for each network of a joint placement, and the result, ``edgekit.plans/1``: a plan
for each network, the timeline and the devices' utilisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgekit.dla.verdicts import Judgement
from edgekit.errors import GateError
from edgekit.network.model import Network
from edgekit.placement.assembly import assemble, max_pool_bytes
from edgekit.placement.forecast import DIGITS
from edgekit.placement.placing import Prepared
from edgekit.placement.plan import Options, Plan, pool_bytes
from edgekit.placement.problem import BuiltProblem
from edgekit.placement.search import PlanShare, Solved
from edgekit.removed import FormerDict
from edgekit.schedule.contention import Contention, simulate
from edgekit.schedule.groups import GroupChain
from edgekit.schedule.own_plans import OwnPlan
from edgekit.schedule.timetable import DeviceTask, NetworkChain, Timetable, Workload, frame_tasks
from edgekit.solver.evaluation import evaluate
from edgekit.solver.problem import OPTIMAL_GAP, Goal, Placing
from edgekit.targets.board import Target
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    choice,
    document,
    flag,
    integer,
    mapping,
    member,
    nullable,
    record,
    records,
    without_fields,
    write,
)

_UNITS = {"latency": "deadline", "makespan": "us", "period": "us", "gpu_time": "us"}


@document(frozen=True)
class LatencyBounds:
    """Microseconds without and with contention for memory.

    Attributes:
        lower: Microseconds without contention.
        upper: Microseconds with contention.
    """

    lower: float = member(fields.figure)
    upper: float = member(fields.figure)


@document(frozen=True)
class NetworkPlan:
    """A network's part of the result.

    Attributes:
        name: The network's name.
        rate_hz: Required frames a second; None: a single frame.
        deadline_us: Longest time from a frame's arrival to its end, in microseconds; None: no
            limit.
        frames: Frames in a cycle.
        latency_us: The longest latency of its frames.
        plan: The network's plan. Bounds are only in the joint result.
    """

    name: str = member(fields.name)
    rate_hz: float | None = member(nullable(fields.figure))
    deadline_us: float | None = member(nullable(fields.figure))
    frames: int = member(fields.count)
    latency_us: LatencyBounds = member(record(LatencyBounds))
    plan: Plan = member(record(Plan))


@document(frozen=True)
class TimelineEntry:
    """Uninterrupted work of a frame on a device; microseconds from the first arrival.

    ``kind`` is "layers" or "reformat"; ``alone_us`` is its duration without contention.

    Attributes:
        frame: Number of the network's frame, from 0.
        segment: Number of the segment.
        layers: Number of layers.
    """

    network: str = member(fields.name)
    frame: int = member(fields.count)
    device: str = member(fields.device)
    kind: str = member(choice("layers", "reformat"))
    segment: int = member(integer(-1, 1 << 62))
    layers: int = member(fields.count)
    first: str = member(fields.name)
    last: str = member(fields.name)
    start_us: float = member(fields.figure)
    end_us: float = member(fields.figure)
    alone_us: float = member(fields.figure)


@document(frozen=True)
class LeastValue:
    """The objective's value without contention for memory, and its proven bounds.

    Attributes:
        value: The optimum, in the objective's unit.
        bound: Proven lower bound, for these groups and each network's own plans.
        any_placement: Proven lower bound over all placements, for any groups.
        extrapolated: Predictions of the networks' plans without any published time of their kind.
        unknown_cost: Layers without a predicted time, as NETWORK/LAYER.
        gap: The proven gap of the value, relative to it.
        optimal: True if the value is proven optimal under the model.
    """

    value: float = member(fields.figure)
    bound: float = member(fields.figure)
    any_placement: float = member(fields.figure)
    extrapolated: tuple[str, ...] = member(fields.names)
    unknown_cost: tuple[str, ...] = member(fields.names)
    gap: float = member(fields.figure)
    optimal: bool = member(flag)


@document(frozen=True)
class ReachedValue:
    """The objective's value with measured contention.

    Attributes:
        value: In the objective's unit.
    """

    value: float = member(fields.figure)


@document(frozen=True)
class BusyShares:
    """The fraction of the time that a device works, without and with contention.

    Attributes:
        lower: Fraction without contention, 0 to 1.
        upper: Fraction with contention.
    """

    lower: float = member(fields.share)
    upper: float = member(fields.share)


@document(frozen=True)
class CoreLoadables:
    """Number of loadables of all networks by core, and the limit of a core.

    Attributes:
        cores: Number of loadables by the core's number.
        most: Largest number of loadables of a core.
    """

    cores: Mapping[str, int] = member(mapping(fields.count, fields.device))
    most: int = member(fields.count, key="max")


@document(frozen=True)
class Plans(FormerDict):
    """Several networks on one board, an ``edgekit.plans/1``; everything is predicted.

    Attributes:
        target: The board.
        power_mode: Its power mode.
        tensorrt: The TensorRT release whose rules apply.
        objective: "latency" (worst latency relative to its deadline), "makespan", "period",
            "energy" or "gpu_time".
        unit: Unit of the values: "deadline" (fraction of the deadline), "us" or "uj".
        lower: The optimum without contention for memory.
        upper: The value of these plans with contention.
        cycle_us: Period of the timeline in microseconds; without rates, its end.
        repeats: True if the timeline repeats.
        networks: Each network's part, in the configuration's order.
        timeline: The work in order of its start, with contention.
        utilisation: By device.
        loadables: Loadables of all networks.
        pools: Bytes by memory pool, the maximum over all loadables.
        contention: The slowdowns and their source.
        notes: Notes for the reader.
        clock: "predicted".
    """

    target: str = member(fields.target)
    power_mode: str = member(fields.name)
    tensorrt: str = member(fields.release)
    objective: str = member(choice("latency", "makespan", "period", "energy", "gpu_time"))
    unit: str = member(choice("deadline", "us", "uj"))
    lower: LeastValue = member(record(LeastValue))
    upper: ReachedValue = member(record(ReachedValue))
    cycle_us: float = member(fields.figure)
    repeats: bool = member(flag)
    networks: tuple[NetworkPlan, ...] = member(records(NetworkPlan))
    timeline: tuple[TimelineEntry, ...] = member(records(TimelineEntry))
    utilisation: Mapping[str, BusyShares] = member(mapping(record(BusyShares), fields.device))
    loadables: CoreLoadables = member(record(CoreLoadables))
    pools: Mapping[str, int] = member(pool_bytes)
    contention: Contention = member(record(Contention))
    notes: tuple[str, ...] = member(fields.names, default=())
    clock: str = member(choice("predicted"), default="predicted")
    schema: str = member(choice("edgekit.plans/1"), default="edgekit.plans/1")

    def to_json(self) -> dict[str, object]:
        """Returns the ``edgekit.plans/1`` document."""
        return dict(write(self))


def assemble_plans(
    placed: Sequence[PlacedNetwork],
    workload: Workload,
    objective: str,
    lower: Timetable,
    upper: Timetable,
    placement_bound: float,
    contention: Contention,
    target: Target,
) -> Plans:
    """Returns the result for a timetable with contention and the optimum without."""
    plans = [_network_plan(network, upper.places[i], objective) for i, network in enumerate(placed)]
    placement_bound = min(placement_bound, lower.value)
    whole = workload.hyperperiod_us
    repeats = whole is not None or objective == "period"
    if whole is not None:
        cycle = float(whole)
    elif objective == "period":
        cycle = upper.value
    else:
        cycle = max(end for chain in upper.ends_us for frame in chain for end in frame)
    # the same places and order without contention
    alone = lower if objective == "period" else simulate(workload, upper) or upper
    networks = tuple(
        NetworkPlan(
            network.member.name,
            network.member.rate_hz,
            network.chain.deadline_us,
            workload.frames[i],
            LatencyBounds(
                round(min(alone.latency_us(workload, i), upper.latency_us(workload, i)), DIGITS),
                round(upper.latency_us(workload, i), DIGITS),
            ),
            plans[i],
        )
        for i, network in enumerate(placed)
    )
    slots = dict.fromkeys((workload.devices[c] for c in workload.cores), 0)
    for plan in plans:
        for loadable in plan.loadables:
            slots[f"DLA{loadable.core}"] += 1
    shared = len(workload.used(upper.places)) > 1
    mode = placed[0].prepared.request.model.mode
    value = round(lower.value, DIGITS + 3)
    bound = round(min(lower.bound, lower.value), DIGITS + 3)
    gap = (value - bound) / value if value else 0.0
    return Plans(
        target=target.name,
        power_mode=mode.name,
        tensorrt=plans[0].tensorrt,
        objective=objective,
        unit=_UNITS.get(objective, "uj"),
        lower=LeastValue(
            value=value,
            bound=bound,
            any_placement=round(placement_bound, DIGITS + 3),
            extrapolated=tuple(
                dict.fromkeys(why for network in networks for why in network.plan.extrapolated)
            ),
            unknown_cost=tuple(
                f"{network.name}/{layer}"
                for network in networks
                for layer in network.plan.unknown_cost
            ),
            gap=gap,
            optimal=gap <= OPTIMAL_GAP,
        ),
        upper=ReachedValue(round(max(upper.value, lower.value), DIGITS + 3)),
        cycle_us=round(cycle, DIGITS),
        repeats=repeats,
        networks=networks,
        timeline=build_timeline(placed, workload, upper, plans),
        utilisation={
            name: BusyShares(low, high)
            for name, (low, high) in _utilisation(workload, upper, cycle).items()
        },
        loadables=CoreLoadables(slots, workload.max_loadables or 0),
        pools=max_pool_bytes([loadable for plan in plans for loadable in plan.loadables]),
        contention=contention,
        notes=tuple(
            _notes(
                workload,
                objective,
                shared,
                1 - placement_bound / (lower.value or 1.0),
                mode.warning,
            )
        )
        + _unused_rewrite_notes(placed, upper.places),
    )


def _unused_rewrite_notes(
    placed: Sequence[PlacedNetwork], places: Sequence[Sequence[int]]
) -> tuple[str, ...]:
    """Returns notes on the networks that are planned without their rewrites."""
    found = []
    for network, own in zip(placed, places, strict=True):
        prepared = network.plans[-1 - own[0]].prepared if own[0] < 0 else network.prepared
        if prepared.request.network is not network.member.network:
            found.append(
                f"{network.member.name}: rewrites not used, the plan is better without them "
                "(predicted); rewrite.always: true forces them"
            )
    return tuple(found)


def _network_plan(network: PlacedNetwork, places: Sequence[int], objective: str) -> Plan:
    """Returns the plan of a network that is placed by groups or by an own plan."""
    if places[0] < 0:
        own = network.plans[-1 - places[0]]
        return _assemble(network, own.prepared, own.built, own.placing, objective)
    problem = network.built.problem
    modes = [0] * len(problem.costs)
    for group, place in zip(network.groups.groups, places, strict=True):
        for v in group.nodes:
            modes[v] = next(
                m
                for m, cost in enumerate(problem.costs[v])
                if cost is not None and problem.device(m) == place
            )
    placing = evaluate(problem, modes, Goal.of(problem, "latency"))
    if placing is None:
        raise GateError(
            "its part of the common plan exceeds one of its own limits",
            code="plan.infeasible",
            where=network.member.name,
            hint="remove max_transitions and min_loadable_layers",
        )
    return _assemble(network, network.prepared, network.built, placing, objective)


def _assemble(
    network: PlacedNetwork,
    prepared: Prepared,
    built: BuiltProblem,
    placing: Placing,
    objective: str,
) -> Plan:
    solved = Solved((PlanShare(1.0, placing),), placing.value, placing.value)
    # bounds are only given for all networks together
    plan = assemble(prepared.request, built, solved, network.prepared.baselines, notes_proof=False)
    cores = tuple(network.prepared.request.cores)
    constraints = replace(plan.constraints, dla_cores=cores)
    common = replace(plan, constraints=constraints, objective=objective)
    return without_fields(common, "optimal", "bound", "gap")


def _utilisation(
    workload: Workload, table: Timetable, cycle: float
) -> dict[str, tuple[float, float]]:
    alone = workload.loads_us(table.places)
    slowed = [0.0] * len(alone)
    for chain, frames in enumerate(table.starts_us):
        tasks = frame_tasks(workload, chain, table.places[chain])
        for starts, ends in zip(frames, table.ends_us[chain], strict=True):
            for task, start, end in zip(tasks, starts, ends, strict=True):
                slowed[task.device] += end - start
    return {
        name: (round(a / cycle, 9), round(b / cycle, 9)) if cycle else (0.0, 0.0)
        for name, a, b in zip(workload.devices, alone, slowed, strict=True)
    }


def _notes(
    workload: Workload, objective: str, shared: bool, loss: float, warning: str
) -> list[str]:
    notes = [
        "Best combination of the plans that were tried for each network (predicted times); "
        "no board measurements were used"
    ]
    if loss > OPTIMAL_GAP:
        notes.append(
            f"other placements may be better by at most {100 * loss:.2f} % before contention "
            "(proved)"
        )
    else:
        notes.append("no placement is better before contention (proved)")
    if objective != "period" and workload.hyperperiod_us is not None:
        notes.append("the first frames of all networks are assumed to arrive at the same time")
    if not workload.cores:
        notes.append("no DLA core is used: the GPU runs everything, one layer at a time")
    elif not shared:
        notes.append("the GPU alone is best for these networks")
    if warning:
        notes.append(warning)
    return notes


def build_timeline(
    placed: Sequence[PlacedNetwork], workload: Workload, table: Timetable, plans: Sequence[Plan]
) -> tuple[TimelineEntry, ...]:
    """Returns the timeline's entries in order of their starts; ``plans`` are the networks'
    plans.
    """
    found: list[TimelineEntry] = []
    for i, network in enumerate(placed):
        segment = {layer.name: layer.segment for layer in plans[i].layers}
        tasks = frame_tasks(workload, i, table.places[i])
        names = _task_layers(network, table.places[i], tasks)
        for frame, (starts, ends) in enumerate(
            zip(table.starts_us[i], table.ends_us[i], strict=True)
        ):
            slots: list[TimelineEntry] = []
            for task, own, start, end in zip(tasks, names, starts, ends, strict=True):
                slot = TimelineEntry(
                    network.member.name,
                    frame,
                    workload.devices[task.device],
                    "layers" if own else "reformat",
                    segment[own[0]] if own else -1,
                    len(own),
                    own[0] if own else "",
                    own[-1] if own else "",
                    round(start, DIGITS),
                    round(end, DIGITS),
                    round(task.work_us, DIGITS),
                )
                # routes cut long GPU runs into pieces, between which no other task may have run
                if slots and _continues(slots[-1], slot):
                    slot = _join_entries(slots.pop(), slot)
                slots.append(slot)
            found += slots
    return tuple(sorted(found, key=lambda s: (s.start_us, s.device, s.network, s.frame)))


def _task_layers(
    network: PlacedNetwork, places: Sequence[int], tasks: Sequence[DeviceTask]
) -> list[list[str]]:
    """Returns the layers of each task."""
    prepared = network.prepared
    if places[0] < 0:
        own = network.plans[-1 - places[0]]
        prepared, kernels, nodes = own.prepared, own.built.kernels, [list(row) for row in own.nodes]
    else:
        kernels = network.built.kernels
        nodes = [
            [v for group in network.groups.groups[task.first : task.last + 1] for v in group.nodes]
            for task in tasks
        ]
    layers = prepared.request.network.layers
    return [[layers[i].name for v in row for i in kernels[v].layers] for row in nodes]


def _continues(a: TimelineEntry, b: TimelineEntry) -> bool:
    return (
        a.device == b.device == "GPU"
        and a.kind == b.kind == "layers"
        and a.segment == b.segment
        and abs(b.start_us - a.end_us) < 1e-5
    )


def _join_entries(a: TimelineEntry, b: TimelineEntry) -> TimelineEntry:
    return TimelineEntry(
        a.network,
        a.frame,
        a.device,
        a.kind,
        a.segment,
        a.layers + b.layers,
        a.first,
        b.last,
        a.start_us,
        b.end_us,
        round(a.alone_us + b.alone_us, DIGITS),
    )


@document(frozen=True)
class NetworkRequest:
    """A network of the joint placement.

    Attributes:
        options: Its own pins, and the options that all networks share.
        as_it_came: The network without its rewrites, and its verdicts, if a plan may be better
            without them; None if there is no such choice.
    """

    name: str
    network: Network
    judgement: Judgement
    precision: str
    options: Options
    rate_hz: float | None = None
    deadline_ms: float | None = None
    as_it_came: tuple[Network, Judgement] | None = None


@document(frozen=True)
class PlacedNetwork:
    """A network, prepared for the solver.

    ``prepared``, ``built`` and ``groups`` belong to the form that is better alone, with or without
    rewrites; ``plans`` are of both forms.
    """

    member: NetworkRequest
    prepared: Prepared
    built: BuiltProblem
    groups: GroupChain
    plans: tuple[OwnPlan, ...]
    chain: NetworkChain
