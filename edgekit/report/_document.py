"""The ``edgekit.report/1`` document: everything that the page and the summary show.

Numbers stay numbers here; `_view` turns them into text and the template only lays them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.report._answer import answers
from edgekit.report._document_parts import histogram, timeline
from edgekit.report._graph import graph_of
from edgekit.report._layers import device_rows, layer_rows, part_rows, why_not
from edgekit.report._measured import trace_summary
from edgekit.report._power import power_of
from edgekit.report._text import significant
from edgekit.report._verdict import pool_uses, verdict_of

if TYPE_CHECKING:
    from edgekit.placement import Plan
    from edgekit.report._types import RunFacts

__all__ = ["AIMS", "SCHEMA", "advantage", "comparison", "report_document"]

SCHEMA = "edgekit.report/1"
BASELINES = (
    ("gpu_only", "GPU alone"),
    ("tensorrt_auto", "TensorRT automatic DLA"),
    ("best_cut", "Best single cut"),
)
LEAST_CHANGE = 0.005  # what is smaller is "0 %"
_QUANTITIES = {
    "throughput_qps": ("frames per second", "more", "fewer"),
    "gpu_us": ("GPU time", "more", "less"),
    "energy_uj": ("energy", "more", "less"),
    "latency_us": ("latency", "more", "less"),
}
AIMS = {  # of an objective: its quantity, the table's word for it, what a better plan does
    "latency": ("latency_us", "latency", "answers sooner"),
    "throughput": ("throughput_qps", "per second", "takes more frames"),
    "period": ("throughput_qps", "period", "takes more frames"),
    "energy": ("energy_uj", "energy", "saves energy"),
    "gpu_time": ("gpu_us", "GPU time", "frees the GPU"),
}

BENCH_ONLY = ("samples_ms", "predicted", "monitor", "power", "energy")


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


def advantage(rows: Sequence[Mapping[str, Any]], objective: str) -> str:
    """Returns what the plan's objective brings over the GPU alone, in a sentence; "" if nothing.

    Args:
        rows: From :func:`comparison`.
        objective: The plan's; its figure comes first.
    """
    own, alone = (next(row for row in rows if row["key"] == key) for key in ("plan", "gpu_only"))
    if own["latency_us"] is None or alone["latency_us"] is None:
        return ""
    aim, _, does = AIMS[objective]
    changes = {}
    for key in sorted(_QUANTITIES, key=lambda key: key != aim):
        before, after = alone.get(key), own.get(key)
        if before and after is not None and abs(after / before - 1) >= LEAST_CHANGE:
            changes[key] = after / before
    if not changes:
        return ""
    gain = changes.get(aim, 1.0)
    better = gain > 1 if aim == "throughput_qps" else gain < 1
    lead = f"this plan {does}" if better else "this plan"
    told = ", ".join(_changed(ratio, *_QUANTITIES[key]) for key, ratio in changes.items())
    return f"Compared with the GPU alone {lead}: {told} (predicted)."


def _changed(ratio: float, quantity: str, more: str, less: str) -> str:
    if ratio >= 2:
        return f"{significant(ratio, 2)} times the {quantity}"
    return f"{100 * abs(ratio - 1):.0f} % {more if ratio > 1 else less} {quantity}"


def _pool_limits(facts: RunFacts) -> dict[str, int]:
    """Returns what each pool may be: what the build was given, or gets by itself."""
    from edgekit.dla import pool_limits

    if facts.target.dla.cores == 0:
        return {}
    return pool_limits(facts.target).to_json() | dict(facts.plan.constraints.get("pools") or {})


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
    from edgekit.placement import device_times, frame_times

    plan = facts.plan
    first = device_times(plan.plans[0], [one for one in plan.loadables if one.plan == 0])
    devices = device_rows(rows, first)
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
        "pool_limits": _pool_limits(facts),
        "transitions": plan.transitions,
        "segments": len({row["segment"] for row in rows}),
        "objective": plan.objective,
        "optimal": plan.optimal,
        "extrapolated": list(plan.extrapolated),
        "bound": plan.bound,
        "gap": plan.gap,
        "shares": [share.share for share in plan.plans],
        "frame": frame_times(plan),
        "plans": _plans(plan, rows),
    }


def _plans(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the share of each plan of a mix, and what its devices have of a frame."""
    from edgekit.placement import plan_devices

    macs = {row["name"]: row["macs"] for row in rows}
    total = sum(macs.values())
    found = []
    for number, share in enumerate(plan.plans):
        own: Counter[str] = Counter()
        for layer in share.layers:
            own[layer.device] += macs.get(layer.name, 0)
        devices = [
            {**row, "macs": own[row["device"]],
             "macs_fraction": own[row["device"]] / total if total else 0.0}
            for row in plan_devices(plan, number)
        ]  # fmt: skip
        found.append({"share": share.share, "devices": devices})
    return found


