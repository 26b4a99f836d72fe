"""A measurement as lines for a terminal, from its ``edgekit.bench/1`` document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import RenderableType, group

from edgekit.benchmark.document import Bench
from edgekit.benchmark.energy import Energy
from edgekit.benchmark.measurement import Times
from edgekit.benchmark.validity import Verdict
from edgekit.placement.buckets import shape_text
from edgekit.reports import text
from edgekit.reports.facts import (
    baseline_word,
    flatten_facts,
    footnote_words,
    latency_shown,
    reported_power,
)
from edgekit.reports.schema import Line
from edgekit.reports.terminal.layout import command, name_value_table, paragraph, table
from edgekit.text import counted, sentence
from edgekit_device.benchmark.measurement import MeasuredSettings, MemoryTaken
from edgekit_device.board.power import PowerReport
from edgekit_device.protocol.codec import write

_PHASES = {
    "enqueue": "enqueue",
    "h2d": "copy in",
    "compute": "compute",
    "d2h": "copy out",
    "host": "host",
}
_SEGMENTS = 12
_INDENT = 2


@group()
def bench_text(bench: Bench) -> Iterator[RenderableType]:
    """Returns the summary: verdict, times, throughput, energy, clocks, temperatures.

    Values that its loader did not report are left out.
    """
    where = f" on {bench.board.name}" if bench.board and bench.board.name else ""
    kind = ", ".join(filter(None, (bench.target, bench.precision)))
    yield paragraph(f"{bench.name or 'bench'}{where} ({kind}): {bench.clock}", style="bold")
    if bench.clock == "cpu-measured":
        yield paragraph("measured on a CPU, reference backend; not a board time", style="yellow")
    if not bench.latency_ms:
        yield paragraph(bench.note or "nothing was measured")
        return
    on_cpu = bench.clock == "cpu-measured"
    if not on_cpu:
        yield from _verdict(bench.verdict, on_cpu=on_cpu)
        yield ""
    yield from _times(bench, bench.latency_ms)
    yield ""
    yield name_value_table((f"{name}:", value) for name, value in _facts(bench, bench.latency_ms))
    if unseen := bench.verdict.unchecked if bench.verdict else ():
        yield name_value_table((("not seen:", fact) for fact in unseen), style="dim")
    if on_cpu:  # not a board's time: the verdict on this CPU's time is a footnote
        yield ""
        yield from _verdict(bench.verdict, on_cpu=on_cpu)
    notes = bench.notes
    if (monitor := bench.monitor) and monitor.log:
        notes = [*notes, *(f"{monitor.log}: {warning}" for warning in monitor.warnings)]
    for note in notes:
        yield paragraph(f"note: {sentence(note)}")


def _verdict(verdict: Verdict | None, *, on_cpu: bool) -> Iterator[RenderableType]:
    measured = "the reference backend's time on a CPU" if on_cpu else "the measurement"
    words, style = f"{measured} was not checked", "bold red"
    if verdict and verdict.status == "VALID":
        words, style = f"{measured} is VALID", "green"
    elif verdict:
        words = f"{measured} is INVALID; do not quote it:"
    if on_cpu:
        words, style = f"footnote: {words}", "dim"
    yield paragraph(words, style=style)
    if verdict is None:
        return
    for reason in verdict.reasons:
        yield paragraph(f"{reason.code}: {reason.message}", indent=_INDENT)
        yield paragraph(f"remedy: {reason.remedy}", indent=2 * _INDENT, style="dim")
    if verdict.command:
        yield command(f"measure again: {verdict.command}", indent=_INDENT)


def _times(bench: Bench, latency: Times) -> Iterator[RenderableType]:
    rows: list[tuple[str, Mapping[str, float]]] = [("latency", latency)]
    phases = bench.phases_ms or {}
    rows += [(f"  {word}", times) for name, word in _PHASES.items() if (times := phases.get(name))]
    segments = bench.segments
    if len(segments) > 1:
        several = len({segment.lane for segment in segments}) > 1
        for segment in segments[:_SEGMENTS]:
            if segment.latency_ms:
                plan = text.plan_prefix(segment.lane, several)
                name = f"  {plan}segment {segment.index} ({segment.device})"
                rows.append((name, segment.latency_ms))
    shown = latency_shown(bench)
    cells = [
        [name, *(_milliseconds(times.get(statistic)) for statistic in shown)]
        for name, times in rows
    ]
    head = ["median" if name == "median" else label for name, label in shown.items()]
    yield table(["ms", *head], cells, "l" + "r" * len(shown))
    if few := footnote_words(bench):
        yield paragraph(few, style="dim")
    if len(segments) > _SEGMENTS:
        yield paragraph(f"and {counted(len(segments) - _SEGMENTS, 'more segment')}")


def _facts(bench: Bench, latency: Times) -> Iterable[tuple[str, str]]:
    """Yields name and text of known facts besides the times."""
    yield "throughput", _throughput(bench)
    if bench.settings and bench.settings.shapes:
        yield "shapes", f"{shape_text(bench.settings.shapes)}; other shapes were not measured"
    if bench.settings:
        yield from _settings(bench.settings)
    if bench.streams:
        yield (
            "streams",
            "; ".join(
                f"{stream.stream + 1}: {text.significant(stream.throughput_qps)}/s, "
                f"{counted(stream.iterations, 'frame')}"
                for stream in bench.streams
            ),
        )
    if cold := bench.cold:
        yield (
            "cold start",
            f"opened in {_milliseconds(cold.open_ms)} ms, first frame "
            f"{_milliseconds(cold.first_ms)} ms",
        )
    if bench.memory and (memory := _memory(bench.memory)):
        yield "memory", memory
    if bench.energy:
        if energy := _energy(bench.energy):
            yield "energy", energy
        for note in bench.energy.notes:
            yield "energy", note
    yield from _board_facts(bench)
    for note in bench.runtime.notes if bench.runtime else ():
        yield "runtime", note
    predicted = bench.predicted.latency_us if bench.predicted else None
    if predicted and bench.clock == "board-measured":
        share = 1000 * latency["median"] / predicted
        yield "predicted", f"{text.microseconds(predicted)}; the median is {share:.2f}x that"
    for engine in bench.trtexec.engines if bench.trtexec else ():
        if engine.difference is not None:
            yield (
                "trtexec",
                f"{engine.device} {engine.index}: median {engine.trtexec_ms:.3f} ms "
                f"({engine.compared}), ours {engine.ours_ms:.3f} ms "
                f"({100 * engine.difference:+.1f} %)",
            )


def _board_facts(bench: Bench) -> Iterator[tuple[str, str]]:
    """Yields the board's clocks, temperature and power mode during the measurement."""
    sampled = reported_power(bench)
    series = sampled.series if sampled else {}
    if clocks := _spans(series.get("clocks_mhz") or (), "MHz"):
        yield "clocks", clocks
    if temperatures := series.get("temperatures_c"):
        hottest = max(temperatures, key=lambda line: line.max)
        yield "temperature", f"{hottest.name} at most {hottest.max:.1f} C"
    if bench.power and (power := _power(bench.power, bench.planned_power_mode)):
        yield "power mode", power


