"""The request for a tuning, the networks that a model can be built as, the tried plans with their
measurements, the cost of a measurement under an objective, and predictions for unmeasured plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pydantic import Field

from edgekit.benchmark.document import Bench
from edgekit.config.schema import RewriteSection
from edgekit.documents import Count, Document, Figure, Number, omitted
from edgekit.errors import BoardError, EnvironmentLack, UsageError
from edgekit.placement.plan import Plan
from edgekit.placement.profiles.estimation import Estimate, estimate, table_evidence
from edgekit.placement.profiles.measured import match_rows
from edgekit.placement.profiles.profile import (
    FramePart,
    FrameRow,
    LayerRow,
    Profile,
    ProfileRow,
    ProfileTable,
    merge_tables,
)
from edgekit.placement.profiles.reader import bench_rows
from edgekit.reports.text import energy, microseconds, significant
from edgekit.tuning.candidates import (
    FAR,
    LIKELY,
    PlacementSpace,
    SampledTimes,
    device_class,
    plan_terms,
)
from edgekit.tuning.journal import PlanMeasured
from edgekit_device.benchmark.measurement import SegmentTimes
from edgekit_device.benchmark.statistics import median

if TYPE_CHECKING:
    from edgekit.placement.placing import PlacementQuery


REWRITTEN, ORIGINAL = "rewritten", "as it came"
ORIGINAL_SECTION = RewriteSection(enable="none", disable=[], allow_approx=[], always=False)
"""``rewrite`` section of a configuration that keeps the original network."""
LEAST_SPREAD = 0.005
"""Least relative deviation of a measured time, also that of a single run."""
LEAST_TURNS = 5
"""Turns that a proof needs: five wins in a row have a probability of 1 in 32."""
UNITS = {
    "latency": "us",
    "throughput": "frames/s",
    "period": "us",
    "energy": "uJ",
    "gpu_time": "us",
}
_MOST_SAMPLES = 4000
"""Most samples of a run in the journal."""
_DIGITS = 6
_JOURNAL_KEYS = (
    "backend",
    "clock",
    "segments_clock",
    "iterations",
    "duration_s",
    "warmup_ms",
    "latency_ms",
    "throughput_qps",
    "pipelined",
    "segments",
    "nodes",
    "energy",
    "verdict",
    "settings",
    "runtime",
)
TOGETHER = (1.0, 0.15)
"""Prior of the factor by which devices working at once slow: mean and deviation."""
STEADY = 0.05
"""Relative deviation of that factor from plan to plan."""
MOVING = (1.0, 0.5, 0.0)
"""Possible fractions of transfer time that keep the GPU busy."""
FIT = 0.02
"""Relative error of a cost that such a fraction explains."""
DOUBT = 3.0
"""Factor on the prior's deviations in most of the worlds: boards have more outlying layers than
a normal error. With 1.0 in all worlds tuning ended too early on 12 of 100 simulated boards,
2.4 to 19 % above the best; with 3.0 in these on none of 50.
"""
_WATTS_ERROR = 0.7
"""Prior deviation of measured over predicted energy."""
LEAST_FACTOR = 0.05
"""Least sampled factor: a sample of a normal error may be below 0, a time or an energy cannot."""


@dataclass(frozen=True)
class TuningRequest:
    """The objective and the limits of a tuning.

    Attributes:
        objective: The minimised objective, from :data:`edgekit.placement.plan.OBJECTIVES`.
        budget_s: Seconds for the whole tuning; None: no limit.
        rounds: Largest number of plans to measure.
        turns: Turns of the first and the best plan at the end; a proof needs at least 5.
        tolerance: Least relative improvement that leads to a measurement.
        seed: Seed of the samples.
    """

    objective: str = "latency"
    budget_s: float | None = None
    rounds: int = 12
    turns: int = 5
    tolerance: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks that the numbers are in range.

        Raises:
            UsageError: "tune.request": a number is out of range.
        """
        for name, least, most in (
            ("budget_s", 0, math.inf),
            ("rounds", 1, math.inf),
            ("turns", 0, math.inf),
            ("tolerance", 0, 1),
        ):
            value = getattr(self, name)
            if value is not None and not (
                isinstance(value, int | float) and least <= value <= most
            ):
                bounds = f"{least} or more" if most == math.inf else f"from {least} to {most}"
                raise UsageError(
                    f"{name} of a tuning is {value!r}",
                    code="tune.request",
                    where=f"TuningRequest({name})",
                    hint=f"give a number, {bounds}",
                )


