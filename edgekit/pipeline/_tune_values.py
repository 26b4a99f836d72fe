"""What a measurement is worth for an objective, and whether one plan is really better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EnvironmentLack
from edgekit.pipeline._tune_devices import busy_us
from edgekit.pipeline._tune_power import no_power

if TYPE_CHECKING:
    from edgekit.placement import Plan

__all__ = [
    "UNITS",
    "better_by",
    "broken_bounds",
    "compact",
    "cost_of",
    "expectation",
    "median",
    "no_room",
    "rounded",
    "shown",
    "spoken",
]

UNITS = {"latency": "us", "throughput": "frames/s", "period": "us", "energy": "uJ",
         "gpu_time": "us"}  # fmt: skip
_MOST_SAMPLES = 4000
_DIGITS = 6
_KEPT = (
    "schema", "backend", "clock", "segments_clock", "iterations", "duration_s", "warmup_ms",
    "latency_ms", "throughput_qps", "pipelined", "segments", "nodes", "energy", "verdict",
    "settings", "runtime",
)  # fmt: skip


def median(values: Sequence[float]) -> float:
    """Returns the middle value; ValueError for none."""
    from edgekit.bench import median as middle

    return middle(values)


def shown(cost: float, objective: str) -> float:
    """Returns a cost in the objective's unit: frames a second for throughput."""
    return 1e6 / cost if objective == "throughput" and cost else cost


def rounded(value: float) -> float:
    """Returns a number of a document: six digits of it."""
    return float(f"{value:.{_DIGITS}g}")


def spoken(value: float, unit: str = "us") -> str:
    """Returns a value of a document's unit as people read it: 41.5 ms instead of 41460 us."""
    from edgekit.report._text import energy, microseconds, significant

    if unit == "us":
        return microseconds(value)
    return energy(value) if unit == "uJ" else f"{significant(value)} {unit}"


def expectation(mean: float, low: float, objective: str) -> str:
    """Returns what a plan is expected to cost, and at best, in the objective's unit."""
    unit = UNITS[objective]
    best = f", at best {spoken(shown(low, objective), unit)}" if low > 0 else ""
    return f"expected {spoken(shown(mean, objective), unit)}{best}"


def no_room(spent_s: float, budget_s: float, plan_s: float, turns_s: float) -> str:
    """Returns why a budget ends a tuning: another plan and the turns take so long."""
    if spent_s >= budget_s:
        return f"the budget of {budget_s:.0f} s is spent"
    turns = f" and the turns at the end (about {turns_s:.0f} s)" if turns_s else ""
    # what was spent then is not told: the turns follow, and the whole time stands beside it
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
        plan: What was measured; tells a hybrid engine's devices apart.

    Raises:
        EnvironmentLack: "tune.no-power": the objective is energy, and no power was measured.
        BoardError: "bench.malformed": the document has no such time.
    """
    cost: float | None = None
    if objective == "energy":
        cost = _energy(document)
        if cost is None:
            raise no_power()
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


def _energy(document: Mapping[str, Any]) -> float | None:
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
            found.append(f"{bound} is {spoken(cost, unit)}, above {spoken(limit, unit)}")
    return found


def compact(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what of a measurement is kept in the journal."""
    kept = {key: document[key] for key in _KEPT if document.get(key) is not None}
    samples = document.get("samples_ms") or []
    step = max(1, math.ceil(len(samples) / _MOST_SAMPLES))
    return {**kept, "samples_ms": list(samples[::step])}


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
    import numpy as np

    a, b = np.array(ours, float), np.array(theirs, float)
    if not len(a):
        return {"ours": None, "theirs": None, "fraction": 0.0, "low": None, "high": None,
                "turns": 0, "better": False}  # fmt: skip
    which = np.random.default_rng(seed).integers(0, len(a), (rounds, len(a)))
    drawn = _part(np.median(a[which], axis=1), np.median(b[which], axis=1))
    low, high = (float(x) for x in np.quantile(drawn, (0.025, 0.975)))
    wins = int((a < b).sum())
    middle = np.median(a), np.median(b)
    # one turn cannot tell a difference from an accident; five in a row are one in 32
    sure = len(a) >= 5 and low > 0 and wins >= 0.9 * len(a)
    return {"ours": float(middle[0]), "theirs": float(middle[1]),
            "fraction": float(_part(*map(np.atleast_1d, middle))[0]), "low": low, "high": high,
            "turns": len(a), "better": bool(sure)}  # fmt: skip


def _part(ours: Any, theirs: Any) -> Any:
    """Returns by what part ours are lower; nothing is better than a cost of 0."""
    import numpy as np

    some = theirs > 0
    return np.where(some, 1 - ours / np.where(some, theirs, 1.0), -(ours > 0).astype(float))
