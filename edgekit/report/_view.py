"""Turns the report document into the words and charts of the page; the template adds none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report import _charts as charts
from edgekit.report import _text as text
from edgekit.report._built import built_view
from edgekit.report._results import accuracy_view, bench_view, bundle_view, tiles

__all__ = ["page_view"]

POOLS = {
    "managed_sram": "Managed SRAM", "local_dram": "Local DRAM", "global_dram": "Global DRAM",
}  # fmt: skip
OBJECTIVES = {
    "latency": "lowest latency", "throughput": "highest throughput", "period": "shortest period",
    "energy": "least energy", "gpu_time": "least GPU time",
}  # fmt: skip
DLA_WORDS = {True: "yes", False: "no", None: "–"}


def _markup(svg: str) -> Any:
    """Marks a chart as HTML; every text in it was escaped by `_charts`."""
    from markupsafe import Markup

    return Markup(svg)


def _devices(placement: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "device": row["device"], "css": charts.device_class(row["device"]),
            "layers": text.count(row["layers"]), "macs": text.macs(row["macs"]),
            "share": text.percent(row["macs_fraction"]),
            "time": text.microseconds(row["predicted_us"]),
        }
        for row in placement["devices"]
    ]  # fmt: skip


def _optimality(placement: Mapping[str, Any]) -> str:
    goal = OBJECTIVES.get(placement["objective"], placement["objective"])
    if placement["optimal"]:
        return f"Objective: {goal}. Optimal under the model (proved)."
    return f"Objective: {goal}. Within {text.percent(placement['gap'], 2)} of the proved bound."


def _placement(placement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "chart": _markup(charts.shares(placement["devices"])),
        "devices": _devices(placement),
        "optimality": _optimality(placement),
        "transitions": text.count(placement["transitions"]),
        "segments": text.count(placement["segments"]),
        "capable": text.count(placement["dla_capable_layers"]),
        "disputed": text.count(placement["disputed_layers"]),
        "pools": [
            {"name": POOLS.get(name, name), "size": text.size(value)}
            for name, value in placement["pools"].items()
        ],
        "loadables": [
            {
                "core": f"DLA{row['core']}", "css": charts.device_class(f"DLA{row['core']}"),
                "layers": text.count(row["layers"]), "first": text.clean(row["first"]),
                "last": text.clean(row["last"]),
                "memory": [text.size(row["memory"][pool]) for pool in POOLS],
            }
            for row in placement["loadables"]
        ],
        "plans": [text.percent(share) for share in placement["shares"]]
        if len(placement["shares"]) > 1
        else [],
    }  # fmt: skip


def _prediction(predicted: Mapping[str, Any]) -> dict[str, Any]:
    slowest = max((row["latency_us"] or 0.0 for row in predicted["rows"]), default=0.0)
    rows = []
    for row in predicted["rows"]:
        latency = row["latency_us"]
        rows.append({
            "label": row["label"] + (
                " (breaks what was asked)" if row.get("keeps") is False else ""
            ), "own": row["key"] == "plan", "possible": latency is not None,
            "latency": text.microseconds(latency),
            "bar": _markup(charts.bar(
                (latency or 0.0) / slowest if slowest else 0.0,
                "fill-plan" if row["key"] == "plan" else "fill-other",
            )),
            "throughput": text.significant(row.get("throughput_qps")),
            "energy": text.energy(row.get("energy_uj")),
            "gpu": text.microseconds(row.get("gpu_us")),
        })  # fmt: skip
    return {"rows": rows, "model_error": text.clean(predicted["model_error"])}


def _timeline(timeline: Mapping[str, Any]) -> dict[str, Any]:
    end = timeline["end_us"]
    plans = len({slot["plan"] for slot in timeline["slots"]})
    return {
        "tracks": [
            {"device": device, "css": charts.device_class(device),
             "chart": _markup(charts.track(timeline, device))}
            for device in timeline["tracks"]
        ],
        "ticks": [text.microseconds(end * step / 4) for step in range(5)],
        "title": "Timeline of a frame of each plan" if plans > 1 else "Timeline of a frame",
        "empty": end <= 0,
    }  # fmt: skip


def _layers(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    slowest = max((row["predicted_us"] for row in rows), default=0.0)
    return [
        {
            "number": row["number"], "name": text.clean(row["name"]),
            "kind": text.clean(row["kind"]),
            "device": row["device"], "css": charts.device_class(row["device"]),
            "precision": row["precision"], "segment": row["segment"],
            "dla": "disputed" if row["certainty"] == "disputed" else DLA_WORDS[row["dla_ok"]],
            "reasons": [
                {"message": text.clean(reason["message"]), "fix": text.clean(reason["fix"])}
                for reason in row["reasons"]
            ],
            "macs": text.macs(row["macs"]), "macs_value": row["macs"],
            "time": text.microseconds(row["predicted_us"]), "time_value": row["predicted_us"],
            "bar": _markup(charts.bar(
                row["predicted_us"] / slowest if slowest > 0 else 0.0,
                f"fill-{charts.device_class(row['device'])}",
            )),
        }
        for row in rows
    ]  # fmt: skip


def _why_not(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "rule": text.clean(group["rule"]),
            "count": text.plural(group["count"], "layer"),
            "fixes": [text.clean(fix) for fix in group["fixes"]],
            "sources": [text.clean(source) for source in group["sources"]],
            "layers": [
                {key: text.clean(layer[key]) for key in ("name", "message", "found", "limit")}
                for layer in group["layers"]
            ],
        }
        for group in groups
    ]


def _pairs(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Flattens nested facts to "a.b" names."""
    rows: list[dict[str, str]] = []
    for key, value in facts.items():
        if isinstance(value, Mapping):
            rows += [
                {"name": f"{text.clean(key)}.{row['name']}", "value": row["value"]}
                for row in _pairs(value)
            ]
        elif isinstance(value, list | tuple):
            rows.append({"name": text.clean(key), "value": text.clean(", ".join(map(str, value)))})
        else:
            rows.append({"name": text.clean(key), "value": text.clean(value)})
    return rows