class TunedNetwork(Protocol):
    """A network with the means to build and measure its plans.

    Attributes:
        name: :data:`REWRITTEN` or :data:`ORIGINAL`; empty if there is only a single network.
        model: The network's digest.
        query: The placement query.
        start: The starting plan; raises an EdgekitError if there is none.
        clock: "cpu-measured" or "board-measured".
        backend: The backend that builds.
        again_s: Seconds to measure a plan that is already built; 0 if not known yet.
    """

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def query(self) -> PlacementQuery: ...

    @property
    def start(self) -> Plan: ...

    @property
    def clock(self) -> str: ...

    @property
    def backend(self) -> str: ...

    @property
    def again_s(self) -> float: ...

    def measure(self, plan: Plan) -> Bench:
        """Returns the measurement of a plan; an EdgekitError drops the plan."""


@dataclass
class Trial:
    """A plan that was measured, or dropped.

    Attributes:
        number: Number in the order of the trials, from 1.
        plan: The plan.
        key: The plan's signature.
        origin: "start", "other" (the other network's best, as predicted), "gpu" (the GPU alone),
            "dla" (the DLA with all layers that it can run) or "search".
        why: The reason for the trial, a sentence.
        expected: Expected cost and deviation before the measurement, None for the first.
        network: The network's name.
        runs: The measurements in their order.
        dropped: The reason why it was dropped, empty if it was not.
        breaks: The user's bounds that it violates, as sentences.
    """

    number: int
    plan: Plan
    key: str
    origin: str
    why: str
    expected: tuple[float, float] | None = None
    network: str = ""
    runs: list[PlanMeasured] = field(default_factory=list)
    dropped: str = ""
    breaks: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The trial's name in tables and files."""
        return f"plan {self.number}"

    @property
    def counts(self) -> bool:
        """True if it can be the winner."""
        return bool(self.runs) and not self.dropped and not self.breaks

    def cost(self, objective: str) -> float:
        """Returns the median of its runs' costs."""
        return median([frame_cost(run.run, objective, self.plan) for run in self.runs])

    def search_cost(self, objective: str) -> float | None:
        """Returns the median of its runs' costs in the search; None if there is no run."""
        runs = [run for run in self.runs if run.turn is None]
        return median([frame_cost(run.run, objective, self.plan) for run in runs]) if runs else None

    @property
    def samples(self) -> int:
        """Number of frames of all its runs."""
        return sum(run.run.iterations or 1 for run in self.runs)

    def turns(self, objective: str) -> dict[int, float]:
        """Returns the measured cost of each turn."""
        return {
            run.turn: frame_cost(run.run, objective, self.plan)
            for run in self.runs
            if run.turn is not None
        }

    def segments(self) -> dict[tuple[int, int], tuple[str, tuple[str, ...], float, float]]:
        """Returns device, layers, microseconds over all runs and spread, by lane and index."""
        times: dict[tuple[int, int], list[float]] = {}
        facts: dict[tuple[int, int], tuple[str, tuple[str, ...]]] = {}
        for measured in self.runs:
            for segment in measured.run.segments:
                if (us := _median_us(segment)) is not None:
                    key = segment.lane, segment.index
                    times.setdefault(key, []).append(us)
                    facts[key] = segment.device, tuple(segment.layers)
        return {key: (*facts[key], median(each), _deviation(each)) for key, each in times.items()}


def _median_us(segment: SegmentTimes) -> float | None:
    ms = (segment.latency_ms or {}).get("median")
    return None if ms is None else 1e3 * ms


def _deviation(values: Sequence[float]) -> float:
    """Returns the deviation of the median of several runs."""
    middle = median(values)
    if len(values) < 2:
        return LEAST_SPREAD * middle
    # for a normal error, 1.4826 times the median absolute deviation is the standard deviation, and
    # a single disturbed run hardly changes it
    spread = 1.4826 * median([abs(value - middle) for value in values])
    return max(LEAST_SPREAD * middle, spread / math.sqrt(len(values)))


