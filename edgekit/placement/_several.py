"""Several networks on one board: their placements and when each of their parts runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from edgekit.dla import Judgement
from edgekit.errors import EdgekitError, UsageError
from edgekit.network import Network
from edgekit.placement._build_problem import build_problem
from edgekit.placement._built import Built
from edgekit.placement._place import Prepared, prepare
from edgekit.placement._regions import kept_whole
from edgekit.placement._several_floor import floor_of
from edgekit.placement._several_groups import Groups, groups_of
from edgekit.placement._several_no import missed, nothing_found, refuse_if_hopeless
from edgekit.placement._several_plans import Plans, plans_of
from edgekit.placement._several_routes import Alone, OwnPlan, least_together
from edgekit.placement._several_slowdown import slowdown_of
from edgekit.placement._types import Options
from edgekit.solver import (
    Chain,
    Slowdown,
    Timetable,
    Workload,
    best_places,
    run_through,
    steady_state,
    stretched,
    timetable,
    under_contention,
    value_of,
    worst_slowdown,
)
from edgekit.targets import Target

__all__ = ["MAX_FRAMES", "Member", "Placed", "place_several"]

MAX_FRAMES = 60
"""Frames of all networks until arrivals repeat: more make no timetable that anybody could check."""

_COUNTED = 100_000  # frames up to which it is said whether the devices have time for them
GROUPS = 10
_MOST = 200  # groups of all frames


@dataclass(frozen=True)
class Member:
    """One of the networks; ``options`` are its own pins and what all networks share."""

    name: str
    network: Network
    judgement: Judgement
    precision: str
    options: Options
    rate_hz: float | None = None
    deadline_ms: float | None = None


@dataclass(frozen=True)
class Placed:
    """A member as the solver sees it."""

    member: Member
    prepared: Prepared
    built: Built
    groups: Groups
    plans: tuple[OwnPlan, ...]
    chain: Chain


def place_several(
    members: Sequence[Member],
    target: Target,
    *,
    power_mode: str | None = None,
    objective: str = "latency",
    one_core: bool = True,
    effort: float = 20.0,
    seconds: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
) -> Plans:
    """Places and schedules networks that share a board.

    Args:
        members: The networks; all of them have a rate, or none.
        target: The board.
        power_mode: NVIDIA's name; None is the board's MAXN or default mode.
        objective: With rates "latency" (the largest latency relative to its deadline), "energy"
            or "gpu_time" of a hyperperiod. Without rates "makespan" (or "latency": the same),
            "period" (how often all of them can run), "energy" or "gpu_time".
        one_core: Whether a network may use only one DLA core, as a hybrid engine does.
        effort: Deterministic limit of each search.
        seconds: Wall-clock limit of each search, the last resort.
        progress: Called with (steps done, steps in all).

    Raises:
        UsageError: Rates that repeat too rarely; options that make no sense.
        GateError: "plan.infeasible": a deadline or the devices' time cannot be kept to;
            ``extra["binding"]`` says which.
        EnvironmentLack: CP-SAT cannot be run.
    """
    report = progress or (lambda done, total: None)
    rated = members[0].rate_hz is not None
    if objective == "latency" and not rated:
        objective = "makespan"
    if objective == "period" and any(m.deadline_ms is not None for m in members):
        raise UsageError(
            "a deadline needs a rate, or the objective makespan",
            code="plan.deadline",
            hint="give rate_hz to every network, or leave deadline_ms out",
        )
    periods = [_period(member) for member in members]
    frames = Workload((), (), (), tuple(
        Chain(m.name, (), (), (), period) for m, period in zip(members, periods, strict=True)
    )).frames  # fmt: skip
    if sum(frames) > _COUNTED:
        raise _too_many_frames(members, frames, periods[0])
    limit = max(3, min(GROUPS, _MOST // sum(frames)))
    alone, prepared = list[Alone](), list[Prepared]()
    for member in members:
        try:
            own = prepare(
                member.network, member.judgement, target, precision=member.precision,
                power_mode=power_mode, options=member.options,
                # whatever the GPU works on, a core shares the memory with it
                beside="dla" if member.options.gpu else "",
            )  # fmt: skip
            prepared.append(own)
            alone.append(Alone(own, one_core=one_core))
        except EdgekitError as error:
            error.where = f"{member.name}: {error.where}" if error.where else member.name
            raise
        report(len(alone), len(members) + 2)
    together_us = least_together(alone, frames, max(len(one.request.cores) for one in prepared))
    placed = [
        _placed(member, own, period, limit, plans.plans(count))
        for member, own, period, plans, count in zip(
            members, prepared, periods, alone, frames, strict=True
        )
    ]
    workload = _workload(placed, one_core)
    slowdown, told = slowdown_of(target, workload)
    share = refuse_if_hopeless(workload, alone, effort, seconds)
    if sum(frames) > MAX_FRAMES:
        raise _too_many_frames(members, frames, periods[0], share)
    if objective == "period":
        lower, upper = _steady(workload, slowdown, effort, seconds)
    else:
        lower = _lower(workload, objective, effort, seconds)
        report(len(members) + 1, len(members) + 2)
        upper = under_contention(
            workload, objective, lower, slowdown, effort=effort, seconds=seconds
        )
        if upper.value == float("inf"):
            raise missed(workload, upper, contention=True)
        lower = _no_worse(workload, objective, lower, upper)
    report(len(members) + 2, len(members) + 2)
    floor = min(floor_of(workload, alone, objective, together_us), lower.value)
    return plans_of(placed, workload, objective, lower, upper, floor, told, target)


def _period(member: Member) -> Fraction | None:
    return None if member.rate_hz is None else 1_000_000 / Fraction(str(member.rate_hz))


def _too_many_frames(
    members: Sequence[Member],
    frames: Sequence[int],
    period: Fraction | None,
    share: float | None = None,
) -> UsageError:
    """Returns the error for rates that repeat too rarely; ``share`` is of the busiest device."""
    whole = float((period or 0) * frames[0]) / 1e6
    rates = ", ".join(f"{member.name} {member.rate_hz:g}" for member in members)
    fits = "" if share is None else f"; the devices have the time: at most {share:.0%} are busy"
    return UsageError(
        f"these rates a second ({rates}) repeat only after {whole:.4g} s and {sum(frames):,} "
        f"frames; at most {MAX_FRAMES} frames are scheduled{fits}",
        code="plan.hyperperiod",
        hint="give rates with a short common period, such as 30, 15 and 10",
    )


def _placed(
    member: Member,
    prepared: Prepared,
    period: Fraction | None,
    limit: int,
    plans: tuple[OwnPlan, ...],
) -> Placed:
    built = kept_whole(build_problem(prepared.request, plain=True))
    groups = groups_of(built.problem, limit)
    deadline = None if member.deadline_ms is None else member.deadline_ms * 1e3
    if deadline is None and period is not None:
        deadline = float(period)
    chain = Chain(
        member.name,
        tuple(group.times_us for group in groups.groups),
        groups.hands_us,
        tuple(group.energy_uj for group in groups.groups),
        period,
        deadline,
        groups.too_large,
        tuple(plan.route for plan in plans),
    )
    return Placed(member, prepared, built, groups, plans, chain)


def _workload(placed: Sequence[Placed], one_core: bool) -> Workload:
    # FP32 networks know no cores: the problem of most devices names them
    widest = max((one.built.problem for one in placed), key=lambda p: len(p.devices))
    model = next(one for one in placed if one.built.problem is widest).prepared.request.model
    devices = widest.devices
    return Workload(
        devices,
        tuple(None if cost is None else sum(cost.load_us) for cost in widest.launch),
        tuple(model.watts(name) for name in devices),
        tuple(_wide(one.chain, len(devices), len(one.built.problem.devices)) for one in placed),
        widest.max_loadables,
        one_core,
    )


def _wide(chain: Chain, devices: int, own: int) -> Chain:
    """Returns a chain on its ``own`` devices with others that it cannot use, up to so many."""
    missing = devices - own
    if not missing:
        return chain

    def row(values: Sequence[float]) -> tuple[float, ...]:
        return (*values[:own], *([0.0] * missing), *values[own:])

    return replace(
        chain,
        times_us=tuple((*times, *([None] * missing)) for times in chain.times_us),
        energy_uj=tuple(row(energy) for energy in chain.energy_uj),
        hands_us=tuple(
            (
                *(row(r) for r in border[:own]),
                *([(0.0,) * (devices + 1)] * missing),
                *(row(r) for r in border[own:]),
            )
            for border in chain.hands_us
        ),
        routes=tuple(
            replace(route, loadables=(*route.loadables, *([0] * missing))) for route in chain.routes
        ),
    )


def _lower(workload: Workload, objective: str, effort: float, seconds: float) -> Timetable:
    found = timetable(workload, objective, effort=effort, seconds=seconds)
    if found is None:
        late = timetable(workload, "latency", within=4.0, effort=effort / 4, seconds=seconds)
        raise missed(workload, late, contention=False)
    if not found.places:
        raise nothing_found()
    ran = run_through(workload, found)
    return found if ran is None else replace(ran, value=found.value, bound=found.bound)


def _no_worse(workload: Workload, objective: str, lower: Timetable, upper: Timetable) -> Timetable:
    """Returns the better of two timetables without contention; a refuted bound is given up."""
    ran = run_through(workload, upper)
    value = float("inf") if ran is None else value_of(workload, objective, ran)
    if ran is None or value >= lower.value - 1e-9:
        return lower
    bound = lower.bound if lower.bound <= value else 0.0
    return replace(ran, value=value, bound=bound)


def _steady(
    workload: Workload, slowdown: Slowdown, effort: float, seconds: float
) -> tuple[Timetable, Timetable]:
    """Returns the shortest period without contention, and with all devices slowing each other."""
    found = best_places(workload, effort=effort, seconds=seconds)
    if found is None:
        raise nothing_found()
    places, load, bound = found
    everyone = frozenset(range(len(workload.devices)))
    longer = stretched(workload, worst_slowdown(workload, slowdown, everyone))
    again = best_places(longer, effort=effort / 4, seconds=seconds)
    best: Timetable | None = None
    for candidate in [places] + ([again[0]] if again else []):
        used = workload.used(candidate)
        slow = stretched(workload, worst_slowdown(workload, slowdown, used | {0}))
        table = steady_state(slow, candidate, max(slow.loads_us(candidate)))
        if best is None or table.value < best.value - 1e-9:
            best = table
    assert best is not None
    return replace(steady_state(workload, places, load), bound=bound), best
