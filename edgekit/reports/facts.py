"""What a run found out (``RunFacts``), and what a measurement, its accuracy and what boards built
say, in words that the page, Markdown and the terminal share; power, temperatures and energy
from the bench's monitor document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.benchmark.monitor import Monitor, Sample
from edgekit.benchmark.statistics import tails
from edgekit.reports import text
from edgekit.results.comparison import describe_value
from edgekit.text import ABSENT, counted, percent
from edgekit_device.arrays.deviation import decibels
from edgekit_device.protocol.codec import read

if TYPE_CHECKING:
    from edgekit.dla.verdicts import Judgement
    from edgekit.network.model import Network
    from edgekit.placement.plan import Plan
    from edgekit.quantize.scales import Scales
    from edgekit.targets.board import Target

PERCENTILES = {
    "min": "min", "mean": "mean", "median": "p50 (median)", "p90": "p90", "p95": "p95",
    "p99": "p99", "p999": "p99.9", "max": "max",
}  # fmt: skip
_BASELINES = {"idle": "idle", "floor": "its lowest"}  # the baseline that energy is given above
_MEMORY = (("peak_rss_bytes", "Peak memory"), ("gpu_bytes", "Memory of the GPU"))
POINTS = 240
"""Points of a line that a page's width can show; the bench document keeps every sample."""
MEASURES = (
    ("cosine", "Cosine"), ("snr_db", "SNR"), ("max_abs", "Largest difference"),
    ("top1_agreement", "Top-1 agreement"),
)  # fmt: skip
# top-1 agreement means something for the outputs only
SEGMENT_MEASURES = MEASURES[:3]


@dataclass(frozen=True, eq=False)
class RunFacts:
    """What a run found out. Parts that a run did not come to are None or empty.

    Attributes:
        name: The config's name.
        model: Where the model came from, for people.
        target: The board.
        plan: The placement with its predictions and baselines.
        network: The layers that were placed (after rewrites).
        judgement: The verdict of each layer.
        mode: Build mode: "hybrid", "standalone" or "split".
        backend: "reference", "tensorrt" or "trtexec"; empty when nothing was built.
        scales: INT8 scales and the data they come from.
        accuracy: Against FP32: {"cosine", "snr_db", "max_abs", "top1_agreement"}, and where
            known "data" (on what, for people), "inputs" (how many), "metric", "min", "passed"
            (the gate), "groups", "scores" and "failures" (as ``accuracy`` of
            ``edgekit.reference.accuracy`` returns them), "segments": [{"segment", "device", and
            the same measures, accumulated up to there}]. ``snr_db`` is None when there is no
            difference at all.
        bundle: {"path", "bytes", "stripped_bytes", "digest"}.
        refit: {"bit_equal"}.
        built: What boards built, as the ``boards`` of an ``edgekit.build/1``.
        bench: The ``edgekit.bench/1`` document.
        trace: The ``edgekit.trace/1`` document of the same measurement: gives the measured frame
            and the layers' measured times.
        baseline: An ``edgekit.compare/1`` document of this run against another.
        board: {"name", "kind"}.
        rewrites: Applied rewrites: {"name", "nodes"}, and where known "reason" and "max_error".
        steps: {"name", "status": "done" | "reused" | "failed", "seconds"}, in order.
        files: Paths by what they are: "report", "trace", "bundle", ...
        config_text: The configuration as the user wrote it.
        environment: Versions and machine, for people.
        notes: Anything the reader must know.
        note_groups: The notes by what they are about: "accuracy", "run", "plan", "build"; others
            are of the run.
    """

    name: str
    model: str
    target: Target
    plan: Plan
    network: Network
    judgement: Judgement
    mode: str = "hybrid"
    backend: str = ""
    scales: Scales | None = None
    accuracy: Mapping[str, Any] | None = None
    bundle: Mapping[str, Any] | None = None
    refit: Mapping[str, Any] | None = None
    built: tuple[Mapping[str, Any], ...] = ()
    bench: Mapping[str, Any] | None = None
    trace: Mapping[str, Any] | None = None
    baseline: Mapping[str, Any] | None = None
    board: Mapping[str, Any] | None = None
    rewrites: tuple[Mapping[str, Any], ...] = ()
    steps: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    config_text: str = ""
    note_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def latency_shown(bench: Mapping[str, Any]) -> dict[str, str]:
    """Returns the statistics to show, by key, with their names.

    A percentile that no frame is beyond is left out, for it is the maximum; one that few are beyond
    has a "*", which :func:`few_words` explains.
    """
    latency, count = bench.get("latency_ms") or {}, bench.get("iterations")
    empty, few, _ = tails(count) if isinstance(count, int) else ((), (), 0)
    return {
        key: name + "*" * (key in few)
        for key, name in PERCENTILES.items()
        if latency.get(key) is not None and key not in empty
    }