def profile_table(
    trials: Sequence[Trial],
    space: PlacementSpace,
    able: Mapping[str, bool],
    origin: Mapping[str, str],
    tables: Sequence[ProfileTable] = (),
) -> ProfileTable:
    """Returns all measurements as a table.

    Args:
        trials: The trials; those without runs are skipped.
        space: The network's placements.
        able: By layer, True if a DLA can run it.
        origin: Clock, board, power mode, precision, model and backend.
        tables: Earlier tables to merge.
    """
    found = list(tables)
    for trial in trials:
        if not trial.runs:
            continue
        # a mix's frames alternate: their mean weights the plans by shares, their median fits no
        # plan
        times = [_mean_us(run.run) for run in trial.runs]
        parts = []
        for piece in plan_terms(trial.plan, space.index):
            names: dict[str, list[str]] = {}
            for name, index in piece.layers:
                names.setdefault(name, []).append(space.network.layers[index].name)
            parts.append(FramePart(share=piece.share, layers=names, extra=dict(piece.extra)))
        frame = FrameRow(
            parts=parts,
            device="",
            layers=[],
            us=median(times),
            sd_us=_deviation(times),
            formats={},
            samples=trial.samples,
            measured_at=trial.runs[-1].at,
            source=trial.name,
        )
        found.append(_table(origin, _measured_rows(trial, space, able), [frame]))
    return merge_tables(found) if found else _table(origin, [], [])


def _table(origin: Mapping[str, str], rows: list[LayerRow], frames: list[FrameRow]) -> ProfileTable:
    return ProfileTable(
        schema="edgekit.profile/1", **origin, rows=rows, frames=frames, contradictions=[], notes=[]
    )


def _measured_rows(trial: Trial, space: PlacementSpace, able: Mapping[str, bool]) -> list[LayerRow]:
    segments, found, last = trial.segments(), [], trial.runs[-1]
    merged = [
        SegmentTimes(
            lane=lane, index=index, device=device, layers=layers, latency_ms={"median": us / 1e3}
        )
        for (lane, index), (device, layers, us, _) in segments.items()
    ]
    # segments have their medians over all runs; the nodes within them are the last run's
    rows = _profiled(last.run, merged, trial.plan)
    # not by core: `match_rows` knows device classes only
    by_layers = {(device != "GPU", layers): sd for device, layers, _, sd in segments.values()}
    formats = {
        frozenset(loadable.layers): dict(loadable.formats) for loadable in trial.plan.loadables
    }
    groups = match_rows(Profile("bench", "", rows), space.network, able).groups
    for group in groups:
        names = [space.network.layers[i].name for i in group.layers]
        # a row within a segment was measured in one run only: 3 % is assumed
        spread = by_layers.get((group.device != "GPU", tuple(names)), 0.03 * group.row.us)
        found.append(
            LayerRow(
                device=group.device,
                layers=names,
                us=group.row.us,
                sd_us=spread,
                formats=dict(sorted(formats.get(frozenset(names), {}).items())),
                samples=trial.samples,
                measured_at=last.at,
                source=trial.name,
            )
        )
    return found


def _profiled(run: Bench, segments: Sequence[SegmentTimes], plan: Plan) -> tuple[ProfileRow, ...]:
    """Returns rows of the segments' layers, fusions and loadables, by the nodes of a run."""
    places = [[(layer.name, layer.device) for layer in share.layers] for share in plan.plans]
    return bench_rows(replace(run.measurement(), segments=tuple(segments)), places)[0]


def _mean_us(run: Bench) -> float:
    samples = run.samples_ms
    lanes = {segment.lane for segment in run.segments}
    if len(lanes) < 2 or not samples:
        return frame_cost(run, "latency")
    return 1e3 * math.fsum(samples) / len(samples)


def in_objective_unit(cost: float, objective: str) -> float:
    """Returns a cost in the objective's unit: frames a second for throughput."""
    return 1e6 / cost if objective == "throughput" and cost else cost


def rounded_value(value: float) -> float:
    """Returns a document's number, rounded to six digits."""
    return float(f"{value:.{_DIGITS}g}")


def readable_value(value: float | None, unit: str = "us") -> str:
    """Returns a value in a readable unit: 41.5 ms instead of 41460 us."""
    if unit == "us":
        return microseconds(value)
    return energy(value) if unit == "uJ" else f"{significant(value)} {unit}"


