"""The request for a tuning, the networks that a model can be built as, the plans that were
tried with their measurements, what a measurement says for an objective, and what all of them
together say of plans that were not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgekit.benchmark.statistics import median as middle
from edgekit.errors import BoardError, EnvironmentLack
from edgekit.placement.plan import Plan
from edgekit.placement.profiles.estimation import estimate, table_evidence
from edgekit.placement.profiles.measured import match_rows
from edgekit.placement.profiles.profile import Profile, frame_row, layer_row, merge_tables
from edgekit.placement.profiles.reader import bench_rows
from edgekit.reports.text import energy, microseconds, significant
from edgekit.tuning.candidates import Knowledge, PlacementSpace, Scenario, plan_terms

if TYPE_CHECKING:
    from edgekit.placement.placing import PlacementQuery


REWRITTEN, ORIGINAL = "rewritten", "as it came"
ORIGINAL_SECTION: Mapping[str, Any] = {
    "enable": "none", "disable": [], "allow_approx": [], "always": False,
}  # fmt: skip
"""``rewrite`` of a configuration whose network stays as it came."""
LEAST_SPREAD = 0.005
UNITS = {"latency": "us", "throughput": "frames/s", "period": "us", "energy": "uJ",
         "gpu_time": "us"}  # fmt: skip
_MOST_SAMPLES = 4000
_DIGITS = 6
_JOURNAL_KEYS = (
    "schema", "backend", "clock", "segments_clock", "iterations", "duration_s", "warmup_ms",
    "latency_ms", "throughput_qps", "pipelined", "segments", "nodes", "energy", "verdict",
    "settings", "runtime",
)  # fmt: skip
TOGETHER = (1.0, 0.15)
"""Of what working at once costs, before it was measured."""
STEADY = 0.05
"""Relative deviation of it from plan to plan."""
MOVING = (1.0, 0.5, 0.0)
"""Parts of the transfers that may keep the GPU busy."""
FIT = 0.02
"""Relative error of a cost that a way explains."""
LEAST_WEIGHT = 0.02
_WATTS_ERROR = 0.7


class Measurer(Protocol):
    """Builds plans and measures them.

    Attributes:
        clock: "cpu-measured" or "board-measured".
        origin: "board", "backend" and whatever else distinguishes its measurements from others.
        again_s: Seconds that measuring a plan takes that is built already; 0: not known yet.
    """

    @property
    def clock(self) -> str: ...

    @property
    def origin(self) -> Mapping[str, Any]: ...

    @property
    def again_s(self) -> float: ...

    def measure(self, plan: Plan) -> Mapping[str, Any]:
        """Returns an ``edgekit.device.bench/1`` of a plan; an EdgekitError drops the plan."""


@dataclass(frozen=True)
class TuningRequest:
    """How far to go.

    Attributes:
        objective: What is made small; of :data:`edgekit.placement.plan.OBJECTIVES`.
        budget_s: Seconds for everything; None: no limit.
        rounds: Plans to measure at most.
        turns: Turns of the first and the best plan at the end; 5 or more can prove anything.
        tolerance: Least relative improvement that leads to a measurement.
        seed: Of samples.
    """

    objective: str = "latency"
    budget_s: float | None = None
    rounds: int = 12
    turns: int = 5
    tolerance: float = 0.01
    seed: int = 0


class VariantSource(Protocol):
    """The other network and the measurements of its plans; used only when it is tried.

    Attributes:
        name: :data:`REWRITTEN` or :data:`ORIGINAL`.
        start: Its plan to begin with; an EdgekitError where it has none.
        query: What is placed.
        model: Its digest.
        again_s: As a measurer's.
    """

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> Plan: ...

    @property
    def query(self) -> PlacementQuery: ...

    @property
    def model(self) -> str: ...

    @property
    def again_s(self) -> float: ...

    def measure(self, plan: Plan) -> Mapping[str, Any]:
        """As ``Measurer.measure``."""


@dataclass
class NetworkVariant:
    """One of the networks.

    Attributes:
        name: :data:`REWRITTEN` or :data:`ORIGINAL`; empty where there is one network only.
        query: What is placed.
        measurer: Measures its plans.
        model: Digest of what is placed.
    """

    name: str
    query: PlacementQuery
    measurer: Measurer | VariantSource
    model: str = ""

    @cached_property
    def space(self) -> PlacementSpace:
        """The placements."""
        return PlacementSpace(self.query.prepared())

    @property
    def able(self) -> dict[str, bool]:
        """By layer, whether a DLA can run it."""
        return {name: verdict.placeable for name, verdict in self.query.judgement.verdicts.items()}


@dataclass
class Trial:
    """A plan that was measured, or dropped.

    Attributes:
        number: In the order of the tries, from 1.
        plan: The plan.
        key: What distinguishes it from others.
        origin: "start", "other" (the other network's best, as predicted), "gpu" (the GPU alone),
            "dla" (the DLA as far as it goes), "search" or "sweep" (neighbours of the best).
        why: A sentence.
        expected: Cost and deviation before it was measured, None for the first.
        runs: Measurements.
        dropped: Why it is out, empty where it is not.
        breaks: The user's bounds that it breaks, as sentences.
        measured_at: Seconds of Unix time of the last run.
        form: The network's name (``Form.name``).
    """

    number: int
    plan: Plan
    key: str
    origin: str
    why: str
    expected: tuple[float, float] | None = None
    runs: list[Mapping[str, Any]] = field(default_factory=list)
    dropped: str = ""
    breaks: list[str] = field(default_factory=list)
    measured_at: float = 0.0
    form: str = ""

    @property
    def name(self) -> str:
        """How it is called in tables and files."""
        return f"plan {self.number}"

    @property
    def counts(self) -> bool:
        """Whether it may win."""
        return bool(self.runs) and not self.dropped and not self.breaks

    def cost(self, objective: str) -> float:
        """Returns the median of its runs' costs."""
        return median([cost_of(run, objective, self.plan) for run in self.runs])

    def segments(self) -> dict[tuple[int, int], tuple[str, tuple[str, ...], float, float]]:
        """Returns by lane and index: device, layers, and microseconds of all runs and a spread."""
        times: dict[tuple[int, int], list[float]] = {}
        facts: dict[tuple[int, int], tuple[str, tuple[str, ...]]] = {}
        for run in self.runs:
            for one in run.get("segments") or ():
                key = int(one.get("lane") or 0), int(one["index"])
                times.setdefault(key, []).append(1e3 * float(one["latency_ms"]["median"]))
                facts[key] = str(one["device"]), tuple(one["layers"])
        return {
            key: (*facts[key], median(each), _deviation(each)) for key, each in times.items()
        }  # fmt: skip


def _deviation(values: Sequence[float]) -> float:
    """Returns the deviation of a median of runs."""
    middle = median(values)
    if len(values) < 2:
        return LEAST_SPREAD * middle
    apart = 1.4826 * median([abs(value - middle) for value in values])
    return max(LEAST_SPREAD * middle, apart / math.sqrt(len(values)))


def table_of(
    trials: Sequence[Trial],
    space: PlacementSpace,
    able: Mapping[str, bool],
    origin: Mapping[str, Any],
    tables: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns everything that was measured as one ``edgekit.profile/1``.

    Args:
        trials: Those with runs count.
        space: The network's placements.
        able: By layer, whether a DLA can run it.
        origin: Clock, board, power mode, precision, model and backend.
        tables: Earlier tables, which are merged with it.
    """
    found = [dict(table) for table in tables]
    for trial in trials:
        if not trial.runs:
            continue
        more = {"samples": sum(int(run.get("iterations") or 1) for run in trial.runs),
                "measured_at": trial.measured_at, "source": trial.name}  # fmt: skip
        # a mix's frames take turns: their mean is the plans' by shares, their median is no plan's
        times = [_mean_us(run) for run in trial.runs]
        parts = []
        for piece in plan_terms(trial.plan, space.index):
            names: dict[str, list[str]] = {}
            for name, index in piece.layers:
                names.setdefault(name, []).append(space.network.layers[index].name)
            parts.append({"share": piece.share, "layers": names, "extra": dict(piece.extra)})
        frames = [frame_row(parts, median(times), sd_us=_deviation(times), **more)]
        rows = _measured_rows(trial, space, able, more)
        found.append({**origin, "rows": rows, "frames": frames})
    if not found:
        return {"schema": "edgekit.profile/1", **origin, "rows": [], "frames": [],
                "contradictions": [], "notes": []}  # fmt: skip
    return merge_tables(found)


def _measured_rows(
    trial: Trial, space: PlacementSpace, able: Mapping[str, bool], more: Mapping[str, Any]
) -> list[dict[str, Any]]:
    placement = [[[x.name, x.device] for x in share.layers] for share in trial.plan.plans]
    segments, found = trial.segments(), []
    merged = [
        {"lane": lane, "index": index, "device": device, "layers": list(layers),
         "latency_ms": {"median": us / 1e3}}
        for (lane, index), (device, layers, us, _) in segments.items()
    ]  # fmt: skip
    last = trial.runs[-1]
    document = {"clock": last.get("clock"), "nodes": last.get("nodes"), "segments": merged,
                "placement": placement}  # fmt: skip
    rows, _ = bench_rows(document)
    by_layers = {(device != "GPU", layers): sd for device, layers, _, sd in segments.values()}
    formats = {frozenset(one.layers): dict(one.formats) for one in trial.plan.loadables}
    groups = match_rows(Profile("bench", "", rows), space.network, able).groups
    for group in groups:
        names = [space.network.layers[i].name for i in group.layers]
        spread = by_layers.get((group.device != "GPU", tuple(names)), 0.03 * group.row.us)
        found.append(layer_row(
            group.device, names, group.row.us, sd_us=spread,
            formats=formats.get(frozenset(names), {}), **more,
        ))  # fmt: skip
    return found


def _mean_us(run: Mapping[str, Any]) -> float:
    samples = run.get("samples_ms") or ()
    lanes = {int(one.get("lane") or 0) for one in run.get("segments") or ()}
    if len(lanes) < 2 or not samples:
        return cost_of(run, "latency")
    return 1e3 * math.fsum(samples) / len(samples)


def median(values: Sequence[float]) -> float:
    """Returns the middle value; ValueError for none."""
    return middle(values)


def in_objective_unit(cost: float, objective: str) -> float:
    """Returns a cost in the objective's unit: frames a second for throughput."""
    return 1e6 / cost if objective == "throughput" and cost else cost


def rounded_value(value: float) -> float:
    """Returns a number of a document: six digits of it."""
    return float(f"{value:.{_DIGITS}g}")


def readable_value(value: float, unit: str = "us") -> str:
    """Returns a value of a document's unit as people read it: 41.5 ms instead of 41460 us."""
    if unit == "us":
        return microseconds(value)
    return energy(value) if unit == "uJ" else f"{significant(value)} {unit}"


def expected_cost_text(mean: float, low: float, objective: str) -> str:
    """Returns what a plan is expected to cost, and at best, in the objective's unit."""
    unit = UNITS[objective]
    best = f", at best {readable_value(in_objective_unit(low, objective), unit)}" if low > 0 else ""
    return f"expected {readable_value(in_objective_unit(mean, objective), unit)}{best}"


def budget_spent_text(spent_s: float, budget_s: float, plan_s: float, turns_s: float) -> str:
    """Returns why a budget ends a tuning: another plan and the turns take so long."""
    if spent_s >= budget_s:
        return f"the budget of {budget_s:.0f} s is spent"
    turns = f" and the turns at the end (about {turns_s:.0f} s)" if turns_s else ""
    # what was spent then is not stated: the turns follow, and the whole time stands next to it
    return (
        f"the {budget_s - spent_s:.0f} s left of {budget_s:.0f} s are no room for another plan "
        f"(about {plan_s:.0f} s){turns}"
    )


def cost_of(document: Mapping[str, Any], objective: str, plan: Plan | None = None) -> float:
    """Returns what a measured frame costs: microseconds, for energy microjoules. Less is better.

    It is above 0, but for the GPU's time of a plan that has nothing on the GPU.

    Args:
        document: What a board or a measurer said (``edgekit.device.bench/1``, with "energy" where
            power was measured).
        objective: One of the placement's.
        plan: What was measured; distinguishes a hybrid engine's devices.

    Raises:
        EnvironmentLack: "tune.no-power": the objective is energy, and no power was measured.
        BoardError: "bench.malformed": the document has no such time.
    """
    cost: float | None = None
    if objective == "energy":
        cost = _energy_uj(document)
        if cost is None:
            raise no_power_error()
    elif objective in ("throughput", "period"):
        pipelined = document.get("pipelined") or {}
        qps = _number(pipelined.get("throughput_qps")) or _number(document.get("throughput_qps"))
        cost = 1e6 / qps if qps else None
    elif objective == "gpu_time":
        busy = busy_us(document, plan)
        cost = None if busy is None else busy.get("GPU", 0.0)
    else:
        samples = document.get("samples_ms")
        latency = document.get("latency_ms") or {}
        ms = median(samples) if samples else _number(latency.get("median"))
        cost = None if ms is None else ms * 1e3
    # a plan that leaves the GPU alone costs it nothing
    least = 0.0 if objective == "gpu_time" else math.ulp(0.0)
    if cost is None or not math.isfinite(cost) or cost < least:
        raise BoardError(
            f"the measurement has no {objective}", code="bench.malformed",
            hint="bench the configuration alone to see what is wrong",
        )  # fmt: skip
    return cost


def _energy_uj(document: Mapping[str, Any]) -> float | None:
    energy = document.get("energy") or {}
    total = energy.get("total") if isinstance(energy, Mapping) else None
    found = total.get("uj_per_inference") if isinstance(total, Mapping) else None
    return _number(found)


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


def broken_bounds(
    document: Mapping[str, Any], bounds: Mapping[str, float], plan: Plan
) -> list[str]:
    """Returns which of the user's bounds the measurement breaks, as sentences."""
    names = {"latency_us": "latency", "energy_uj": "energy", "gpu_us": "gpu_time",
             "period_us": "period"}  # fmt: skip
    found = []
    for bound, limit in bounds.items():
        try:
            cost = cost_of(document, names[bound], plan)
        except (EnvironmentLack, BoardError):
            continue  # what was not measured cannot be held against it
        if cost > limit:
            unit = UNITS[names[bound]]
            found.append(
                f"{bound} is {readable_value(cost, unit)}, above {readable_value(limit, unit)}"
            )
    return found


def compact_measurement(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the journal holds of a measurement."""
    retained = {key: document[key] for key in _JOURNAL_KEYS if document.get(key) is not None}
    samples = document.get("samples_ms") or []
    step = max(1, math.ceil(len(samples) / _MOST_SAMPLES))
    return {**retained, "samples_ms": list(samples[::step])}


def better_by(
    ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0, rounds: int = 4000
) -> dict[str, Any]:
    """Returns by what part of ``theirs`` costs of ours are lower, measured in turns.

    Each turn is one pair, so that what drifts (temperature, other load) hits both. The part is that
    of the medians over the turns, and the interval a bootstrap's over turns (Efron, 1979).

    Returns:
        "ours" and "theirs" (the medians, None without turns), "fraction" (1 - ours / theirs, so
        that positive is better), "low" and "high" (95 %), "turns", and "better": the interval is
        above 0 and no fewer than nine of ten turns say so.
    """
    a, b = np.array(ours, float), np.array(theirs, float)
    if not len(a):
        return {"ours": None, "theirs": None, "fraction": 0.0, "low": None, "high": None,
                "turns": 0, "better": False}  # fmt: skip
    which = np.random.default_rng(seed).integers(0, len(a), (rounds, len(a)))
    drawn = _relative_gain(np.median(a[which], axis=1), np.median(b[which], axis=1))
    low, high = (float(x) for x in np.quantile(drawn, (0.025, 0.975)))
    wins = int((a < b).sum())
    middle = np.median(a), np.median(b)
    # one turn cannot distinguish a difference from an accident; five in a row are one in 32
    sure = len(a) >= 5 and low > 0 and wins >= 0.9 * len(a)
    return {
        "ours": float(middle[0]),
        "theirs": float(middle[1]),
        "fraction": float(_relative_gain(*map(np.atleast_1d, middle))[0]),
        "low": low,
        "high": high,
        "turns": len(a),
        "better": bool(sure),
    }


def _relative_gain(ours: Any, theirs: Any) -> Any:
    """Returns by what part ours are lower; nothing is better than a cost of 0."""
    some = theirs > 0
    return np.where(some, 1 - ours / np.where(some, theirs, 1.0), -(ours > 0).astype(float))


def busy_us(document: Mapping[str, Any], plan: Plan | None = None) -> dict[str, float] | None:
    """Returns each device's own microseconds a frame, a mix's frames by their shares.

    A hybrid engine is one segment, named after its DLA: what of it is no loadable's keeps the GPU
    busy, reformats included.

    Args:
        document: An ``edgekit.device.bench/1`` or ``edgekit.bench/1``.
        plan: What was built; without it each segment is of the device that it names.

    Returns:
        None where there are no segments, or nothing distinguishes a hybrid engine's devices.
    """
    found: dict[str, float] = {}
    shares = [share.share for share in plan.plans] if plan is not None else []
    segments = document.get("segments") or ()
    for segment in segments:
        lane = int(segment.get("lane") or 0)
        share = shares[lane] if lane < len(shares) else 1.0
        parts = list(_segment_devices(document, segment, plan))
        if not parts:
            return None
        for device, us in parts:
            found[device] = found.get(device, 0.0) + share * us
    return found if segments else None


def _segment_devices(
    document: Mapping[str, Any], segment: Mapping[str, Any], plan: Plan | None
) -> Iterator[tuple[str, float]]:
    """Yields a segment's devices and their microseconds; nothing where they are not known."""
    device, us = str(segment["device"]), 1e3 * float(segment["latency_ms"]["median"])
    if device == "GPU" or plan is None or not us:
        yield device, us
        return
    places = [[[layer.name, layer.device] for layer in share.layers] for share in plan.plans]
    rows, _ = bench_rows({
        "clock": document.get("clock"), "nodes": document.get("nodes"), "placement": places,
        "segments": [segment],
    })  # fmt: skip
    if rows:
        on_dla = min(us, sum(row.us for row in rows if row.device != "GPU"))
        # one row is the segment itself: nothing was profiled, and all of it is the DLA's
        yield device, on_dla
        if us > on_dla:
            yield "GPU", us - on_dla


def knowledge_of(
    trials: Sequence[Trial], space: PlacementSpace, table: Mapping[str, Any], objective: str,
    like: Mapping[str, float] | None = None,
) -> Knowledge:  # fmt: skip
    """Returns what the table and the trials teach about plans that were not measured.

    Args:
        trials: Plans of one network.
        space: Its placements.
        table: Its measurements.
        objective: What is made small.
        like: By class, what a device's predictions are wrong by for another network.
    """
    absolute = table.get("clock") == "board-measured"
    evidence = table_evidence(table, space.index, space.model.launch_us())
    learnt = estimate(space.network, space.prior_us, evidence, absolute=absolute, like=like)
    watts = _watts(space)
    energy, deviations = _energy_factors(trials, watts)
    known = Knowledge(space, learnt, objective, watts=watts, energy=energy, energy_sd=deviations)
    return known if objective == "latency" else replace(known, ways=_scenarios(trials, known))


def _watts(space: PlacementSpace) -> dict[str, float]:
    """Returns by class of device the module's watts while it works."""
    names = {"GPU": "GPU", "DLA": next((d for d in space.devices if d != "GPU"), "")}
    return {name: space.model.watts(device) for name, device in names.items() if device}


def _scenarios(trials: Sequence[Trial], known: Knowledge) -> tuple[Scenario, ...]:
    """Returns by how much of the transfers may keep the GPU busy what that explains.

    The weights are likelihoods: where all measured plans are bound by a DLA, none is ruled out.
    """
    found = []
    for moving in MOVING:
        if known.objective in ("throughput", "period"):
            ratios = _period_factors(trials, known, moving)
            center = _mean_or([ratio for ratio, _ in ratios], 0.0)
            way = Scenario(moving, _factor([math.exp(ratio) for ratio, _ in ratios]))
        else:
            way, center = Scenario(moving), 0.0
            ratios = _costs(trials, replace(known, ways=(way,)))
        misfit = sum(((ratio - center) / math.hypot(FIT, sd)) ** 2 for ratio, sd in ratios)
        found.append((misfit, way))
    least = min(misfit for misfit, _ in found)
    weights = [math.exp((least - misfit) / 2) for misfit, _ in found]
    weights = [weight if weight >= LEAST_WEIGHT * sum(weights) else 0.0 for weight in weights]
    ways = [
        replace(way, weight=weight / sum(weights))
        for weight, (_, way) in zip(weights, found, strict=True) if weight
    ]  # fmt: skip
    return tuple(sorted(ways, key=lambda way: -way.weight))


def _period_factors(
    trials: Sequence[Trial], known: Knowledge, moving: float
) -> list[tuple[float, float]]:
    """Returns logarithms of period over the busiest device's own time, and deviations."""
    found = []
    for trial in trials:
        if any(run.get("pipelined") for run in trial.runs):
            mean, sd, devices = known.busiest(trial.plan, moving)
            if devices > 1:
                found.append((math.log(trial.cost("period") / mean), sd / mean))
    return found


def _costs(trials: Sequence[Trial], known: Knowledge) -> list[tuple[float, float]]:
    """Returns logarithms of measured over expected cost, and deviations."""
    found = []
    for trial in trials:
        mean, sd = known.cost(trial.plan)
        cost = trial.cost(known.objective) if trial.runs else 0.0
        if mean > 0 and cost > 0:
            found.append((math.log(cost / mean), sd / mean))
    return found


def _factor(ratios: Sequence[float]) -> tuple[float, float]:
    mean = _mean_or(ratios, TOGETHER[0])
    if len(ratios) < 2:
        return mean, TOGETHER[1]
    return mean, max(STEADY, math.sqrt(_mean_or([(ratio - mean) ** 2 for ratio in ratios], 0.0)))


def _mean_or(values: Sequence[float], none: float) -> float:
    return math.fsum(values) / len(values) if values else none


def _median_busy_us(trial: Trial) -> dict[str, float]:
    """Returns each device's own microseconds a frame, the median of the runs that state them."""
    runs = [busy for run in trial.runs if (busy := busy_us(run, trial.plan)) is not None]
    devices = {device for busy in runs for device in busy}
    return {device: median([busy.get(device, 0.0) for busy in runs]) for device in devices}


def _energy_factors(
    trials: Sequence[Trial], watts: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns by class how measured energy is to predicted watts, kept near 1, and deviations.

    Bayesian linear regression: energy is the sum of the devices' times by their watts.
    """
    names = list(watts)
    rows, measured = [], []
    for trial in trials:
        if trial.runs and (trial.runs[-1].get("energy") or {}).get("total"):
            busy = _median_busy_us(trial)
            if not busy:
                continue
            rows.append([
                watts[n] * sum(us for d, us in busy.items() if (d == "GPU") == (n == "GPU"))
                for n in names
            ])  # fmt: skip
            measured.append(trial.cost("energy"))
    if not rows:
        return {}, {}
    a, b = np.array(rows), np.array(measured)
    noise = (0.03 * b.mean()) ** 2
    left = a.T @ a / noise + np.eye(len(names)) / _WATTS_ERROR**2
    right = a.T @ b / noise + np.ones(len(names)) / _WATTS_ERROR**2
    cov = np.linalg.inv(left)
    factors, deviations = np.maximum(cov @ right, 0.05), np.sqrt(np.diag(cov))
    both = zip(names, factors, strict=True), zip(names, deviations, strict=True)
    first, second = ({name: float(value) for name, value in one} for one in both)
    return first, second


def no_power_error(why: str = "the board shows no power rails") -> EnvironmentLack:
    """Returns the error of a tuning for energy where no power is measured."""
    return EnvironmentLack(
        f"energy was not measured: {why}", code="tune.no-power",
        hint="tune for latency or throughput, or let the board's rails be read: see "
        "edgekit doctor --setup",
    )  # fmt: skip
