"""A measurement as lines for a terminal, from its ``edgekit.bench/1`` document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType, group

from edgekit.reports import text
from edgekit.reports.facts import baseline_word, few_words, flat_facts, latency_shown, power_of
from edgekit.reports.terminal.layout import command, named, paragraph, table
from edgekit.text import counted, sentence

_PHASES = {"enqueue": "enqueue", "h2d": "copy in", "compute": "compute", "d2h": "copy out",
           "host": "host"}  # fmt: skip
_SEGMENTS = 12
_INDENT = 2


@group()
def bench_text(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Returns the summary: verdict, times, throughput, energy, clocks, temperatures.

    Args:
        document: An ``edgekit.bench/1``; parts that its loader did not report are left out.
    """
    yield from _head(document)
    if not document.get("latency_ms"):
        yield paragraph(str(document.get("note") or "nothing was measured"))
        return
    on_cpu = document["clock"] == "cpu-measured"
    if not on_cpu:
        yield from _verdict(document.get("verdict") or {}, on_cpu=on_cpu)
        yield ""
    yield from _times(document)
    yield ""
    yield named((f"{name}:", value) for name, value in _facts(document))
    unseen = (document.get("verdict") or {}).get("unchecked") or ()
    if unseen:
        yield named((("not seen:", one) for one in unseen), style="dim")
    if on_cpu:  # of no board: whether this CPU's time may be quoted is a footnote
        yield ""
        yield from _verdict(document.get("verdict") or {}, on_cpu=on_cpu)
    monitor = document.get("monitor") or {}
    of_log = [f"{monitor['log']}: {one}" for one in monitor.get("warnings") or ()
              if monitor.get("log")]  # fmt: skip
    for one in (*(document.get("notes") or ()), *of_log):
        yield paragraph(f"note: {sentence(str(one))}")