def _settings(settings: MeasuredSettings) -> Iterator[tuple[str, str]]:
    """Yields the settings of the measurement; those that are off or 0 are left out."""
    given = {name: value for name, value in write(settings).items() if value}
    if given:
        yield "settings", ", ".join(map(" ".join, flatten_facts(given)))


def _throughput(bench: Bench) -> str:
    said = f"{text.significant(bench.throughput_qps)} inferences/s"
    streams = bench.settings.streams if bench.settings else 1
    said += f" in {streams} streams (whole frames in each)" if streams > 1 else ""
    if bench.pipelined:
        rate = text.significant(bench.pipelined.throughput_qps)
        said += f", {rate}/s pipelined (each device works on another frame)"
    varies = bench.coefficient_of_variation
    said += f"; {counted(bench.iterations or 0, 'frame')}"
    return said + (f", variation {100 * varies:.1f} %" if varies is not None else "")


def _memory(memory: MemoryTaken) -> str:
    parts = {"process peak": memory.peak_rss_bytes, "on the device": memory.gpu_bytes}
    return ", ".join(f"{word} {text.size(size)}" for word, size in parts.items() if size)


def _energy(energy: Energy) -> str:
    total = energy.total
    if total is None:
        return ""
    said = f"{text.energy(total.uj_per_inference)} per inference"
    if total.over_idle_uj is not None:
        said += f", thereof {text.energy(total.over_idle_uj)} over {baseline_word(energy)}"
    said += f"; the board draws {total.mean_mw / 1000:.2f} W"
    rails = [f"{name} {rail.mean_mw / 1000:.2f} W" for name, rail in energy.by_rail.items()]
    return said + (f": {', '.join(rails)}" if rails else "")


def _spans(lines: Sequence[Line], unit: str) -> str:
    found: list[str] = []
    names = {line.name for line in lines}
    for line in lines:
        low, high = line.min, line.max
        span = f"{high:.0f}" if high - low < 1 else f"{low:.0f}-{high:.0f}"
        first, _, number = line.name.rpartition(" ")
        if number.isdigit() and first in names:  # GR3D has a clock for each of its clusters
            found[-1] += f" / {span}"
        else:
            found.append(f"{line.name} {span}")
    return ", ".join(found) + (f" {unit}" if found else "")


def _power(power: PowerReport, planned: str | None) -> str:
    during = power.mode_name("during")
    if not during:
        return ""
    said = f"{during}, clocks {'locked' if power.locked else 'not locked'}"
    if planned and planned.upper() != during.upper().removeprefix("MODE_"):
        said += f"; the plan is for {planned}"
    if power.changed:
        back = "restored" if power.restored else "NOT RESTORED"
        said += f"; before {power.mode_name('before')}, {back}"
    return "; ".join([said, *power.notes])


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