def _bench(bench: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the measurement without its samples, which the bench file keeps.

    What the monitor saw is in "power", the other parts have places of their own, too.
    """
    if bench is None:
        return None
    kept = {key: value for key, value in bench.items() if key not in BENCH_ONLY}
    return kept | {"histogram": histogram(bench.get("samples_ms") or ())}


def _notes(facts: RunFacts) -> dict[str, list[str]]:
    """Returns the notes by what they are about, each once."""
    from edgekit.bench import profile_notes

    groups = {name: list(notes) for name, notes in facts.note_groups.items()}
    known = {note for notes in groups.values() for note in notes}
    plan = [note for note in facts.plan.notes if note not in known]
    rest = [note for note in facts.notes if note not in known and note not in plan]
    found = {
        "plan": [*groups.get("plan", ()), *plan],
        "accuracy": groups.get("accuracy", []),
        "measurement": profile_notes(facts.bench or {}),
        "build": groups.get("build", []),
        "run": [*groups.get("run", ()), *rest],
    }
    told: set[str] = set()
    for name, notes in found.items():
        found[name] = [note for note in dict.fromkeys(notes) if note not in told]
        told.update(notes)
    return {name: notes for name, notes in found.items() if notes}


def report_document(facts: RunFacts) -> dict[str, Any]:
    """Makes the report's JSON document.

    Args:
        facts: What the run found out; absent parts become null and their section says so.

    Returns:
        A JSON-ready ``edgekit.report/1`` document; times named ``_us`` are microseconds,
        energies ``_uj`` microjoules, sizes bytes. Predicted and measured values stand in separate
        objects, each with its ``clock``.
    """
    from edgekit.placement import gpu_reasons, source_of
    from edgekit.quantize import change_rows

    plan, target = facts.plan, facts.target
    reasons = gpu_reasons(plan, facts.network, facts.judgement, target)
    rows = layer_rows(facts, reasons)
    predicted = comparison(plan)
    placement = _placement(facts, rows)
    scales = facts.scales
    pools = pool_uses(placement["loadables"], placement["pool_limits"])
    notes = _notes(facts)
    verdict = verdict_of(
        facts.bench, accuracy=facts.accuracy, refit=facts.refit, pools=pools,
        steps=facts.steps, baseline=facts.baseline,
    )  # fmt: skip
    answer = answers(facts, placement, verdict)
    timed = timeline(facts)
    first = [slot for slot in timed["slots"] if slot["plan"] == 0]
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
        "headline": " ".join(one["words"] for one in answer),
        "answer": answer,
        "verdict": verdict,
        "placement": placement,
        "predicted": {
            "clock": "predicted",
            "model_error": plan.model_error,
            "source": source_of(plan.measured),
            "unknown_cost": len(plan.unknown_cost),
            "rows": predicted,
            "advantage": advantage(predicted, plan.objective),
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
        "power": power_of(facts.bench),
        "baseline": dict(facts.baseline) if facts.baseline else None,
        "board": dict(facts.board) if facts.board else None,
        "rewrites": [dict(rewrite) for rewrite in facts.rewrites],
        "layers": rows,
        "measured_parts": part_rows(facts),
        "why_not": why_not(facts.judgement),
        "why_gpu": reasons,
        "graph": graph_of(facts.network, rows, first),
        "timeline": timed,
        "trace": trace_summary(facts.trace, facts.files.get("trace")),
        "steps": [dict(step) for step in facts.steps],
        "files": dict(facts.files),
        "config": facts.config_text,
        "environment": dict(facts.environment),
        "notes": [note for group in notes.values() for note in group],
        "note_groups": notes,
    }  # fmt: skip
