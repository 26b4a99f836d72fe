"""What the annotated ONNX file says: each node's device, precision and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.network import Network, Place
    from edgekit.pipeline._pipeline import Pipeline
    from edgekit.placement import Plan

__all__ = ["write_annotated"]


def write_annotated(
    pipeline: Pipeline, path: Path, report: Mapping[str, Any] | None = None
) -> None:
    """Writes the model with the plan, and what was measured, in its nodes' metadata.

    The user's own file with nothing else changed, where nothing was rewritten or cut; otherwise the
    model as it was placed.

    Args:
        pipeline: Of one network.
        path: The ONNX file to write.
        report: Its run's ``edgekit.report/1``, for measured times; the plan's predictions
            without it.

    Raises:
        UsageError: ``path`` is the model's own file.
        ModelError: It cannot be written.
    """
    from edgekit.network import annotate_file, places, save_annotated

    work, section = pipeline.work, pipeline.file.model
    plan = work.plan
    rows = report["layers"] if report else _rows(plan, work.network)
    notes = node_notes(rows, places(work.model, work.network))
    about = {
        "target": plan.target, "mode": plan.power_mode, "precision": plan.precision,
        "tensorrt": plan.tensorrt, "objective": plan.objective,
        "time": _frame_time(plan, (report or {}).get("bench")),
    }  # fmt: skip
    if len(plan.plans) > 1:
        about["plan"] = f"the first of {len(plan.plans)}, {plan.plans[0].share:.0%} of the frames"
    source = pipeline.config.resolve(section.onnx) if section.onnx else None
    if source is not None and path.exists() and path.samefile(source):
        raise UsageError(
            "this is the model itself", where=str(path), hint="give --annotate another file"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if source is None or work.rewrites or section.outputs:
        save_annotated(work.model, path, notes, about)
    else:
        annotate_file(source, path, notes, about)


def _rows(plan: Plan, network: Network) -> list[dict[str, Any]]:
    from edgekit.placement import booked_layers

    booked = booked_layers(plan.plans[0], network)
    return [
        {**row, "predicted_us": layer.predicted_us}
        for row, layer in zip(plan.to_json()["layers"], booked, strict=True)
    ]


def node_notes(
    rows: Iterable[Mapping[str, Any]], placed: Mapping[str, Place]
) -> dict[str, dict[str, str]]:
    """Returns by ONNX node what is known of the layers that stand for it.

    A layer's time is that of all its nodes together, which "layer" names: it is not divided.

    Args:
        rows: Layers of a report or of a plan.
        placed: Where each node is.
    """
    by_name = {str(row["name"]): row for row in rows}
    notes: dict[str, dict[str, str]] = {}
    for node, place in placed.items():
        own = [by_name[name] for name in place.layers if name in by_name]
        note = _note(own) if own else {}
        if place.reason:
            note = {"gone": place.reason, **({"layer": note["layer"]} if note else {})}
        if note:
            notes[node] = note
    return notes


def _frame_time(plan: Plan, bench: Mapping[str, Any] | None) -> str:
    """Returns how long a frame takes, the measured median first."""
    predicted = f"{plan.predicted.latency_us:.1f} µs, predicted"
    median = ((bench or {}).get("latency_ms") or {}).get("median")
    if bench is None or median is None:
        return predicted
    status = (bench.get("verdict") or {}).get("status") or "not judged"
    return f"{1000 * median:.1f} µs, {bench['clock']}, {status}; {predicted}"


def _note(rows: list[Mapping[str, Any]]) -> dict[str, str]:
    def every(key: str) -> str:
        return ", ".join(dict.fromkeys(str(row[key]) for row in rows))

    note = {"device": every("device"), "time": _layer_time(rows),
            "precision": every("precision"), "segment": every("segment"),
            "layer": every("name")}  # fmt: skip
    within = next((row["within"] for row in rows if row.get("within")), None)
    if within:  # of what was timed as a whole nobody knows the layers' times
        note["within"] = (
            f"{within['name']}: {within['us']:.2f} µs, {within['clock']}, "
            f"{counted(within['layers'], 'layer')} together"
        )
    nodes = max(len(row["nodes"]) for row in rows)
    if nodes > 1:
        note["note"] = f"the time is of {nodes} nodes, which are one layer"
    return note


def _layer_time(rows: list[Mapping[str, Any]]) -> str:
    predicted = sum(row["predicted_us"] for row in rows)
    told = f"{predicted:.2f} µs, predicted" if predicted else "predicted in its neighbour's kernel"
    measured = [row["measured"] for row in rows if row.get("measured")]
    if not measured:
        return told
    return f"{sum(one['us'] for one in measured):.2f} µs, {measured[0]['clock']}; {told}"