def frame_cost(document: Bench, objective: str, plan: Plan | None = None) -> float:
    """Returns the cost of a measured frame in microseconds (energy: microjoules). Less is better.

    It is above 0, except for the GPU time of a plan without layers on the GPU.

    Args:
        document: The measurement; it has an energy if power was measured.
        objective: A placement objective.
        plan: The measured plan; distinguishes a hybrid engine's devices.

    Raises:
        EnvironmentLack: "tune.no-power": the objective is energy, and no power was measured.
        BoardError: "bench.malformed": the document has no such time.
    """
    cost: float | None = None
    if objective == "energy":
        if document.energy is None or document.energy.total is None:
            raise no_power_error()
        cost = document.energy.total.uj_per_inference
    elif objective in ("throughput", "period"):
        pipelined = document.pipelined
        qps = (pipelined.throughput_qps if pipelined else 0.0) or document.throughput_qps
        cost = 1e6 / qps if qps else None
    elif objective == "gpu_time":
        busy = busy_us(document, plan)
        cost = None if busy is None else busy.get("GPU", 0.0)
    else:
        samples = document.samples_ms
        ms = median(samples) if samples else (document.latency_ms or {}).get("median")
        cost = None if ms is None else ms * 1e3
    # a plan without GPU work costs no GPU time
    least = 0.0 if objective == "gpu_time" else math.ulp(0.0)
    if cost is None or not math.isfinite(cost) or cost < least:
        raise BoardError(
            f"the measurement has no {objective}",
            code="bench.malformed",
            hint="run edgekit bench with the configuration to find the cause",
        )
    return cost


def broken_bounds(document: Bench, bounds: Mapping[str, float], plan: Plan) -> list[str]:
    """Returns the user's bounds that the measurement violates, as sentences."""
    names = {
        "latency_us": "latency",
        "energy_uj": "energy",
        "gpu_us": "gpu_time",
        "period_us": "period",
    }
    found = []
    for bound, limit in bounds.items():
        try:
            cost = frame_cost(document, names[bound], plan)
        except (EnvironmentLack, BoardError):
            continue  # an unmeasured value violates no bound
        if cost > limit:
            unit = UNITS[names[bound]]
            found.append(
                f"{bound} is {readable_value(cost, unit)}, above {readable_value(limit, unit)}"
            )
    return found


def compact_measurement(document: Bench) -> Bench:
    """Returns a measurement without the parts that the journal does not need."""
    retained = {
        key: value for key in _JOURNAL_KEYS if (value := getattr(document, key)) is not None
    }
    samples = document.samples_ms or []
    step = max(1, math.ceil(len(samples) / _MOST_SAMPLES))
    # evenly over the run, so that a drift remains visible
    return Bench(schema=document.schema_, **retained, samples_ms=samples[::step])


class Duel(Document):
    """The relative improvement of a plan over another, measured in turns.

    Attributes:
        theirs: The other plan's median cost; null without turns.
        high: Upper end of the fraction's interval.
        turns: Number of turns, each a measurement of both plans.
    """

    ours: Figure | None = Field(description="the median; null without turns")
    theirs: Figure | None
    fraction: Number = Field(description="1 - ours / theirs: positive is better")
    low: Number | None = Field(description="of the fraction, with 95 %")
    high: Number | None
    turns: Count
    better: bool = Field(
        description="the interval is above 0, and at least nine of ten turns agree"
    )
    challenger: Count = omitted(
        0, description="number of the plan that was measured with the first"
    )
    winner: Count = omitted(0, description="number of the plan that the tuning advises")


def relative_gain(
    ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0, rounds: int = 4000
) -> Duel:
    """Returns the improvement of ``ours`` relative to ``theirs``, measured in turns.

    Each turn is a pair, so that drifts (temperature, other load) affect both. The improvement
    compares the medians over the turns; its interval is a bootstrap over turns (Efron, 1979).
    """
    a, b = np.array(ours, float), np.array(theirs, float)
    if not len(a):
        return Duel(
            ours=None, theirs=None, fraction=0.0, low=None, high=None, turns=0, better=False
        )
    # the same draws for both: the two costs of a turn stay a pair
    which = np.random.default_rng(seed).integers(0, len(a), (rounds, len(a)))
    drawn = _relative_gain(np.median(a[which], axis=1), np.median(b[which], axis=1))
    low, high = (float(x) for x in np.quantile(drawn, (0.025, 0.975)))
    wins = int((a < b).sum())
    middle = np.median(a), np.median(b)
    sure = len(a) >= LEAST_TURNS and low > 0 and wins >= 0.9 * len(a)
    return Duel(
        ours=float(middle[0]),
        theirs=float(middle[1]),
        fraction=float(_relative_gain(*map(np.atleast_1d, middle))[0]),
        low=low,
        high=high,
        turns=len(a),
        better=bool(sure),
    )


