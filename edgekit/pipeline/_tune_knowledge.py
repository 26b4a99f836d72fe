"""What the measurements of several plans say together of plans that were not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._tune_devices import busy_us
from edgekit.pipeline._tune_values import median

if TYPE_CHECKING:
    from edgekit.pipeline._tune_trials import Trial
    from edgekit.placement._trial_search import Knowledge, Way
    from edgekit.placement._trial_space import Space

__all__ = ["knowledge_of"]

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


def knowledge_of(
    trials: Sequence[Trial], space: Space, table: Mapping[str, Any], objective: str,
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
    from edgekit.placement._learnt import table_evidence
    from edgekit.placement._trial_learn import learn
    from edgekit.placement._trial_search import Knowledge

    absolute = table.get("clock") == "board-measured"
    evidence = table_evidence(table, space.index, space.model.launch_us())
    learnt = learn(space.network, space.prior_us, evidence, absolute=absolute, like=like)
    watts = _watts(space)
    energy, deviations = _energy(trials, watts)
    known = Knowledge(space, learnt, objective, watts=watts, energy=energy, energy_sd=deviations)
    return known if objective == "latency" else replace(known, ways=_ways(trials, known))


def _watts(space: Space) -> dict[str, float]:
    """Returns by class of device the module's watts while it works."""
    names = {"GPU": "GPU", "DLA": next((d for d in space.devices if d != "GPU"), "")}
    return {name: space.model.watts(device) for name, device in names.items() if device}


def _ways(trials: Sequence[Trial], known: Knowledge) -> tuple[Way, ...]:
    """Returns by how much of the transfers may keep the GPU busy what that explains.

    The weights are likelihoods: where all measured plans are bound by a DLA, none is ruled out.
    """
    from edgekit.placement._trial_search import Way

    found = []
    for moving in MOVING:
        if known.objective in ("throughput", "period"):
            ratios = _together(trials, known, moving)
            center = _mean([ratio for ratio, _ in ratios], 0.0)
            way = Way(moving, _factor([math.exp(ratio) for ratio, _ in ratios]))
        else:
            way, center = Way(moving), 0.0
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


def _together(
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
    mean = _mean(ratios, TOGETHER[0])
    if len(ratios) < 2:
        return mean, TOGETHER[1]
    return mean, max(STEADY, math.sqrt(_mean([(ratio - mean) ** 2 for ratio in ratios], 0.0)))


def _mean(values: Sequence[float], none: float) -> float:
    return math.fsum(values) / len(values) if values else none


def _busy(trial: Trial) -> dict[str, float]:
    """Returns each device's own microseconds a frame, the median of the runs that tell them."""
    runs = [busy for run in trial.runs if (busy := busy_us(run, trial.plan)) is not None]
    devices = {device for busy in runs for device in busy}
    return {device: median([busy.get(device, 0.0) for busy in runs]) for device in devices}


def _energy(
    trials: Sequence[Trial], watts: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns by class how measured energy is to predicted watts, kept near 1, and deviations.

    Bayesian linear regression: energy is the sum of the devices' times by their watts.
    """
    import numpy as np

    names = list(watts)
    rows, measured = [], []
    for trial in trials:
        if trial.runs and (trial.runs[-1].get("energy") or {}).get("total"):
            busy = _busy(trial)
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
