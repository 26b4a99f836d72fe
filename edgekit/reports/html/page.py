"""Turns the report document into the words and charts of the page (the template adds none) and
lays them out as one file that runs nothing but its own script.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from edgekit.benchmark.document import write_text
from edgekit.placement.plan import exception
from edgekit.reports import charts, text
from edgekit.reports.facts import ReportedPower, built_view, flat_facts, measured_part
from edgekit.reports.html.graph import graph_view
from edgekit.reports.html.layers import layers_view, why_not_view
from edgekit.reports.html.measurement import (
    bench_view,
    power_title,
    power_view,
    timeline_view,
    trace_view,
)
from edgekit.reports.html.results import accuracy_view, bundle_view, tiles
from edgekit.reports.html.verdict import baseline_view, clock_tag, verdict_view
from edgekit.reports.layers import busy_time, sharing_words
from edgekit.reports.schema import checked
from edgekit.text import ABSENT, percent, sentence

if TYPE_CHECKING:
    from jinja2 import Environment

OBJECTIVES = {
    "latency": "lowest latency", "throughput": "highest throughput", "period": "shortest period",
    "energy": "least energy", "gpu_time": "least GPU time",
}  # fmt: skip
NOTE_GROUPS = {
    "plan": "Plan and prediction", "accuracy": "Accuracy", "measurement": "Measurement",
    "build": "Build", "run": "Model and run",
}  # fmt: skip
FOLDER = Path(__file__).parent / "templates"
STYLES = ("page_graph.css", "page_print.css")
SCRIPTS = ("page.js", "page_graph_far.js", "page_graph.js")


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _markup(svg: str) -> Any:
    """Marks a chart as HTML; every text in it was escaped by ``charts``."""
    return Markup(svg)


def _devices(placement: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the devices of each plan of a mix under its name, or those of the only plan."""
    plans = _mix(placement)
    return [
        {
            "name": f"Plan {number}, {percent(plan['share'])} of the frames" if plans else "",
            "rows": [
                {
                    "device": row["device"], "css": charts.device_class(row["device"]),
                    "layers": text.count(row["layers"]), "macs": text.macs(row["macs"]),
                    "share": percent(row["macs_fraction"] if placement["macs"] else None),
                    "time": busy_time(row, "busy_us" if plans else "predicted_us"),
                }
                for row in plan["devices"]
            ],
        }
        for number, plan in enumerate(plans or [placement], 1)
    ]  # fmt: skip