def _relative_gain(ours: Any, theirs: Any) -> Any:
    """Returns the relative improvement of ours; a cost of 0 cannot be improved."""
    some = theirs > 0
    return np.where(some, 1 - ours / np.where(some, theirs, 1.0), -(ours > 0).astype(float))


def busy_us(document: Bench, plan: Plan | None = None) -> dict[str, float] | None:
    """Returns each device's own microseconds a frame, a mix's frames by their shares.

    A hybrid engine is a single segment, named after its DLA: its time outside loadables keeps the
    GPU busy, reformats included.

    Args:
        document: The measurement.
        plan: The built plan; without it each segment counts for the device in its name.

    Returns:
        None if there are no segments, or a hybrid engine's devices cannot be distinguished.
    """
    found: dict[str, float] = {}
    shares = [share.share for share in plan.plans] if plan is not None else []
    for segment in document.segments:
        share = shares[segment.lane] if segment.lane < len(shares) else 1.0
        parts = list(_segment_devices(document, segment, plan))
        if not parts:
            return None
        for device, us in parts:
            found[device] = found.get(device, 0.0) + share * us
    return found if document.segments else None


def _segment_devices(
    document: Bench, segment: SegmentTimes, plan: Plan | None
) -> Iterator[tuple[str, float]]:
    """Yields a segment's devices and their microseconds; no item if they are unknown."""
    device, us = segment.device, _median_us(segment)
    if us is None:
        return
    if device == "GPU" or plan is None or not us:
        yield device, us
        return
    if rows := _profiled(document, [segment], plan):
        on_dla = min(us, sum(row.us for row in rows if row.device != "GPU"))
        # a single row is the unprofiled segment: its whole time is the DLA's
        yield device, on_dla
        if us > on_dla:
            yield "GPU", us - on_dla


def estimate_from_table(
    space: PlacementSpace, table: ProfileTable, like: Mapping[str, float] | None = None
) -> Estimate:
    """Returns the times that a table gives a network; arguments as of :func:`learn`."""
    absolute = table.clock == "board-measured"
    evidence = table_evidence(table, space.index, space.model.launch_us())
    return estimate(space.network, space.prior_us, evidence, absolute=absolute, like=like)


def learn(
    trials: Sequence[Trial],
    space: PlacementSpace,
    table: ProfileTable,
    objective: str,
    like: Mapping[str, float] | None = None,
    seed: int = 0,
) -> SampledTimes:
    """Returns samples of the times that the table and the trials leave open.

    Args:
        trials: Plans of a single network.
        space: The network's placements.
        table: The network's measurements.
        objective: The minimised objective.
        like: By device class, the error of the predictions for another network.
        seed: Seed of the samples.
    """
    # other worlds after each trial, but the same ones when the tuning is continued
    random = np.random.default_rng([seed, len(trials)])
    learnt = estimate_from_table(space, table, like)
    doubts = [1.0] * LIKELY + [DOUBT] * FAR
    # world 0 is the likeliest; the documents' learnt times come from it
    logs = np.array([learnt.mean, *(learnt.sample(random, doubt) for doubt in doubts)])
    # reversed, so that a class has its first core's watts
    cores = {device_class(device): device for device in reversed(space.devices)}
    watts = {name: space.model.watts(device) for name, device in cores.items()}
    energy = _energy_factors(trials, watts, random) if objective == "energy" else {}
    unity = np.ones(len(logs))
    worlds = SampledTimes(space, learnt, objective, logs, unity, unity, energy, watts)
    return worlds if objective == "latency" else _with_plan_factors(worlds, trials, random)