def few_words(bench: Mapping[str, Any]) -> str:
    """Returns what the "*" at a percentile means and which are left out; "" if there is none."""
    count = bench.get("iterations")
    if not isinstance(count, int):
        return ""
    latency = bench.get("latency_ms") or {}
    empty, few, least = tails(count)
    sentences, frames = [], counted(count, "inference")
    if any(latency.get(key) is not None for key in few):
        sentences.append(
            f"* fewer than {least} of the {frames} are slower, so this value varies between runs."
        )
    if absent := [PERCENTILES[key] for key in empty if latency.get(key) is not None]:
        names = f"{', '.join(absent[:-1])} and {absent[-1]}" if absent[1:] else absent[0]
        sentences.append(f"{frames} are too few for {names}.")
    return " ".join(sentences)


def baseline_word(energy: Mapping[str, Any]) -> str:
    """Returns over what the energy's second figure is: the board at rest, or the run's lowest."""
    return _BASELINES.get(str(energy.get("baseline")), "its baseline")


def serving_words(bench: Mapping[str, Any] | None) -> str:
    """Returns which release was measured where it is not the plan's; "" if it is.

    What was taken back on a board is not measured: the release that serves there is.
    """
    back = (bench or {}).get("taken_back")
    if not bench or not back:
        return ""
    release = (bench.get("environment") or {}).get("release") or "another release"
    return text.clean(
        f"release {release}, which is running: this configuration's release, "
        f"{back['release']}, was rolled back at {back['at']}: {back['reason']}"
    )


