"""The measurement on the page: the timeline, latencies, phases and streams; power, temperatures,
load, clocks and energy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from markupsafe import Markup

from edgekit.benchmark.document import ReportedBench
from edgekit.benchmark.energy import Energy, Power
from edgekit.reports import charts, text
from edgekit.reports.facts import (
    cost_facts,
    flatten_facts,
    footnote_words,
    latency_shown,
    serving_words,
)
from edgekit.reports.html.verdict import clock_tag
from edgekit.reports.html.view import View
from edgekit.reports.schema import (
    Line,
    ReportedPower,
    Slot,
    Timeline,
    TraceSummary,
)
from edgekit.text import ABSENT, counted, percent
from edgekit_device.benchmark.measurement import UsedRuntime
from edgekit_device.protocol.codec import write

PHASES = {
    "enqueue": "enqueue",
    "h2d": "to the device (H2D)",
    "compute": "compute",
    "d2h": "from the device (D2H)",
    "host": "host work",
}
_COLUMNS = ("mean", "median", "p99", "max")
_GROUPS = (
    ("rails_mw", "Power by rail", "mW"),
    ("temperatures_c", "Temperature", "°C"),
    ("load_percent", "Load", "%"),
    ("clocks_mhz", "Clocks", "MHz"),
)
_BASELINES = {
    "idle": "over idle: power above the level before the warm-up",
    "floor": "idle power was not sampled: power above the lowest value in the measurement",
}
_REST = {"floor": ("Lowest", "Over lowest")}


def timeline_view(timeline: Timeline, linked: Collection[int] = ()) -> View:
    """Returns the predicted frame, and next to it the measured frame.

    Both have the same scale if both are the board's; a CPU's time is no board time. The slots of
    segments in ``linked`` are links to their rows in the table of segments.
    """
    end, measured = timeline.end_us, timeline.measured
    on_board = measured is not None and measured.clock == "board-measured"
    if measured and on_board:
        end = max(end, measured.end_us)
    plans = len({slot.plan for slot in timeline.slots})
    found = [_frame(timeline.tracks, timeline.slots, end, "predicted", linked)]
    if measured:
        # a CPU's time is not a board's: it has its own scale
        own = end if on_board else measured.end_us
        found.append(_frame(timeline.tracks, measured.slots, own, measured.clock, linked))
    return {
        "frames": found,
        "one_scale": on_board,
        "title": "one frame of each plan" if plans > 1 else "one frame",
        "empty": timeline.end_us <= 0 and not measured,
    }


def _frame(
    tracks: Sequence[str], slots: Sequence[Slot], end: float, clock: str, linked: Collection[int]
) -> View:
    # each device with work has a track, even if the target lacks it: no time is hidden
    at_work = {slot.device for slot in slots}
    tracks = [track for track in dict.fromkeys([*tracks, *at_work]) if track in at_work]
    return {
        "clock": clock_tag(clock),
        "tracks": [
            {
                "device": text.clean(device),
                "css": charts.device_class(device),
                "chart": Markup(charts.track(slots, device, end, clock, linked)),
            }
            for device in tracks
        ],
        "ticks": [text.microseconds(end * step / 4) for step in range(5)],
    }


def trace_view(trace: TraceSummary | None) -> View | None:
    """Returns the trace's file and contents, and its measured times that belong to no layer."""
    if trace is None:
        return None
    return {
        "file": text.clean(trace.file or ""),
        "words": f"{counted(trace.events, 'event')}, {counted(trace.frames, 'measured frame')}",
        "unbooked": [
            {
                "what": text.clean(part.what),
                "time": text.microseconds(part.us),
                "nodes": counted(part.nodes, "node"),
            }
            for part in trace.unbooked
        ],
    }


def bench_view(bench: ReportedBench | None) -> View | None:
    """Returns the measurement with its histogram; None without a measurement."""
    if not bench or not (latency := bench.latency_ms):
        return None
    drawing = bench.histogram
    settings, runtime = write(bench.settings) or {}, bench.runtime or UsedRuntime()
    shown = latency_shown(bench)
    columns = [key for key in _COLUMNS if key in shown]
    return {
        "on_cpu": bench.clock == "cpu-measured",
        "clock": clock_tag(bench.clock or ""),
        "note": text.clean(bench.note),
        "release": serving_words(bench),
        "latency": [
            {"name": name, "value": text.measured_time(latency[key])} for key, name in shown.items()
        ],
        "few": footnote_words(bench),
        "facts": [{"name": n, "value": text.clean(v)} for n, v in _bench_facts(bench) if v],
        "phase_head": [shown[key] if key == "p99" else key for key in columns],
        "phases": [
            {"name": name, "cells": [text.measured_time(times.get(key)) for key in columns]}
            for phase, name in PHASES.items()
            if (times := (bench.phases_ms or {}).get(phase))
        ],
        "flags": [
            {"name": name, "value": value}
            for name, value in flatten_facts(
                {
                    **settings,
                    "library": runtime.library,
                    "version": runtime.version,
                    **(runtime.flags or {}),
                }
            )
        ],
        "histogram": Markup(charts.histogram(drawing.counts, "Distribution of the latencies"))
        if drawing
        else "",
        "low": text.measured_time(drawing.low_ms) if drawing else "",
        "high": text.measured_time(drawing.high_ms) if drawing else "",
    }


