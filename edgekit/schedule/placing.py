"""Places networks that share a board: each as a chain of groups or by its own plan, in a timetable
without and with contention for memory. Also proves a bound over all placements, or names the
device, deadline or limit that rules out every placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from edgekit.errors import EdgekitError, GateError, UsageError, within
from edgekit.placement.placing import Prepared, prepare
from edgekit.placement.problem import build_problem, with_unbroken_regions
from edgekit.schedule.binding import BindingLimit, LateNetwork, infeasible
from edgekit.schedule.contention import (
    Slowdown,
    contention_model,
    simulate,
    stretch_times,
    under_contention,
    worst_slowdown,
)
from edgekit.schedule.groups import build_groups
from edgekit.schedule.own_plans import NetworkAlone, OwnPlan, least_busy_time
from edgekit.schedule.plans import NetworkRequest, PlacedNetwork, Plans, assemble_plans
from edgekit.schedule.timetable import (
    EFFORT,
    SECONDS,
    NetworkChain,
    SearchLimit,
    Timetable,
    Workload,
    alone_us,
    find_best_places,
    solve_timetable,
    steady_state,
    timetable_value,
)
from edgekit.solver.problem import PlacementProblem
from edgekit.targets.board import Target
from edgekit_device.errors import listed

MAX_FRAMES = 60
"""Most frames of all networks in a hyperperiod: a larger timetable could not be reviewed."""

GROUPS = 10
_MOST_GROUPS = 200  # groups of all frames
_SCOPE = " (searched: each network's own best plans and its groups of layers)"


def place_several(
    members: Sequence[NetworkRequest],
    target: Target,
    *,
    power_mode: str | None = None,
    objective: str = "latency",
    one_core: bool = True,
    effort: float = EFFORT,
    seconds: float = SECONDS,
    progress: Callable[[int, int], None] | None = None,
) -> Plans:
    """Places and schedules networks that share a board.

    Args:
        members: The networks; either all have a rate, or none.
        target: The board.
        power_mode: NVIDIA's name; None is the board's MAXN or default mode.
        objective: With rates "latency" (the largest latency relative to its deadline), "energy"
            or "gpu_time" of a hyperperiod. Without rates "makespan" (or "latency": the same),
            "period" (the time from one run of all networks to the next), "energy" or "gpu_time".
        one_core: True if a network may use only a single DLA core, as a hybrid engine does.
        effort: Deterministic limit of each search.
        seconds: Wall-clock limit of all searches together, the last resort.
        progress: Called with (steps done, steps in all).

    Raises:
        UsageError: The rates' hyperperiod is too long, or options contradict each other.
        GateError: "plan.infeasible": a deadline cannot be met or the devices' time is too short;
            ``extra["binding"]`` has the :class:`BindingLimit`. Requests that exceed the networks'
            least work are refused before any search.
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
            hint="give rate_hz to every network, or remove deadline_ms",
        )
    periods = [_period(member.rate_hz) for member in members]
    frames = frames_per_hyperperiod({member.name: member.rate_hz for member in members})
    groups = max(3, min(GROUPS, _MOST_GROUPS // sum(frames)))
    forms = list[list[Prepared]]()
    for member in members:
        with within(member.name):
            forms.append(_forms(member, target, power_mode))
    # before any search: arithmetic refuses what is far from possible
    require_least_work(members, forms)
    alone, prepared = list[NetworkAlone](), list[Prepared]()
    for member, own in zip(members, forms, strict=True):
        with within(member.name):
            alone.append(NetworkAlone(own, one_core=one_core))
            prepared.append(alone[-1].form_for(objective))
        report(len(alone), len(members) + 2)
    together_us = least_busy_time(
        alone, frames, max(len(network.request.cores) for network in prepared)
    )
    placed = [
        _as_chain(member, own, period, groups, plans.plans(count))
        for member, own, period, plans, count in zip(
            members, prepared, periods, alone, frames, strict=True
        )
    ]
    workload = _workload(placed, one_core)
    slowdown, listing = contention_model(target, workload)
    limit = SearchLimit.of(effort, seconds)
    require_capacity(workload, alone, limit)
    if objective == "period":
        lower, upper = _shortest_periods(workload, slowdown, limit)
    else:
        lower = _without_contention(workload, objective, limit)
        report(len(members) + 1, len(members) + 2)
        upper = under_contention(workload, objective, lower, slowdown, limit)
        if upper.value == float("inf"):
            raise missed_deadlines(workload, upper, contention=True)
        lower = _better_lower(workload, objective, lower, upper)
    report(len(members) + 2, len(members) + 2)
    placement_bound = min(
        bound_of_any_placement(workload, alone, objective, together_us), lower.value
    )
    return assemble_plans(
        placed, workload, objective, lower, upper, placement_bound, listing, target
    )


def frames_per_hyperperiod(rates: Mapping[str, float | None]) -> tuple[int, ...]:
    """Returns each network's number of frames in a hyperperiod; 1 each without rates.

    Args:
        rates: Frames a second by name of network; all have a rate, or none.

    Raises:
        UsageError: "plan.hyperperiod": the hyperperiod has more than ``MAX_FRAMES`` frames.
    """
    chains = [NetworkChain(name, (), (), (), _period(rate)) for name, rate in rates.items()]
    workload = Workload((), (), (), tuple(chains))
    if sum(workload.frames) > MAX_FRAMES:
        listing = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        whole = float(workload.hyperperiod_us or 0) / 1e6
        raise UsageError(
            f"the rates ({listing} per second) repeat only after {whole:,.4g} s and "
            f"{sum(workload.frames):,} frames (limit {MAX_FRAMES} frames)",
            code="plan.hyperperiod",
            where="model.networks",
            hint="give rates with a short common period, such as 30, 15 and 10",
        )
    return workload.frames


def _period(rate_hz: float | None) -> Fraction | None:
    # the decimal as written: the binary value of 0.1 would make a hyperperiod of years
    return None if rate_hz is None else 1_000_000 / Fraction(str(rate_hz))


def _forms(member: NetworkRequest, target: Target, power_mode: str | None) -> list[Prepared]:
    """Returns a member with its rewrites and, if that may be better, without them."""
    own = [(member.network, member.judgement)]
    if member.as_it_came is not None:
        own.append(member.as_it_came)
    forms, refusal = list[Prepared](), None
    for network, judgement in own:
        try:
            form = prepare(
                network,
                judgement,
                target,
                precision=member.precision,
                power_mode=power_mode,
                options=member.options,
                # a core shares the memory with any work of the GPU
                concurrent="dla" if member.options.gpu else "",
            )
        except EdgekitError as error:
            # a pin names a layer of the other form only, or a layer cannot run on the pinned device
            refusal = refusal or error
            continue
        forms.append(form)
    if not forms:
        assert refusal is not None
        raise refusal
    return forms


def _as_chain(
    member: NetworkRequest,
    prepared: Prepared,
    period: Fraction | None,
    limit: int,
    plans: tuple[OwnPlan, ...],
) -> PlacedNetwork:
    # a group has one time on each device: one format, and no price that depends on other groups
    built = with_unbroken_regions(build_problem(prepared.request, plain=True))
    groups = build_groups(built.problem, limit)
    deadline = None if member.deadline_ms is None else member.deadline_ms * 1e3
    if deadline is None and period is not None:
        deadline = float(period)
    chain = NetworkChain(
        member.name,
        tuple(group.times_us for group in groups.groups),
        groups.hands_us,
        tuple(group.energy_uj for group in groups.groups),
        period,
        deadline,
        groups.too_large,
        tuple(plan.route for plan in plans),
    )
    return PlacedNetwork(member, prepared, built, groups, plans, chain)


def _workload(placed: Sequence[PlacedNetwork], one_core: bool) -> Workload:
    # FP32 problems have no cores: the problem with the most devices names them
    widest = max((network.built.problem for network in placed), key=lambda p: len(p.devices))
    model = next(
        network for network in placed if network.built.problem is widest
    ).prepared.request.model
    devices = widest.devices
    return Workload(
        devices,
        tuple(None if cost is None else sum(cost.load_us) for cost in widest.launch),
        tuple(model.watts(name) for name in devices),
        tuple(
            _on_all_devices(network.chain, len(devices), len(network.built.problem.devices))
            for network in placed
        ),
        widest.max_loadables,
        one_core,
    )


def _on_all_devices(chain: NetworkChain, devices: int, own: int) -> NetworkChain:
    """Returns a chain padded from its ``own`` devices to ``devices`` with unusable devices."""
    missing = devices - own
    if not missing:
        return chain

    def row(values: Sequence[float]) -> tuple[float, ...]:
        # in hand-overs the caller's index comes after the last device
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


def _without_contention(workload: Workload, objective: str, limit: SearchLimit) -> Timetable:
    found = solve_timetable(workload, objective, limit=limit)
    if found is None:
        # only to name the late networks, so deadlines are loose and the search is short
        late = solve_timetable(workload, "latency", within=4.0, limit=limit.part(1 / 4))
        raise missed_deadlines(workload, late, contention=False)
    if not found.places:
        raise no_timetable_found()
    # Starts in whole units, durations rounded up: the simulation closes the gaps.
    ran = simulate(workload, found)
    return found if ran is None else replace(ran, value=found.value, bound=found.bound)


def _better_lower(
    workload: Workload, objective: str, lower: Timetable, upper: Timetable
) -> Timetable:
    """Returns the better of two timetables without contention; drops a refuted bound."""
    ran = simulate(workload, upper)
    value = float("inf") if ran is None else timetable_value(workload, objective, ran)
    if ran is None or value >= lower.value - 1e-9:
        return lower
    bound = lower.bound if lower.bound <= value else 0.0
    return replace(ran, value=value, bound=bound)


def _shortest_periods(
    workload: Workload, slowdown: Slowdown, limit: SearchLimit
) -> tuple[Timetable, Timetable]:
    """Returns the shortest period without contention, and with all devices slowing each other."""
    found = find_best_places(workload, limit=limit)
    if found is None:
        raise no_timetable_found()
    places, load, bound = found
    everyone = frozenset(range(len(workload.devices)))
    # other places can be better if contention counts
    longer = stretch_times(workload, worst_slowdown(workload, slowdown, everyone))
    again = find_best_places(longer, limit=limit.part(1 / 4))
    best: Timetable | None = None
    for candidate in [places] + ([again[0]] if again else []):
        used = workload.used(candidate)
        slow = stretch_times(workload, worst_slowdown(workload, slowdown, used | {0}))
        table = steady_state(slow, candidate, max(slow.loads_us(candidate)))
        if best is None or table.value < best.value - 1e-9:
            best = table
    assert best is not None
    return replace(steady_state(workload, places, load), bound=bound), best


def bound_of_any_placement(
    workload: Workload, alone: Sequence[NetworkAlone], objective: str, together_us: float
) -> float:
    """Returns a proven lower bound of an objective over all placements, for any groups.

    Sharing the board makes no network faster, so each network's own bounds hold; GPU times and
    energies of all networks add up. ``together_us`` is a lower bound of the busiest device's work.
    """

    def total(metric: str) -> float:
        rows = zip(alone, workload.frames, strict=True)
        return sum(own.bounds[metric] * frames for own, frames in rows)

    if objective in ("energy", "gpu_time"):
        return total("energy_uj" if objective == "energy" else "gpu_us")
    if objective == "period":
        return max(together_us, *(own.bounds["period_us"] for own in alone))
    if objective == "makespan":
        return max(together_us, *(own.bounds["latency_us"] for own in alone))
    return max(
        own.bounds["latency_us"] / chain.deadline_us
        for own, chain in zip(alone, workload.chains, strict=True)
        if chain.deadline_us
    )


def require_least_work(
    members: Sequence[NetworkRequest], forms: Sequence[Sequence[Prepared]]
) -> None:
    """Refuses deadlines and rates by arithmetic, without a search.

    A frame takes at least each kernel's time on its fastest device: fusing kernels saves no more
    (``with_fusions``), everything else only adds. That work a second must fit into all devices, and
    work that only the GPU can do must fit into the GPU.

    Args:
        members: The networks.
        forms: Each network's forms, with and without its rewrites.

    Raises:
        GateError: "plan.infeasible".
    """
    busy, on_gpu, devices = 0.0, 0.0, dict[str, None]()
    for member, own in zip(members, forms, strict=True):
        least = [_least_us(form.problem) for form in own]
        frame_us, work_us, gpu_us = (min(column) for column in zip(*least, strict=True))
        deadline_us = None if member.deadline_ms is None else member.deadline_ms * 1e3
        if member.rate_hz is not None:
            deadline_us = deadline_us or 1e6 / member.rate_hz
            busy += work_us * member.rate_hz / 1e6
            on_gpu += gpu_us * member.rate_hz / 1e6
        if deadline_us is not None and frame_us > deadline_us * (1 + 1e-9):
            raise _too_slow(member.name, "at least ", frame_us, deadline_us)
        devices |= dict.fromkeys(name for form in own for name in form.problem.devices)
    least_share = max(on_gpu, busy / len(devices))
    if least_share <= 1 + 1e-9:
        return
    percent = f"{100 * least_share:.0f} % busy at least"
    full: tuple[str, ...]
    if on_gpu >= busy / len(devices):
        full, said = ("GPU",), f"GPU is {percent} with the layers that only the GPU can run"
    else:
        full = tuple(devices)
        said = f"{listed(full)} are {percent} on average, wherever the networks' layers run"
    raise infeasible(
        said,
        "lower the rates, use more DLA cores, a lower precision or a faster power mode",
        BindingLimit("busy", devices=full, utilisation=dict.fromkeys(full, least_share)),
    )


def _least_us(problem: PlacementProblem) -> tuple[float, float, float]:
    """Returns a frame's least latency, the devices' least work, and the least GPU work of
    kernels that only the GPU can run, in microseconds.
    """
    frame_us = work_us = gpu_us = 0.0
    for row in problem.costs:
        costs = [cost.load_us for cost in row if cost is not None]
        frame_us += min(map(sum, costs), default=0.0)
        work_us += min((sum(load[:-1]) for load in costs), default=0.0)
        # after the GPU come the cores, and last the delay
        if all(sum(load[1:-1]) == 0 for load in costs):
            gpu_us += min((load[0] for load in costs), default=0.0)
    return frame_us, work_us, gpu_us


def _too_slow(network: str, least: str, need_us: float, deadline_us: float) -> GateError:
    return infeasible(
        f"{network} needs {least}{need_us / 1e3:.4g} ms even when it has the whole board (deadline "
        f"{deadline_us / 1e3:.4g} ms)",
        "give it a longer deadline, a lower precision or a faster power mode",
        BindingLimit("deadline", network, needs_us=need_us, deadline_us=deadline_us),
    )


def require_capacity(workload: Workload, alone: Sequence[NetworkAlone], limit: SearchLimit) -> None:
    """Refuses deadlines and rates that no placement meets with any timetable.

    Raises:
        GateError: A network is too slow alone (proven by its best plan), or a device has too much
            work.
    """
    for number, (chain, own) in enumerate(zip(workload.chains, alone, strict=True)):
        need = min(own.bounds["latency_us"], alone_us(workload, number))
        if chain.deadline_us is not None and need > chain.deadline_us * (1 + 1e-9):
            raise _too_slow(chain.name, "", need, chain.deadline_us)
    whole = workload.hyperperiod_us
    found = find_best_places(workload, limit=limit)
    # only the proven bound refuses, not the best load that was found
    if found is not None and (whole is None or found[2] <= float(whole)):
        return
    if workload.max_loadables is not None and workload.cores:
        # without the limit: shows whether slots or the devices' time are short
        free = replace(workload, max_loadables=None)
        other = find_best_places(free, limit=limit)
        if other is not None and (whole is None or other[1] <= float(whole)):
            raise infeasible(
                f"{workload.max_loadables} loadables per core are too few for these networks",
                f"raise placement.max_loadables, or add another DLA core{_SCOPE}",
                BindingLimit("slots", limit=workload.max_loadables),
            )
    if found is None or whole is None:
        raise infeasible(
            "no placement meets the limits that all networks share",
            "loosen pins, pools or placement.gpu",
            BindingLimit("placement"),
        )
    loads = workload.loads_us(found[0])
    shares = {name: us / float(whole) for name, us in zip(workload.devices, loads, strict=True)}
    full = [name for name, share in shares.items() if share > 1]
    listing = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
    most = f"{100 * max(shares.values()):.0f} %"
    least = f"{100 * found[2] / float(whole):.0f} %"
    verb = "is" if len(full) == 1 else "are"
    raise infeasible(
        f"{' and '.join(full)} {verb} {most} busy even with the best placement ({listing}); a "
        f"device needs at least {least}",
        f"lower the rates, use more DLA cores, a lower precision or a faster power mode{_SCOPE}",
        BindingLimit("busy", devices=tuple(full), utilisation=shares),
    )


def missed_deadlines(workload: Workload, late: Timetable | None, *, contention: bool) -> GateError:
    """Returns the error for deadlines that are met alone but not together."""
    hint = (
        f"give longer deadlines, lower the rates, use more DLA cores or a faster power mode{_SCOPE}"
    )
    if late is None or not late.places:
        return infeasible("not all deadlines can be met", hint, BindingLimit("deadlines"))
    listing = []
    for number, chain in enumerate(workload.chains):
        latency = late.latency_us(workload, number)
        if chain.deadline_us is not None and latency > chain.deadline_us * (1 + 1e-9):
            listing.append((chain.name, latency, chain.deadline_us))
    text = "; ".join(
        f"{name} takes {us / 1e3:.4g} ms (deadline {deadline / 1e3:.4g} ms)"
        for name, us, deadline in listing
    )
    if contention:
        start = "the deadlines are met only without memory contention; with it "
    elif late.bound > 1:
        start = "not all deadlines can be met; at best "
    else:
        start = "no timetable meets all deadlines (proved); in the best one "
    return infeasible(
        f"{start}{text or 'frames pile up'}",
        hint,
        BindingLimit(
            "contention" if contention else "deadlines",
            networks=tuple(LateNetwork(*row) for row in listing),
        ),
    )


def no_timetable_found() -> GateError:
    """Returns the error for a search that ended without a timetable or a proof."""
    return GateError(
        "no timetable was found within the time limit; there may be one",
        code="plan.limit",
        hint="use fewer networks, longer deadlines or rates with a shorter common period",
    )
