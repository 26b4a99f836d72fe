"""The ``edgekit.report/1`` document: everything that the page and the summary show.

Numbers stay numbers here; `_view` turns them into text and the template only lays them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.report._layers import device_rows, layer_rows, why_not
from edgekit.report._text import count, percent, plural

if TYPE_CHECKING:
    from edgekit.placement import Plan
    from edgekit.report._types import RunFacts

__all__ = ["SCHEMA", "comparison", "report_document"]

SCHEMA = "edgekit.report/1"
BASELINES = (
    ("gpu_only", "GPU only"),
    ("tensorrt_auto", "TensorRT automatic DLA"),
    ("best_cut", "Best single cut"),
)
HISTOGRAM_BINS = 32


def comparison(plan: Plan) -> list[dict[str, Any]]:
    """Returns the plan's prediction and the baselines', with latency relative to the plan's.

    ``change`` is by how much of itself the plan's objective would change; ``keeps`` whether the
    baseline keeps what was asked of the plan (None: not known).
    """
    from edgekit.placement import value_of

    rows: list[dict[str, Any]] = [
        {"key": "plan", "label": "This plan", **plan.predicted.to_json(), "latency_ratio": 1.0,
         "change": 0.0, "keeps": True}
    ]  # fmt: skip
    value = value_of(plan.objective, plan.predicted)
    for key, label in BASELINES:
        baseline = plan.baselines.get(key)
        if baseline is None:
            rows.append({"key": key, "label": label, "latency_us": None})
            continue
        own = plan.predicted.latency_us
        ratio = baseline.latency_us / own if own > 0 else None
        change = value_of(plan.objective, baseline) / value - 1 if value > 0 else None
        rows.append(
            {"key": key, "label": label, **baseline.to_json(), "latency_ratio": ratio,
             "change": change, "keeps": plan.baselines_keep.get(key)}
        )  # fmt: skip
    return rows


def _loadables(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "core": loadable.core, "layers": len(loadable.layers),
            "first": loadable.layers[0] if loadable.layers else "",
            "last": loadable.layers[-1] if loadable.layers else "",
            "memory": loadable.memory.to_json(), "formats": dict(loadable.formats),
        }
        for loadable in plan.loadables
    ]  # fmt: skip


def _placement(facts: RunFacts, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    plan = facts.plan
    devices = device_rows(list(map(dict, rows)), facts.target.dla.cores)
    on_dla = [row for row in devices if row["device"] != "GPU"]
    return {
        "layers": len(rows),
        "macs": sum(row["macs"] for row in rows),
        "devices": devices,
        "dla_layers": sum(row["layers"] for row in on_dla),
        "dla_macs_fraction": sum(row["macs_fraction"] for row in on_dla),
        "dla_capable_layers": sum(bool(row["dla_ok"]) for row in rows),
        "disputed_layers": sum(row["certainty"] == "disputed" for row in rows),
        "loadables": _loadables(plan),
        "pools": dict(plan.pools),
        "transitions": plan.transitions,
        "segments": len({row["segment"] for row in rows}),
        "objective": plan.objective,
        "optimal": plan.optimal,
        "bound": plan.bound,
        "gap": plan.gap,
        "shares": [share.share for share in plan.plans],
        "share_devices": [
            sorted({layer.device for layer in share.layers}, reverse=True) for share in plan.plans
        ],
    }


def _headline(facts: RunFacts, placement: Mapping[str, Any]) -> str:
    """Returns the answer in one sentence."""
    layers, on_dla = placement["layers"], placement["dla_layers"]
    if facts.target.dla.cores == 0:
        return f"{facts.target.title} has no DLA: all {plural(layers, 'layer')} run on the GPU."
    if on_dla == 0:
        capable = count(placement["dla_capable_layers"])
        return (
            f"All {plural(layers, 'layer')} run on the GPU; {capable} could run on a DLA, "
            f"but for the objective {facts.plan.objective} the GPU alone was chosen."
        )
    share = f"{percent(placement['dla_macs_fraction'])} of the MACs"
    plans = len(placement["shares"])
    if plans > 1:
        return (
            f"{plans} plans share the frames; the most frequent one has {count(on_dla)} of "
            f"{plural(layers, 'layer')} and {share} on a DLA core."
        )
    loadables = plural(len(placement["loadables"]), "loadable")
    return (
        f"{count(on_dla)} of {plural(layers, 'layer')} and {share} run on the DLA, in {loadables}."
    )


def _timeline(facts: RunFacts) -> dict[str, Any]:
    from edgekit.bench import predicted_schedule

    slots = predicted_schedule(facts.plan, facts.network)
    tracks = ["GPU", *(f"DLA{core}" for core in range(facts.target.dla.cores))]
    tracks += sorted({slot.device for slot in slots} - set(tracks))
    return {
        "clock": "predicted",
        "end_us": max((slot.start_us + slot.duration_us for slot in slots), default=0.0),
        "tracks": tracks,
        "slots": [
            {
                "plan": slot.variant, "segment": slot.segment, "device": slot.device,
                "start_us": slot.start_us, "duration_us": slot.duration_us,
                "layers": len(slot.layers), "first": slot.layers[0][0], "last": slot.layers[-1][0],
            }
            for slot in slots
        ],
    }  # fmt: skip


def _histogram(samples: Sequence[float]) -> dict[str, Any] | None:
    """Returns counts of equal bins from the fastest to the slowest sample, in milliseconds."""
    if len(samples) < 2:
        return None
    low, high = min(samples), max(samples)
    width = (high - low) / HISTOGRAM_BINS
    counts = [0] * HISTOGRAM_BINS
    for value in samples:
        place = int((value - low) / width) if width > 0 else 0
        counts[min(place, HISTOGRAM_BINS - 1)] += 1
    return {"low_ms": low, "high_ms": high, "counts": counts}


def _bench(bench: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the measurement without its samples, which the bench file keeps."""
    if bench is None:
        return None
    kept = {key: value for key, value in bench.items() if key not in ("samples_ms", "predicted")}
    return kept | {"histogram": _histogram(bench.get("samples_ms") or ())}