def cost_facts(bench: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yields what it takes to start and to run: cold start, memory, energy where it was read."""
    cold = bench.get("cold") or {}
    if cold.get("open_ms") is not None:
        yield "Cold start: open", text.microseconds(1000 * cold["open_ms"])
    if cold.get("first_ms") is not None:
        yield "Cold start: first inference", text.microseconds(1000 * cold["first_ms"])
    memory = bench.get("memory") or {}
    for key, name in _MEMORY:
        if memory.get(key) is not None:
            yield name, text.size(memory[key])
    total = (bench.get("energy") or {}).get("total")
    if isinstance(total, Mapping) and total.get("uj_per_inference") is not None:
        yield "Energy per inference", text.energy(total["uj_per_inference"])
        if total.get("over_idle_uj") is not None:
            yield (
                f"thereof over {baseline_word(bench['energy'])}",
                text.energy(total["over_idle_uj"]),
            )


def flat_facts(facts: Mapping[str, Any] | None) -> Iterable[tuple[str, str]]:
    """Yields the leaves of settings, flags or versions by their path, as people write values.

    What is not set is left out.
    """
    for key, value in (facts or {}).items():
        if isinstance(value, Mapping):
            yield from ((f"{text.clean(key)}.{name}", inner) for name, inner in flat_facts(value))
        elif words := describe_value(value):
            yield text.clean(key), text.clean(words)


def built_view(boards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns each board's build for the page: its engines, and where it is not as planned.

    Args:
        boards: The ``boards`` of an ``edgekit.build/1``.
    """
    return [
        {
            "board": text.clean(board["board"]),
            "facts": text.clean(built_line(board)),
            "engines": [_engine(one) for one in board["engines"]],
            "differences": [text.clean(difference) for difference in board["plan"]["differences"]],
        }
        for board in boards
    ]


def built_line(board: Mapping[str, Any]) -> str:
    """Returns a board's build in one line."""
    module = board["fingerprint"].get("module")
    differences = board["plan"]["differences"]
    return ", ".join(
        part
        for part in (
            f"TensorRT {board['tensorrt']}",
            module,
            counted(len(differences), "difference") + " from the plan"
            if differences
            else "as planned",
        )
        if part
    )


def _engine(one: Mapping[str, Any]) -> dict[str, str]:
    """Returns a row: sizes are of the file, stripped and with its weights."""
    whole = one.get("full_bytes")
    stripped = one["stripped"] and whole
    tried = len(one["attempts"])
    return {
        "name": text.clean(one["key"]),
        "size": text.size(one["bytes"]),
        "whole": text.size(whole) if stripped else ABSENT,
        "share": percent(one["bytes"] / whole) if stripped else ABSENT,
        "seconds": text.seconds(one["seconds"]),
        "flags": text.clean(", ".join(one["attempts"][one["attempt"]]["flags"])) or ABSENT,
        "tried": f"{tried}th attempt" if tried > 3 else ("first", "second", "third")[tried - 1],
    }


def power_of(bench: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns what the report says of power, or None if no monitor ran.

    Args:
        bench: The ``edgekit.bench/1`` document with "monitor", "power" and "energy", each of
            which may be missing.

    Returns:
        ``series``: groups ("rails_mw", "temperatures_c", "load_percent", "clocks_mhz") of lines
        {"name", "min", "mean", "max", "points": [[seconds, value]]}; ``energy``, ``settings`` (the
        power mode and clocks) and ``monitor`` (interval, sources, warnings) as the bench has them.
    """
    if not bench:
        return None
    energy, settings = bench.get("energy"), bench.get("power")
    monitor = Monitor.model_validate(bench["monitor"]) if bench.get("monitor") else None
    if not (monitor or energy or settings):
        return None
    return {
        "clock": bench["clock"],
        "monitor": {
            "interval_ms": monitor.interval_ms,
            "sources": monitor.sources,
            "samples": len(monitor.samples),
            "idle_samples": len(monitor.idle),
            "facts": monitor.facts.to_json(),
            "unknown": len(monitor.unknown),
            "warnings": monitor.warnings,
        }
        if monitor
        else None,
        "series": _series(monitor.samples) if monitor else {},
        "energy": dict(energy) if energy else None,
        "settings": dict(settings) if settings else None,
    }


def _series(samples: Sequence[Sample]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for sample in samples:
        for group, name, value in _values(sample):
            if value is not None:
                points = groups.setdefault(group, {}).setdefault(name, [])
                points.append((float(sample.t_s), value))
    return {
        group: [_line(name, points) for name, points in lines.items()]
        for group, lines in groups.items()
    }


def _values(sample: Sample) -> Iterable[tuple[str, str, float | None]]:
    for name, power in sample.rails().items():
        yield "rails_mw", name, power
    for name, value in sample.temperatures_c.items():
        yield "temperatures_c", name, value
    for name, engine in sample.engines.items():
        yield "load_percent", name, engine.percent
        for number, clock in enumerate(engine.mhz):
            yield "clocks_mhz", name if number == 0 else f"{name} {number}", clock
    known = [core.percent for core in sample.cpu if core and core.percent is not None]
    if known:
        yield "load_percent", "CPU", sum(known) / len(known)
    for name, hertz in sample.clocks_hz.items():
        yield "clocks_mhz", name, hertz / 1e6


def _line(name: str, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    values = [value for _, value in points]
    return {
        "name": name, "min": min(values), "mean": sum(values) / len(values), "max": max(values),
        "points": thinned(points),
    }  # fmt: skip


def thinned(points: Sequence[tuple[float, float]], most: int = POINTS) -> list[list[float]]:
    """Returns at most ``most`` points: the lowest and the highest of each stretch, in time order.

    Averages would hide the peaks that a reader looks for.
    """
    if len(points) <= most:
        return [list(point) for point in points]
    stretches = most // 2
    chosen: list[list[float]] = []
    for number in range(stretches):
        part = points[number * len(points) // stretches : (number + 1) * len(points) // stretches]
        pair = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        chosen += [list(point) for point in sorted(pair)]
    return chosen


def measure_words(measures: Mapping[str, Any], key: str) -> str:
    """Formats one measure of ``measures``.

    Outputs that are the same for all inputs ("constant") measure nothing.
    """
    if measures.get("constant"):
        return ABSENT
    value = measures.get(key)
    if key == "snr_db" and (value is not None or measures.get("max_abs") is not None):
        exact = measures.get("exact", measures.get("max_abs") == 0)
        return decibels(value, value is None and exact)
    if value is None:
        return ABSENT
    if key == "top1_agreement":
        return percent(value)
    return f"{value:.5f}" if key == "cosine" else text.significant(value)


def warning_words(accuracy: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each output of which the figures say nothing: it holds NaN or
    infinity, or is the same for all inputs.
    """
    rows = [*(accuracy.get("nonfinite") or ()), *(accuracy.get("constant") or ())]
    return [text.clean(one["told"]) for one in rows]


def part_words(accuracy: Mapping[str, Any]) -> list[str]:
    """Returns the worst channels of outputs whose channels differ in range, and scores kept."""
    from edgekit.reference.accuracy import ChannelGroup, KeptScores, describe_parts

    groups = [read(ChannelGroup, one) for one in accuracy.get("groups") or ()]
    scores = [read(KeptScores, one) for one in accuracy.get("scores") or ()]
    constant = [one["output"] for one in accuracy.get("constant") or ()]
    return [text.clean(one) for one in describe_parts(groups, scores, constant)]
