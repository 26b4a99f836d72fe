"""Plans that were tried, and their measurements as one table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._tune_values import cost_of, median

if TYPE_CHECKING:
    from edgekit.placement import Plan
    from edgekit.placement._trial_space import Space

__all__ = ["Trial", "table_of"]

LEAST_SPREAD = 0.005


@dataclass
class Trial:
    """A plan that was measured, or dropped.

    Attributes:
        number: In the order of the tries, from 1.
        plan: The plan.
        key: What tells it from others.
        origin: "start", "other" (the other network's best, as predicted), "gpu" (the GPU alone),
            "dla" (the DLA as far as it goes), "search" or "sweep" (beside the best).
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
            key: (*facts[key], median(each), _spread(each)) for key, each in times.items()
        }  # fmt: skip


def _spread(values: Sequence[float]) -> float:
    """Returns the deviation of a median of runs."""
    middle = median(values)
    if len(values) < 2:
        return LEAST_SPREAD * middle
    apart = 1.4826 * median([abs(value - middle) for value in values])
    return max(LEAST_SPREAD * middle, apart / math.sqrt(len(values)))


def table_of(
    trials: Sequence[Trial], space: Space, able: Mapping[str, bool], origin: Mapping[str, Any],
    tables: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Returns everything that was measured as one ``edgekit.profile/1``.

    Args:
        trials: Those with runs count.
        space: The network's placements.
        able: By layer, whether a DLA can run it.
        origin: Clock, board, power mode, precision, model and backend.
        tables: Earlier tables, which are merged with it.
    """
    from edgekit.placement._profile_table import frame_row, merge_tables
    from edgekit.placement._trial_pieces import pieces

    found = [dict(table) for table in tables]
    for trial in trials:
        if not trial.runs:
            continue
        more = {"samples": sum(int(run.get("iterations") or 1) for run in trial.runs),
                "measured_at": trial.measured_at, "source": trial.name}  # fmt: skip
        # a mix's frames take turns: their mean is the plans' by shares, their median is nobody's
        times = [_mean_us(run) for run in trial.runs]
        parts = []
        for piece in pieces(trial.plan, space.index):
            names: dict[str, list[str]] = {}
            for name, index in piece.layers:
                names.setdefault(name, []).append(space.network.layers[index].name)
            parts.append({"share": piece.share, "layers": names, "extra": dict(piece.extra)})
        frames = [frame_row(parts, median(times), sd_us=_spread(times), **more)]
        rows = _rows(trial, space, able, more)
        found.append({**origin, "rows": rows, "frames": frames})
    if not found:
        return {"schema": "edgekit.profile/1", **origin, "rows": [], "frames": [],
                "contradictions": [], "notes": []}  # fmt: skip
    return merge_tables(found)


def _rows(
    trial: Trial, space: Space, able: Mapping[str, bool], more: Mapping[str, Any]
) -> list[dict[str, Any]]:
    from edgekit.placement._measured_match import match_rows
    from edgekit.placement._profile_bench import bench_rows
    from edgekit.placement._profile_table import layer_row
    from edgekit.placement._profile_types import Profile

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