def report_document(facts: RunFacts) -> dict[str, Any]:
    """Makes the report's JSON document.

    Args:
        facts: What the run found out; absent parts become null and their section says so.

    Returns:
        A JSON-ready ``edgekit.report/1`` document; times named ``_us`` are microseconds,
        energies ``_uj`` microjoules, sizes bytes. Predicted and measured values stand in separate
        objects, each with its ``clock``.
    """
    from edgekit.quantize import change_rows

    plan, target = facts.plan, facts.target
    rows = layer_rows(facts)
    placement = _placement(facts, rows)
    scales = facts.scales
    return {
        "schema": SCHEMA,
        "name": facts.name,
        "model": facts.model,
        "target": {"name": target.name, "title": target.title, "dla_cores": target.dla.cores},
        "power_mode": plan.power_mode,
        "precision": plan.precision,
        "tensorrt": plan.tensorrt,
        "mode": facts.mode,
        "backend": facts.backend or None,
        "headline": _headline(facts, placement),
        "placement": placement,
        "predicted": {
            "clock": "predicted",
            "model_error": plan.model_error,
            "rows": comparison(plan),
        },
        "accuracy": dict(facts.accuracy) if facts.accuracy else None,
        "calibration": {
            "method": scales.method,
            "data": scales.data,
            "tensors": len(scales.scales),
            "changes": change_rows(scales.changes),
        }
        if scales
        else None,
        "bundle": dict(facts.bundle) if facts.bundle else None,
        "refit": dict(facts.refit) if facts.refit else None,
        "built": [dict(board) for board in facts.built],
        "bench": _bench(facts.bench),
        "board": dict(facts.board) if facts.board else None,
        "rewrites": [dict(rewrite) for rewrite in facts.rewrites],
        "layers": rows,
        "why_not": why_not(facts.judgement),
        "timeline": _timeline(facts),
        "steps": [dict(step) for step in facts.steps],
        "files": dict(facts.files),
        "config": facts.config_text,
        "environment": dict(facts.environment),
        "notes": list(dict.fromkeys([*facts.notes, *plan.notes])),
    }