def _mix(placement: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the plans that share the frames; none for a single one."""
    plans = placement["plans"]
    return plans if len(plans) > 1 else []


def _work(placement: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the devices with their part of the MACs, in the mean of all frames."""
    plans = _mix(placement)
    if not plans:
        return list(placement["devices"])
    parts: dict[str, float] = {}
    for plan in plans:
        for row in plan["devices"]:
            share = plan["share"] * row["macs_fraction"]
            parts[row["device"]] = parts.get(row["device"], 0.0) + share
    order = sorted(parts, key=lambda name: (name != "GPU", name))
    return [{"device": name, "macs_fraction": parts[name]} for name in order]


def _shown(placement: Mapping[str, Any]) -> dict[str, str]:
    """Returns which plan of a mix graph and layers are of, and what the others use."""
    shares = placement["shares"]
    if len(shares) < 2:
        return {"plan": "", "others": ""}
    own = {row["device"] for row in placement["devices"] if row["layers"]}
    rest = [row["device"] for row in _work(placement) if row["device"] not in own]
    return {
        "plan": f"Plan 1 of {len(shares)}, {percent(shares[0])} of the frames",
        "others": f"other plans use {' and '.join(rest)}" if rest else "",
    }


def _optimality(placement: Mapping[str, Any]) -> str:
    goal = OBJECTIVES.get(placement["objective"], placement["objective"])
    if placement["optimal"]:
        wide = placement.get("extrapolated")
        what = "Proved optimal, with extrapolated times" if wide else (
            "Proved optimal"
        )  # fmt: skip
        unknown = placement.get("unknown_cost")
        less = f", {exception(unknown)}" if unknown else ""
        return f"Objective: {goal}. {what}{less}.{_given_up(placement)}"
    if not placement["gap"]:
        return f"Objective: {goal}. Nothing is proved: no layer that takes time has a cost model."
    return f"Objective: {goal}. Within {percent(placement['gap'], 2)} of the proved bound."


def _given_up(placement: Mapping[str, Any]) -> str:
    """Returns how far the plan is from the optimum that was proved; "" where it is the optimum."""
    slack = placement.get("slack")
    if not slack or not slack["given_up"]:
        return ""
    return f" The plan gives up {percent(slack['given_up'], 2)} of it (placement.slack)."


def _placement(placement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "chart": _markup(charts.shares(_work(placement)) if placement["macs"] else ""),
        "shown": _shown(placement),
        "mix": [
            {"device": text.clean(row["device"]), "css": charts.device_class(row["device"])}
            for row in _work(placement)
        ] if _mix(placement) else [],
        "devices": _devices(placement),
        "optimality": _optimality(placement),
        "sharing": _capital(sharing_words(placement.get("frame"))),
        "transitions": text.count(placement["transitions"]),
        "segments": text.count(placement["segments"]),
        "capable": text.count(placement["dla_capable_layers"]),
        "disputed": text.count(placement["disputed_layers"]),
        "pools": [
            {"name": _capital(text.POOLS.get(name, text.clean(name))), "size": text.size(value)}
            for name, value in placement["pools"].items()
        ],
        "limits": [
            text.size(limit) if (limit := placement["pool_limits"].get(pool)) else ABSENT
            for pool in text.POOLS
        ],
        "loadables": [
            {
                "core": f"DLA{row['core']}", "css": charts.device_class(f"DLA{row['core']}"),
                "layers": text.count(row["layers"]), "first": text.clean(row["first"]),
                "last": text.clean(row["last"]),
                "memory": [
                    _pool(row["memory"].get(pool), placement["pool_limits"].get(pool))
                    for pool in text.POOLS
                ],
            }
            for row in placement["loadables"]
        ],
        "plans": [percent(share) for share in placement["shares"]]
        if len(placement["shares"]) > 1
        else [],
    }  # fmt: skip


def _pool(need: int | None, limit: int | None) -> dict[str, Any]:
    """Returns a pool of a loadable: its size, and a bar against its limit where that is known."""
    if need is None or not limit:
        return {"size": text.size(need), "share": "", "bar": "", "over": False}
    part = need / limit
    return {
        "size": text.size(need), "share": percent(part, 0), "over": part > 1,
        "bar": _markup(charts.limit_bar(part, "fill-plan")),
    }  # fmt: skip


def _prediction(predicted: Mapping[str, Any]) -> dict[str, Any]:
    slowest = max((row["latency_us"] or 0.0 for row in predicted["rows"]), default=0.0)
    rows = []
    for row in predicted["rows"]:
        latency = row["latency_us"]
        rows.append({
            "label": row["label"] + (
                " (breaks the limits)" if row.get("keeps") is False else ""
            ), "own": row["key"] == "plan", "possible": row.get("possible", latency is not None),
            "latency": text.microseconds(latency),
            "bar": _markup(charts.bar(
                (latency or 0.0) / slowest if slowest else 0.0,
                "fill-plan" if row["key"] == "plan" else "fill-other",
            )),
            "throughput": text.significant(row.get("throughput_qps")),
            "energy": text.energy(row.get("energy_uj")),
            "gpu": text.microseconds(row.get("gpu_us")),
        })  # fmt: skip
    return {
        "rows": rows, "model_error": text.clean(predicted["model_error"]),
        "measured": "" if predicted.get("source", "") in ("", "predicted") else
        text.clean(text.prediction_title(predicted["source"], rate_hz=predicted.get("rate_hz"))),
        "energy": _capital(text.energy_words(predicted.get("rate_hz"))),
        "advantage": text.clean(predicted.get("advantage", "")),
    }  # fmt: skip


def _rewrites(rewrites: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "name": text.clean(rewrite["name"]),
            "reason": text.clean(rewrite.get("reason", "")),
            "nodes": text.clean(", ".join(map(str, rewrite.get("nodes") or ()))),
            "proof": ABSENT if error is None else f"{error:.1e}" if error else "0",
        }
        for rewrite in rewrites
        for error in [rewrite.get("max_error")]
    ]