def _rewrites(rewrites: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "name": text.clean(rewrite["name"]),
            "reason": text.clean(rewrite.get("reason", "")),
            "nodes": text.clean(", ".join(map(str, rewrite.get("nodes") or ()))),
            "proof": text.ABSENT if error is None else f"{error:.1e}",
        }
        for rewrite in rewrites
        for error in [rewrite.get("max_error")]
    ]


def page_view(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every text, chart and list that the page shows, in the template's own shape."""
    target = document["target"]
    board = document["board"]
    return {
        "title": text.clean(document["name"]),
        "model": text.clean(document["model"]),
        "facts": [
            text.clean(fact)
            for fact in (
                target["title"], document["power_mode"], document["precision"].upper(),
                f"TensorRT {document['tensorrt']}", document["mode"],
                f"{document['backend']} backend" if document["backend"] else "",
            )
            if fact
        ],
        "headline": text.clean(document["headline"]),
        "tiles": tiles(document),
        "placement": _placement(document["placement"]),
        "prediction": _prediction(document["predicted"]),
        "timeline": _timeline(document["timeline"]),
        "accuracy": accuracy_view(document["accuracy"], document["calibration"]),
        "bundle": bundle_view(document["bundle"], document["refit"]),
        "built": built_view(document["built"]),
        "bench": bench_view(document["bench"]),
        "why_not": _why_not(document["why_not"]),
        "layers": _layers(document["layers"]),
        "layer_count": text.plural(len(document["layers"]), "layer"),
        "rewrites": _rewrites(document["rewrites"]),
        "steps": [
            {
                "name": text.clean(step["name"]), "status": text.clean(step["status"]),
                "seconds": text.seconds(step.get("seconds")),
            }
            for step in document["steps"]
        ],
        "files": [
            {"name": text.clean(name), "path": text.clean(path)}
            for name, path in document["files"].items()
        ],
        "board": [text.clean(value) for value in board.values()] if board else [],
        "environment": _pairs(document["environment"]),
        "config": "\n".join(text.clean(line) for line in document["config"].splitlines()),
        "notes": [text.clean(note) for note in document["notes"]],
    }  # fmt: skip
