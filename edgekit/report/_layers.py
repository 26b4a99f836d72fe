"""The report's layers, devices and reasons, joined from plan, network and judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.report import _text as text
from edgekit.report._measured import layer_times, measured_parts

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.report._types import RunFacts

__all__ = [
    "board_us",
    "by_time",
    "device_rows",
    "layer_rows",
    "order_words",
    "part_rows",
    "shape_words",
    "sharing_words",
    "why_not",
]


def layer_rows(facts: RunFacts, on_gpu: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Returns one row a layer in graph order: place, verdict, prediction and size.

    ``on_gpu`` says why layers are on the GPU that could run on a DLA (``gpu_reasons``).
    """
    from edgekit.placement import booked_layers

    times = layer_times(facts.trace)
    clock = (facts.bench or {}).get("clock", "")
    within = {
        name: {key: part[key] for key in ("name", "clock", "us")} | {"layers": len(part["layers"])}
        for part in reversed(part_rows(facts))
        for name in part["layers"]
    }
    known = {layer.name: layer for layer in facts.network.layers}
    tensors = facts.network.tensors
    why = {
        layer["name"]: {"rule": group["rule"], "message": layer["message"]}
        for group in on_gpu
        for layer in group["layers"]
    }
    rows = []
    booked = booked_layers(facts.plan.plans[0], facts.network)
    for number, placed in enumerate(booked, start=1):
        layer = known.get(placed.name)
        verdict = facts.judgement.verdicts.get(placed.name)
        rows.append({
            "number": number,
            "name": placed.name,
            "kind": layer.kind if layer else "",
            "op": layer.op if layer else "",
            "shape": [
                list(tensors[name].shape) for name in (layer.outputs if layer else ())
                if name in tensors
            ],
            "on_gpu": why.get(placed.name),
            "nodes": list(placed.nodes),
            "device": placed.device,
            "precision": placed.precision,
            "segment": placed.segment,
            "dla_ok": verdict.ok if verdict else None,
            "certainty": verdict.certainty if verdict else "",
            "reasons": [reason.to_json() for reason in verdict.reasons] if verdict else [],
            "macs": layer.macs if layer else 0,
            "predicted_us": placed.predicted_us,
            "predicted_uj": placed.predicted_uj,
            "measured": {"clock": clock, "us": times[placed.name]}
            if placed.name in times
            else None,
            "within": None if placed.name in times else within.get(placed.name),
        })  # fmt: skip
    return rows


def shape_words(row: Mapping[str, Any]) -> str:
    """Returns the shapes that a layer writes: "1x64x28x28"; "" where they are not known."""
    shapes = [text.shape(one) for one in row.get("shape") or ()]
    return ", ".join(shapes[:2]) + (", …" if shapes[2:] else "")


def board_us(row: Mapping[str, Any]) -> float:
    """Returns a layer's time on the board: measured there, else predicted; never a CPU's."""
    measured = row.get("measured") or {}
    on_board = measured.get("clock") == "board-measured"
    return float(measured["us"] if on_board else row["predicted_us"])


def by_time(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns layers, the slowest on the board first."""
    return sorted(rows, key=lambda row: (-board_us(row), -row["predicted_us"], row["number"]))


def order_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns by what ``by_time`` sorts."""
    on_board = any((row.get("measured") or {}).get("clock") == "board-measured" for row in rows)
    return "measured on the board, else predicted" if on_board else "predicted"


def sharing_words(frame: Mapping[str, Any] | None, *, short: bool = False) -> str:
    """Returns why a frame takes longer than the busiest device works; "" where it does not.

    Args:
        frame: ``frame_times`` of the plan; older documents have none.
        short: Only what sharing the memory costs.
    """
    if not frame or not frame["sharing_us"]:
        return ""
    lost = text.microseconds(frame["sharing_us"])
    if short:
        return f"{lost} of a frame's {text.microseconds(frame['period_us'])} is memory contention"
    return (
        f"a frame every {text.microseconds(frame['period_us'])}: {frame['device']} works "
        f"{text.microseconds(frame['busy_us'][frame['device']])} for it, and {lost} go to "
        "contention: the devices share the memory (predicted)"
    )


def part_rows(facts: RunFacts) -> list[dict[str, Any]]:
    """Returns what was timed as a whole: loadables and fusions of layers."""
    clock = (facts.bench or {}).get("clock", "")
    return [{**part, "clock": clock} for part in measured_parts(facts.trace)]


def device_rows(
    rows: Sequence[Mapping[str, Any]], times: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Returns layers, MACs and predicted time by device; a DLA core without work has no row.

    ``times`` are what the devices work for in a frame, from ``device_times``.
    """
    busy = {device for device, us in times.items() if us}
    devices = ["GPU", *sorted({*(row["device"] for row in rows), *busy} - {"GPU"})]
    total = sum(row["macs"] for row in rows)
    found = []
    for device in devices:
        own = [row for row in rows if row["device"] == device]
        macs = sum(row["macs"] for row in own)
        found.append({
            "device": device, "layers": len(own), "macs": macs,
            "macs_fraction": macs / total if total else 0.0,
            "predicted_us": times.get(device, 0.0),
        })  # fmt: skip
    return found


def why_not(judgement: Judgement) -> list[dict[str, Any]]:
    """Returns the reasons against the DLA by rule, the most frequent rule first.

    A fix or source that differs between layers of one rule stands with the layer.
    """
    groups: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for verdict in judgement.verdicts.values():
        if not verdict.placeable:
            for reason in verdict.reasons:
                groups.setdefault(reason.rule, []).append((verdict.layer, reason.to_json()))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "rule": rule,
            "count": len({layer for layer, _ in found}),
            "sources": list(dict.fromkeys(reason["source"] for _, reason in found)),
            "fixes": list(dict.fromkeys(reason["fix"] for _, reason in found if reason["fix"])),
            "layers": [
                {"name": layer, "message": reason["message"], "found": reason["found"],
                 "limit": reason["limit"]}
                for layer, reason in found
            ],
        }
        for rule, found in ordered
    ]  # fmt: skip
