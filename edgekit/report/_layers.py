"""The report's layers, devices and reasons, joined from plan, network and judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.report._measured import layer_times, measured_parts

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.report._types import RunFacts

__all__ = ["by_time", "device_rows", "layer_rows", "part_rows", "why_not"]


def layer_rows(facts: RunFacts) -> list[dict[str, Any]]:
    """Returns one row a layer in graph order: place, verdict, prediction and size."""
    from edgekit.placement import booked_layers

    times = layer_times(facts.trace)
    clock = (facts.bench or {}).get("clock", "")
    within = {
        name: {key: part[key] for key in ("name", "clock", "us")} | {"layers": len(part["layers"])}
        for part in reversed(part_rows(facts))
        for name in part["layers"]
    }
    known = {layer.name: layer for layer in facts.network.layers}
    rows = []
    booked = booked_layers(facts.plan.plans[0], facts.network)
    for number, placed in enumerate(booked, start=1):
        layer = known.get(placed.name)
        verdict = facts.judgement.verdicts.get(placed.name)
        rows.append({
            "number": number,
            "name": placed.name,
            "kind": layer.kind if layer else "",
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


def by_time(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns layers, the slowest first: by measured time where there is one, else by predicted."""
    return sorted(
        rows,
        key=lambda row: (
            -(row["measured"]["us"] if row.get("measured") else row["predicted_us"]),
            -row["predicted_us"],
            row["number"],
        ),
    )


def part_rows(facts: RunFacts) -> list[dict[str, Any]]:
    """Returns what was timed as a whole: loadables and fusions of layers."""
    clock = (facts.bench or {}).get("clock", "")
    return [{**part, "clock": clock} for part in measured_parts(facts.trace)]


def device_rows(rows: Sequence[dict[str, Any]], dla_cores: int) -> list[dict[str, Any]]:
    """Returns layers, MACs and predicted time by device; every device of the target has a row."""
    devices = ["GPU", *(f"DLA{core}" for core in range(dla_cores))]
    devices += sorted({row["device"] for row in rows} - set(devices))
    total = sum(row["macs"] for row in rows)
    found = []
    for device in devices:
        own = [row for row in rows if row["device"] == device]
        macs = sum(row["macs"] for row in own)
        found.append({
            "device": device, "layers": len(own), "macs": macs,
            "macs_fraction": macs / total if total else 0.0,
            "predicted_us": sum(row["predicted_us"] for row in own),
        })  # fmt: skip
    return found


def why_not(judgement: Judgement) -> list[dict[str, Any]]:
    """Returns the reasons against the DLA by rule, the most frequent rule first.

    A fix or source that differs between layers of one rule stands with the layer.
    """
    groups: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for verdict in judgement.verdicts.values():
        if not verdict.ok:
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