def _with_plan_factors(
    worlds: SampledTimes, trials: Sequence[Trial], random: np.random.Generator
) -> SampledTimes:
    """Returns the worlds with the factors that only whole plans show.

    These are the fraction of transfers that keeps the GPU busy, and the cost of devices working
    together. Each value is weighted by its likelihood: if a DLA limits all measured plans, no value
    is ruled out.
    """
    together = worlds.objective in ("throughput", "period")
    misfits, factors = [], []
    for moving in MOVING:
        way = replace(worlds, moving=np.full(len(worlds.logs), moving))
        ratios = []
        for trial in trials:
            several = len({layer.device for layer in trial.plan.layers}) > 1
            # only a pipelined plan on several devices shows how they slow each other
            if not trial.runs or (together and not (several and trial.runs[-1].run.pipelined)):
                continue
            costs = way.busiest(trial.plan) if together else way.costs(trial.plan)
            cost = trial.cost(worlds.objective)
            if costs[0] > 0 and cost > 0:
                ratios.append((math.log(cost / costs[0]), float(np.std(np.log(costs)))))
        # a slowdown that all plans share is `together`'s; `moving` explains only how they differ
        center = sum(ratio for ratio, _ in ratios) / len(ratios) if together and ratios else 0.0
        misfits.append(sum(((ratio - center) / math.hypot(FIT, sd)) ** 2 for ratio, sd in ratios))
        factors.append(_slowdown([math.exp(ratio) for ratio, _ in ratios] if together else []))
    likely = np.exp((min(misfits) - np.array(misfits)) / 2)
    which = random.choice(len(MOVING), len(worlds.logs), p=likely / likely.sum())
    # world 0 stays the likeliest, without noise
    which[0] = int(likely.argmax())
    means, deviations = np.array(factors)[which].T
    noise = random.standard_normal(len(which))
    noise[0] = 0.0
    factor = np.maximum(means + deviations * noise, LEAST_FACTOR)
    return replace(worlds, moving=np.array(MOVING)[which], together=factor)


def _slowdown(ratios: Sequence[float]) -> tuple[float, float]:
    """Returns mean and deviation of the factor by which working together slows."""
    if not ratios:
        return TOGETHER
    mean = float(np.mean(ratios))
    # a single plan does not show how the factor varies
    return mean, TOGETHER[1] if len(ratios) < 2 else max(STEADY, float(np.std(ratios)))


def _energy_factors(
    trials: Sequence[Trial], watts: Mapping[str, float], random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Returns, by device class and world, the ratio of measured to predicted energy, kept near 1.

    Bayesian linear regression: energy is the sum of the devices' times, each multiplied by its
    watts.
    """
    rows, measured = [], []
    for trial in trials:
        runs = [busy for run in trial.runs if (busy := busy_us(run.run, trial.plan)) is not None]
        if runs and (energy := trial.runs[-1].run.energy) and energy.total:
            busy = {
                device: median([run.get(device, 0.0) for run in runs])
                for device in dict.fromkeys(name for run in runs for name in run)
            }
            rows.append(
                [
                    watt * sum(us for device, us in busy.items() if device_class(device) == name)
                    for name, watt in watts.items()
                ]
            )
            measured.append(trial.cost("energy"))
    # prior: the predicted energy is right, give or take `_WATTS_ERROR`
    precision, mean = np.eye(len(watts)) / _WATTS_ERROR**2, np.ones(len(watts))
    if rows:
        a, b = np.array(rows), np.array(measured)
        # a measured energy is taken as exact to 3 %
        noise = (0.03 * b.mean()) ** 2
        right = a.T @ b / noise + precision @ mean
        precision = a.T @ a / noise + precision
        mean = np.linalg.solve(precision, right)
    drawn = random.multivariate_normal(mean, np.linalg.inv(precision), LIKELY + FAR)
    factors = np.maximum(np.vstack([mean, drawn]), LEAST_FACTOR)
    return dict(zip(watts, factors.T, strict=True))


def no_power_error(why: str = "the board reports no power rails") -> EnvironmentLack:
    """Returns the error of a tuning for energy without power measurements."""
    return EnvironmentLack(
        f"energy was not measured: {why}",
        code="tune.no-power",
        hint="tune for latency or throughput, or give access to the board's power rails: see "
        "edgekit doctor --setup",
    )