def _head(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    board = document.get("board") or {}
    where = f" on {board['name']}" if board.get("name") else ""
    kind = ", ".join(filter(None, (document["target"], document["precision"])))
    yield paragraph(
        f"{document.get('name') or 'bench'}{where} ({kind}): {document['clock']}",
        style="bold",
    )
    if document["clock"] == "cpu-measured":
        yield paragraph("measured on a CPU, reference backend; not a board time", style="yellow")


def _verdict(verdict: Mapping[str, Any], *, on_cpu: bool) -> Iterator[RenderableType]:
    status = str(verdict.get("status") or "")
    measured = "the reference backend's time on a CPU" if on_cpu else "the measurement"
    words = {
        "VALID": f"{measured} is VALID", "INVALID": f"{measured} is INVALID; do not quote it:",
    }.get(status, f"{measured} was not checked")  # fmt: skip
    good = status == "VALID"
    style = "dim" if on_cpu else "green" if good else "bold red"
    yield paragraph(f"{'footnote: ' if on_cpu else ''}{words}", style=style)
    for reason in verdict.get("reasons") or ():
        yield paragraph(f"{reason['code']}: {reason['message']}", indent=_INDENT)
        yield paragraph(f"remedy: {reason['remedy']}", indent=2 * _INDENT, style="dim")
    if again := verdict.get("command"):
        yield command(f"measure again: {again}", indent=_INDENT)


def _times(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    rows = [("latency", document["latency_ms"])]
    phases = document.get("phases_ms") or {}
    rows += [(f"  {word}", phases[name]) for name, word in _PHASES.items() if phases.get(name)]
    segments = document.get("segments") or ()
    if len(segments) > 1:
        several = text.several_plans(segments)
        rows += [
            (f"  {_segment(one, several)}", one["latency_ms"])
            for one in segments[:_SEGMENTS]
            if one.get("latency_ms")
        ]
    shown = latency_shown(document)
    cells = [[name, *(_milliseconds(_value(times, one)) for one in shown)] for name, times in rows]
    head = ["median" if name == "median" else label for name, label in shown.items()]
    yield table(["ms", *head], cells, "l" + "r" * len(shown))
    if few := few_words(document):
        yield paragraph(few, style="dim")
    if len(segments) > _SEGMENTS:
        yield paragraph(f"and {counted(len(segments) - _SEGMENTS, 'more segment')}")


def _segment(segment: Mapping[str, Any], several: bool) -> str:
    plan = text.plan_prefix(segment.get("lane"), several)
    return f"{plan}segment {segment.get('index')} ({segment.get('device')})"


def _facts(document: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Name and text of what is known besides the times."""
    yield "throughput", _throughput(document)
    yield from _settings(document.get("settings") or {})
    if streams := document.get("streams"):
        yield (
            "streams",
            "; ".join(
                f"{one['stream'] + 1}: {text.significant(one['throughput_qps'])}/s, "
                f"{counted(int(one['iterations']), 'frame')}"
                for one in streams
            ),
        )
    if cold := document.get("cold"):
        yield (
            "cold start",
            (
                f"opened in {_milliseconds(cold.get('open_ms'))} ms, first frame "
                f"{_milliseconds(cold.get('first_ms'))} ms"
            ),
        )
    if memory := _memory(document.get("memory") or {}):
        yield "memory", memory
    if energy := _energy(document.get("energy") or {}):
        yield "energy", energy
    for note in (document.get("energy") or {}).get("notes") or ():
        yield "energy", str(note)
    sampled = power_of(document) or {}
    series = sampled.get("series") or {}
    if clocks := _spans(series.get("clocks_mhz") or (), "MHz"):
        yield "clocks", clocks
    if temperatures := _hottest(series.get("temperatures_c") or ()):
        yield "temperature", temperatures
    if power := _power(document.get("power") or {}, document.get("planned_power_mode")):
        yield "power mode", power
    for note in (document.get("runtime") or {}).get("notes") or ():
        yield "runtime", str(note)
    predicted = (document.get("predicted") or {}).get("latency_us")
    if predicted and document["clock"] == "board-measured":
        share = 1000 * document["latency_ms"]["median"] / predicted
        yield "predicted", f"{text.microseconds(predicted)}; the median is {share:.2f}x that"
    for one in (document.get("trtexec") or {}).get("engines") or ():
        if one.get("difference") is not None:
            yield (
                "trtexec",
                (
                    f"{one['device']} {one['index']}: median {one['trtexec_ms']:.3f} ms "
                    f"({one['compared']}), ours {one['ours_ms']:.3f} ms "
                    f"({100 * one['difference']:+.1f} %)"
                ),
            )


def _settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields how it was measured; what is off, or 0, is left out."""
    given = {name: value for name, value in settings.items() if value}
    if given:
        yield "settings", ", ".join(map(" ".join, flat_facts(given)))


def _throughput(document: Mapping[str, Any]) -> str:
    said = f"{text.significant(document['throughput_qps'])} inferences/s"
    streams = (document.get("settings") or {}).get("streams") or 1
    said += f" in {streams} streams (whole frames in each)" if streams > 1 else ""
    pipelined = document.get("pipelined") or {}
    if pipelined.get("throughput_qps"):
        rate = text.significant(pipelined["throughput_qps"])
        said += f", {rate}/s pipelined (each device works on another frame)"
    varies = document.get("coefficient_of_variation")
    said += f"; {counted(int(document['iterations']), 'frame')}"
    return said + (f", variation {100 * varies:.1f} %" if varies is not None else "")


def _memory(memory: Mapping[str, Any]) -> str:
    parts = {"peak_rss_bytes": "process peak", "gpu_bytes": "on the device"}
    found = [f"{word} {text.size(memory[key])}" for key, word in parts.items() if memory.get(key)]
    return ", ".join(found)


def _energy(energy: Mapping[str, Any]) -> str:
    total = energy.get("total") or {}
    if total.get("uj_per_inference") is None:
        return ""
    said = f"{text.energy(total['uj_per_inference'])} per inference"
    if total.get("over_idle_uj") is not None:
        said += f", thereof {text.energy(total['over_idle_uj'])} over {baseline_word(energy)}"
    if total.get("mean_mw") is not None:
        said += f"; the board draws {total['mean_mw'] / 1000:.2f} W"
    rails = [
        f"{name} {rail['mean_mw'] / 1000:.2f} W"
        for name, rail in (energy.get("by_rail") or {}).items()
        if rail.get("mean_mw") is not None
    ]
    return said + (f": {', '.join(rails)}" if rails else "")


def _spans(lines: Sequence[Mapping[str, Any]], unit: str) -> str:
    found: list[str] = []
    names = {line["name"] for line in lines}
    for line in lines:
        low, high = line["min"], line["max"]
        span = f"{high:.0f}" if high - low < 1 else f"{low:.0f}-{high:.0f}"
        first, _, number = line["name"].rpartition(" ")
        if number.isdigit() and first in names:  # GR3D has a clock for each of its clusters
            found[-1] += f" / {span}"
        else:
            found.append(f"{line['name']} {span}")
    return ", ".join(found) + (f" {unit}" if found else "")


def _hottest(lines: Sequence[Mapping[str, Any]]) -> str:
    if not lines:
        return ""
    line = max(lines, key=lambda one: float(one["max"]))
    return f"{line['name']} at most {line['max']:.1f} C"


def _power(power: Mapping[str, Any], planned: str | None) -> str:
    modes = power.get("mode") or {}
    during = (modes.get("during") or {}).get("name")
    if not during:
        return ""
    said = f"{during}, clocks {'locked' if power.get('locked') else 'not locked'}"
    if planned and planned.upper() != during.upper().removeprefix("MODE_"):
        said += f"; the plan is for {planned}"
    if power.get("changed"):
        before = (modes.get("before") or {}).get("name")
        back = "restored" if power.get("restored") else "NOT RESTORED"
        said += f"; before {before}, {back}"
    return "; ".join([said, *map(str, power.get("notes") or ())])


def _value(times: Mapping[str, Any], name: str) -> float | None:
    found = times.get(name)
    return float(found) if isinstance(found, int | float) else None


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
