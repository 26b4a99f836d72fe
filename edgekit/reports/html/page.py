"""Turns the report document into the words and charts of the page (the template adds none), and
renders one HTML file that runs only its own script.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from edgekit.files import write_text
from edgekit.placement.plan import exception_text
from edgekit.reports import charts, text
from edgekit.reports.buckets import HEAD, SIDES, bucket_rows, range_lines
from edgekit.reports.facts import flatten_facts
from edgekit.reports.html.graph import graph_view
from edgekit.reports.html.layers import layers_view, modules_view, why_not_view
from edgekit.reports.html.measurement import (
    bench_view,
    power_title,
    power_view,
    timeline_view,
    trace_view,
)
from edgekit.reports.html.results import accuracy_view, built_view, bundle_view, tiles
from edgekit.reports.html.verdict import baseline_view, verdict_view
from edgekit.reports.html.view import View
from edgekit.reports.layers import busy_time, sharing_words
from edgekit.reports.schema import (
    DeviceShare,
    Placement,
    PlanDevice,
    Predicted,
    Report,
    ReportedPlanShare,
    ReportedRewrite,
)
from edgekit.text import ABSENT, percent, sentence

if TYPE_CHECKING:
    from jinja2 import Environment

    from edgekit.placement.cuts import Cut

OBJECTIVES = {
    "latency": "lowest latency",
    "throughput": "highest throughput",
    "period": "shortest period",
    "energy": "least energy",
    "gpu_time": "least GPU time",
}
NOTE_GROUPS = {
    "plan": "Plan and prediction",
    "accuracy": "Accuracy",
    "measurement": "Measurement",
    "build": "Build",
    "run": "Model and run",
}
FOLDER = Path(__file__).parent / "templates"
STYLES = ("page_graph.css", "page_print.css")
SCRIPTS = ("page.js", "page_graph_far.js", "page_graph.js")


def _capitalise(name: str) -> str:
    return name[:1].upper() + name[1:]


def _devices(placement: Placement) -> list[View]:
    """Returns the devices of each plan of a mix under its name, or those of the only plan."""
    if plans := _mix(placement):
        return [
            {
                "name": f"Plan {number}, {percent(plan.share)} of the frames",
                "rows": [_device(placement, row, row.busy_us) for row in plan.devices],
            }
            for number, plan in enumerate(plans, 1)
        ]
    rows = [_device(placement, row, row.predicted_us) for row in placement.devices]
    return [{"name": "", "rows": rows}]


def _device(placement: Placement, row: DeviceShare | PlanDevice, us: float | None) -> View:
    return {
        "device": row.device,
        "css": charts.device_class(row.device),
        "layers": text.count(row.layers),
        "macs": text.macs(row.macs),
        "share": percent(row.macs_fraction if placement.macs else None),
        "time": busy_time(us, row.layers),
    }


def _mix(placement: Placement) -> list[ReportedPlanShare]:
    """Returns the plans that share the frames; empty for a single plan."""
    return placement.plans if len(placement.plans) > 1 else []


def _mac_shares(placement: Placement) -> dict[str, float]:
    """Returns each device's fraction of the MACs, as mean over all frames."""
    plans = _mix(placement)
    if not plans:
        return {row.device: row.macs_fraction for row in placement.devices}
    parts: dict[str, float] = {}
    for plan in plans:
        for row in plan.devices:
            parts[row.device] = parts.get(row.device, 0.0) + plan.share * row.macs_fraction
    return {name: parts[name] for name in sorted(parts, key=lambda name: (name != "GPU", name))}


def _shown_plan(placement: Placement) -> dict[str, str]:
    """Returns the plan of a mix that graph and layers show, and the devices of the other plans."""
    shares = placement.shares
    if len(shares) < 2:
        return {"plan": "", "others": ""}
    own = {row.device for row in placement.devices if row.layers}
    rest = [device for device in _mac_shares(placement) if device not in own]
    return {
        "plan": f"Plan 1 of {len(shares)}, {percent(shares[0])} of the frames",
        "others": f"other plans use {' and '.join(rest)}" if rest else "",
    }


def _optimality(placement: Placement) -> str:
    goal = OBJECTIVES.get(placement.objective, placement.objective)
    if placement.optimal:
        wide = ", with extrapolated times" if placement.extrapolated else ""
        less = f", {exception_text(placement.unknown_cost)}" if placement.unknown_cost else ""
        slack = placement.slack
        given_up = slack.given_up if slack else 0.0
        more = f" The plan gives up {percent(given_up, 2)} (placement.slack)." if given_up else ""
        return f"Objective: {goal}. Proved optimal{wide}{less}.{more}"
    if not placement.gap:
        return f"Objective: {goal}. No proof: no layer that takes time has a cost model."
    return f"Objective: {goal}. Within {percent(placement.gap, 2)} of the proved bound."