def _qps(value: float | None) -> str:
    return f"{text.significant(value)} inferences/s"


def _bench_facts(bench: ReportedBench) -> Iterable[tuple[str, str]]:
    yield "Throughput", _qps(bench.throughput_qps)
    if bench.pipelined:
        yield "With frames in flight", _qps(bench.pipelined.throughput_qps)
    yield "Iterations", text.count(bench.iterations)
    yield "Coefficient of variation", percent(bench.coefficient_of_variation, 2)
    if (streams := bench.streams) and len(streams) > 1:
        each = ", ".join(text.significant(stream.throughput_qps) for stream in streams)
        yield "Streams", f"{len(streams)}: {each} inferences/s"
    yield from cost_facts(bench)


def power_view(power: ReportedPower | None) -> View | None:
    """Returns charts with their tables, and the energy of an inference by rail."""
    if not power:
        return None
    found = [
        _chart(title, unit, lines)
        for group, title, unit in _GROUPS
        if (lines := power.series.get(group))
    ]
    return {
        "clock": clock_tag(power.clock),
        "charts": found,
        "title": power_title(power),
        "energy": _energy(power.energy) if power.energy else None,
        "facts": _power_facts(power),
        "warnings": [text.clean(warning) for warning in power.monitor.warnings]
        if power.monitor
        else [],
    }


def power_title(power: ReportedPower | None) -> str:
    """Returns the section's heading; empty without a monitor. For a PC it names the load only."""
    if not power:
        return ""
    on_board = power.energy or {"rails_mw", "temperatures_c"} & set(power.series)
    return "Power and temperature" if on_board else "Load"


def _chart(title: str, unit: str, series: Sequence[Line]) -> View:
    times = [t for line in series for t, _ in line.points]
    begin, end = min(times), max(times)
    top = _round_up(max(line.max for line in series))
    label = f"{title} in {unit} from {begin:.3g} to {end:.3g} s"
    return {
        "title": title,
        "unit": unit,
        "top": text.significant(top),
        "begin": f"{text.significant(round(begin, 2))} s",
        "end": f"{text.significant(round(end, 2))} s",
        "middle": "dashed line: first measured frame" if begin < 0 < end else "",
        "chart": Markup(charts.lines(series, (begin, end), top, label)),
        "rows": [
            {
                "css": f"net{number % charts.LINES}",
                "dash": number >= charts.LINES,
                "name": text.clean(line.name),
                "min": text.significant(line.min),
                "mean": text.significant(line.mean),
                "max": text.significant(line.max),
            }
            for number, line in enumerate(series)
        ],
    }


def _round_up(value: float) -> float:
    """Returns 1, 2, 2.5, 4, 5 or 8 times a power of ten, not below ``value``."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value > 0:
        power /= 10
    steps = (1, 2, 2.5, 4, 5, 8, 10)
    return next((power * step for step in steps if power * step >= value), 10 * power)


def _energy(energy: Energy) -> View:
    rows = [_rail(name, rail) for name, rail in energy.by_rail.items()]
    if energy.total:
        rows.append(_rail("All rails", energy.total) | {"own": True})
    return {
        "clock": clock_tag(energy.clock),
        "rows": rows,
        "rest": _REST.get(energy.baseline or "", ("Idle", "Over idle")),
        "baseline": _BASELINES.get(energy.baseline or "", ""),
    }


def _rail(name: str, rail: Power) -> View:
    def milliwatts(value: float | None) -> str:
        return ABSENT if value is None else f"{text.significant(value)} mW"

    return {
        "name": text.clean(name),
        "mean": milliwatts(rail.mean_mw),
        "idle": milliwatts(rail.idle_mw),
        "energy": text.energy(rail.uj_per_inference),
        "over": text.energy(rail.over_idle_uj),
        "own": False,
    }


def _power_facts(power: ReportedPower) -> list[dict[str, str]]:
    rows: list[tuple[str, str]] = []
    if settings := power.settings:
        times = ("before", "during", "after")
        named = (f"{name} {when}" for when in times if (name := settings.mode_name(when)))
        yes = {True: "yes", False: "no", None: ""}
        rows += [
            ("Power mode", ", ".join(named)),
            ("Clocks locked", yes[settings.locked]),
            ("Settings restored", yes[settings.restored]),
        ]
    if monitor := power.monitor:
        idle = f", plus {monitor.idle_samples:,} while idle" if monitor.idle_samples else ""
        rows += [
            ("Sampled by", ", ".join(monitor.sources)),
            ("Every", f"{monitor.interval_ms:g} ms" if monitor.interval_ms else ""),
            ("Samples", f"{monitor.samples:,}{idle}"),
            ("Unknown fields", str(monitor.unknown or "")),
        ]
    return [{"name": name, "value": text.clean(value)} for name, value in rows if value]