def _answer(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns the sentences that stand first; older documents have one."""
    found = document.get("answer") or [{"words": document["headline"], "ok": None}]
    css = {True: "yes", False: "no"}
    return [{"words": text.clean(one["words"]), "css": css.get(one["ok"], "")} for one in found]


def _notes(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    groups = document.get("note_groups") or {"run": document["notes"]}
    return [
        {
            "title": NOTE_GROUPS.get(name, text.clean(name)),
            "notes": [sentence(text.clean(note)) for note in notes],
        }
        for name, notes in groups.items()
        if notes
    ]


def _sections(document: Mapping[str, Any], power: ReportedPower | None) -> dict[str, str]:
    """Returns the sections that the page has, with their headings: navigation has the same."""
    bench = document["bench"] or {}
    on_cpu = bool(bench.get("latency_ms")) and bench["clock"] == "cpu-measured"
    found = {
        "verdict": "Checks", "placement": "Placement", "prediction": "Prediction",
        "notes": "Notes" if document["notes"] else "", "timeline": "Timeline",
        "times": "Time by layer", "measurement": "CPU time" if on_cpu else "Measurement",
        "power": power_title(power), "accuracy": "Accuracy",
        "baseline": "Baseline" if document["baseline"] else "",
        "built": "Build" if document["built"] else "", "bundle": "Bundle",
        "why-not": "Why on the GPU", "layers": "Layers", "run": "Run",
    }  # fmt: skip
    return {name: title for name, title in found.items() if title}


def page_view(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every text, chart and list that the page shows, in the template's own shape."""
    target = document["target"]
    board = document["board"]
    power = document["power"]
    power = power and ReportedPower.model_validate(power)
    numbers = {row["name"]: row["number"] for row in document["layers"]}
    return {
        "title": text.clean(document["name"]),
        "model": text.clean(document["model"]),
        "facts": [
            text.clean(fact)
            for fact in (
                target["title"], text.mode_words(document), document["precision"].upper(),
                f"TensorRT {document['tensorrt']}", document["mode"],
                f"{document['backend']} backend" if document["backend"] else "",
            )
            if fact
        ],
        "answer": _answer(document),
        "sections": _sections(document, power),
        "verdict": verdict_view(document["verdict"]),
        "tiles": [
            {**tile, "clock": clock_tag(tile["clock"]) if tile["clock"] else None}
            for tile in tiles(document)
        ],
        "graph": graph_view(document),
        "placement": _placement(document["placement"]),
        "prediction": _prediction(document["predicted"]),
        "timeline": timeline_view(
            document["timeline"], {one["segment"] for one in document["graph"]["segments"]}
        ),
        "accuracy": accuracy_view(document["accuracy"], document["calibration"]),
        "bundle": bundle_view(document["bundle"], document["refit"]),
        "built": built_view(document["built"]),
        "bench": bench_view(measured_part(document)),
        "power": power_view(power),
        "baseline": baseline_view(document["baseline"]),
        "trace": trace_view(document["trace"]),
        "why_not": why_not_view(document["why_not"], numbers),
        "why_gpu": why_not_view(document.get("why_gpu") or (), numbers),
        "layers": layers_view(document["layers"], document["measured_parts"]),
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
        "environment": [
            {"name": name, "value": value} for name, value in flat_facts(document["environment"])
        ],
        "config": "\n".join(text.clean(line) for line in document["config"].splitlines()),
        "notes": _notes(document),
    }  # fmt: skip


def _inline(*names: str) -> tuple[str, str]:
    """Returns files' text for inlining, and its source expression for the security policy."""
    text = "".join((FOLDER / name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"'sha256-{digest}'"


def render_html(document: Mapping[str, Any]) -> str:
    """Returns the page for an ``edgekit.report/1`` document.

    The page is self-contained: styles, script and charts are inline, and its Content Security
    Policy allows only those two by their digests, so that nothing that comes from a model could
    run or be fetched even if it got through the escaping.

    Raises:
        DataError: The document does not fit the schema of ``edgekit.report/1``.
    """
    view = page_view(checked(document))
    return page_of("page.html.j2", view, early="page_theme.js", late=SCRIPTS)


def page_of(
    template: str, view: Mapping[str, Any], *, early: str = "", late: Sequence[str] = ()
) -> str:
    """Returns a template's page with the style sheet and its scripts inside.

    Args:
        template: File name.
        view: What it shows.
        early: The script that runs before anything is drawn.
        late: Those that run, as one, when the page is there.
    """
    style, style_source = _inline("page.css", *STYLES)
    codes = [_inline(*names) for names in ((early,) if early else (), late) if names]
    allowed = " ".join(source for _, source in codes) or "'none'"
    policy = (
        f"default-src 'none'; style-src {style_source}; script-src {allowed}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    layout = _environment().get_template(template)
    page = layout.render(
        view=view,
        style=Markup(style),
        scripts=[Markup(code) for code, _ in codes],
        policy=Markup(policy),
    )
    return page.rstrip() + "\n"


@functools.cache
def _environment() -> Environment:
    """Where the templates lie; compiled once a process, which takes longer than to fill them."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write_report(document: Mapping[str, Any], path: Path) -> None:
    """Writes the page to ``path``, whole or not at all.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    # lone surrogates cannot be written; `clean` has escaped them in names
    write_text(path, render_html(document))