def _placement(placement: Placement) -> View:
    limits = placement.pool_limits
    return {
        "chart": Markup(charts.shares_bar(_mac_shares(placement)) if placement.macs else ""),
        "shown": _shown_plan(placement),
        "mix": [
            {"device": text.clean(device), "css": charts.device_class(device)}
            for device in _mac_shares(placement)
        ]
        if _mix(placement)
        else [],
        "devices": _devices(placement),
        "optimality": _optimality(placement),
        "sharing": _capitalise(sharing_words(placement.frame)),
        "transitions": text.count(placement.transitions),
        "segments": text.count(placement.segments),
        "capable": text.count(placement.dla_capable_layers),
        "disputed": text.count(placement.disputed_layers),
        "pools": [
            {"name": _capitalise(text.POOLS.get(name, text.clean(name))), "size": text.size(value)}
            for name, value in placement.pools.items()
        ],
        "limits": [
            text.size(limit) if (limit := limits.get(pool)) else ABSENT for pool in text.POOLS
        ],
        "loadables": [
            {
                "core": f"DLA{row.core}",
                "css": charts.device_class(f"DLA{row.core}"),
                "layers": text.count(row.layers),
                "first": text.clean(row.first),
                "last": text.clean(row.last),
                "memory": [_pool(row.memory.get(pool), limits.get(pool)) for pool in text.POOLS],
            }
            for row in placement.loadables
        ],
        "plans": [percent(share) for share in placement.shares]
        if len(placement.shares) > 1
        else [],
    }


def _shapes(report: Report) -> View | None:
    """Returns the listed shapes of a range; None for a report of one shape."""
    if not report.buckets or report.range is None:
        return None
    sides = ["num" if side == "r" else "" for side in SIDES]

    def cells(row: Iterable[str]) -> list[View]:
        return [{"css": css, "text": cell} for css, cell in zip(sides, row, strict=True)]

    return {
        "head": cells(map(_capitalise, HEAD)),
        "rows": [cells(row) for row in bucket_rows(report.buckets)],
        "lines": [
            _capitalise(sentence(line)) for line in range_lines(report.buckets, report.range)
        ],
    }


def _pool(need: int | None, limit: int | None) -> View:
    """Returns a pool of a loadable: its size, and a bar against its limit if known."""
    if need is None or not limit:
        return {"size": text.size(need), "share": "", "bar": "", "over": False}
    part = need / limit
    return {
        "size": text.size(need),
        "share": percent(part, 0),
        "over": part > 1,
        "bar": Markup(charts.limit_bar(part, "fill-plan")),
    }


def _prediction(predicted: Predicted) -> View:
    slowest = max((row.latency_us or 0.0 for row in predicted.rows), default=0.0)
    rows = [
        {
            "label": row.label + (" (breaks the limits)" if row.keeps is False else ""),
            "own": row.key == "plan",
            "possible": row.possible,
            "latency": text.microseconds(row.latency_us),
            "bar": Markup(
                charts.bar(
                    (row.latency_us or 0.0) / slowest if slowest else 0.0,
                    "fill-plan" if row.key == "plan" else "fill-other",
                )
            ),
            "throughput": text.significant(row.throughput_qps),
            "energy": text.energy(row.energy_uj),
            "gpu": text.microseconds(row.gpu_us),
        }
        for row in predicted.rows
    ]
    return {
        "rows": rows,
        "model_error": text.clean(predicted.model_error),
        "measured": ""
        if predicted.source in ("", "predicted")
        else text.clean(text.prediction_title(predicted.source, rate_hz=predicted.rate_hz)),
        "energy": _capitalise(text.energy_words(predicted.rate_hz)),
        "advantage": text.clean(predicted.advantage),
    }


def _rewrites(rewrites: Sequence[ReportedRewrite]) -> list[View]:
    return [
        {
            "name": text.clean(rewrite.name),
            "reason": text.clean(rewrite.reason),
            "nodes": text.clean(", ".join(rewrite.nodes)),
            "proof": ABSENT if error is None else f"{error:.1e}" if error else "0",
        }
        for rewrite in rewrites
        for error in [rewrite.max_error]
    ]


def _cuts(cuts: Sequence[Cut]) -> list[View]:
    """Returns the proposed cuts: the times of part and rest, and the YAML line for each cut."""
    return [
        {
            "number": text.count(number),
            "layers": text.count(cut.layers),
            "macs": percent(cut.macs_fraction),
            "loadables": text.count(cut.loadables),
            "latency": text.microseconds(cut.whole.latency_us),
            "throughput": text.significant(cut.whole.throughput_qps),
            "gpu": text.microseconds(cut.whole.gpu_us),
            "energy": text.energy(cut.whole.energy_uj),
            "modules": text.clean(", ".join(cut.modules)),
            "yaml": text.clean(cut.yaml),
        }
        for number, cut in enumerate(cuts, 1)
    ]


def _notes(report: Report) -> list[View]:
    # older documents have no groups
    groups = report.note_groups or {"run": report.notes}
    return [
        {
            "title": NOTE_GROUPS.get(name, text.clean(name)),
            "notes": [sentence(text.clean(note)) for note in notes],
        }
        for name, notes in groups.items()
        if notes
    ]


def _sections(report: Report) -> dict[str, str]:
    """Returns the page's sections with their headings; the navigation has the same."""
    bench = report.bench
    on_cpu = bench is not None and bool(bench.latency_ms) and bench.clock == "cpu-measured"
    found = {
        "verdict": "Checks",
        "placement": "Placement",
        "prediction": "Prediction",
        "notes": "Notes" if report.notes else "",
        "timeline": "Timeline",
        "times": "Time by layer",
        "measurement": "CPU time" if on_cpu else "Measurement",
        "power": power_title(report.power),
        "accuracy": "Accuracy",
        "baseline": "Baseline" if report.baseline else "",
        "built": "Build" if report.built else "",
        "bundle": "Bundle",
        "why-not": "Why on the GPU",
        "layers": "Layers",
        "run": "Run",
    }
    return {name: title for name, title in found.items() if title}


def page_view(report: Report) -> View:
    """Returns all texts, charts and lists of the page, by the template's names."""
    board = report.board
    numbers = {row.name: row.number for row in report.layers}
    css = {True: "yes", False: "no", None: ""}
    return {
        "title": text.clean(report.name),
        "model": text.clean(report.model),
        "facts": [
            text.clean(fact)
            for fact in (
                report.target.title,
                text.mode_words(report),
                report.precision.upper(),
                f"TensorRT {report.tensorrt}",
                report.mode,
                f"{report.backend} backend" if report.backend else "",
            )
            if fact
        ],
        "answer": [
            {"words": text.clean(answer.words), "css": css[answer.ok]}
            for answer in report.answers()
        ],
        "sections": _sections(report),
        "verdict": verdict_view(report.verdict),
        "tiles": tiles(report),
        "graph": graph_view(report),
        "placement": _placement(report.placement),
        "shapes": _shapes(report),
        "prediction": _prediction(report.predicted),
        "timeline": timeline_view(
            report.timeline, {segment.segment for segment in report.graph.segments}
        ),
        "accuracy": accuracy_view(report.accuracy, report.calibration),
        "bundle": bundle_view(report.bundle, report.refit),
        "built": built_view(report.built),
        "bench": bench_view(report.bench),
        "power": power_view(report.power),
        "baseline": baseline_view(report.baseline),
        "trace": trace_view(report.trace),
        "why_not": why_not_view(report.why_not, numbers),
        "why_gpu": why_not_view(report.why_gpu, numbers),
        "modules": modules_view(report.modules),
        "layers": layers_view(report.layers, report.measured_parts),
        "rewrites": _rewrites(report.rewrites),
        "cuts": _cuts(report.cuts),
        "steps": [
            {
                "name": text.clean(step.name),
                "status": text.clean(step.status),
                "seconds": text.seconds(step.seconds),
            }
            for step in report.steps
        ],
        "files": [
            {"name": text.clean(name), "path": text.clean(path)}
            for name, path in report.files.items()
        ],
        "board": [text.clean(value) for value in board.to_json().values()] if board else [],
        "environment": [
            {"name": name, "value": value} for name, value in flatten_facts(report.environment)
        ],
        "config": "\n".join(text.clean(line) for line in report.config.splitlines()),
        "notes": _notes(report),
    }


def _inline(*names: str) -> tuple[str, str]:
    """Returns files' text for inlining, and its source expression for the security policy."""
    text = "".join((FOLDER / name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"'sha256-{digest}'"


def render_html(report: Report) -> str:
    """Returns a report's page.

    The page is self-contained: styles, script and charts are inline. Its Content Security Policy
    allows only these styles and scripts by their digests, so that a model's text could not run or
    be fetched even if escaping failed.
    """
    return render_template("page.html.j2", page_view(report), early="page_theme.js", late=SCRIPTS)


def render_template(template: str, view: View, *, early: str = "", late: Sequence[str] = ()) -> str:
    """Returns a template's page with the style sheet and its scripts inside.

    Args:
        template: File name.
        view: The template's values.
        early: The script that runs before the page is drawn.
        late: Scripts that run, joined, when the page is loaded.
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
    """Returns the templates, compiled once per process: compiling takes longer than rendering."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write_report(report: Report, path: Path) -> None:
    """Writes a report's page to ``path``, whole or not at all.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    # lone surrogates cannot be written; `clean` has escaped them in names
    write_text(path, render_html(report))
