"""The report's layers, devices and reasons, joined from plan, network and judgement, with the
times in a trace of the measured run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.benchmark.measurement import BOARD_MEASURED, CPU_MEASURED, PREDICTED
from edgekit.network.module_tree import (
    LayerPlace,
    ModuleTotals,
    module_totals,
    modules_around,
)
from edgekit.placement.gpu_reasons import Why
from edgekit.placement.plan import FrameTimes, booked_layers
from edgekit.reports import text
from edgekit.reports.schema import (
    DeviceShare,
    MeasuredPart,
    MeasuredTime,
    OnGpu,
    ReportedFrame,
    ReportedLayer,
    Slot,
    TraceSummary,
    UnbookedTime,
    Whole,
)
from edgekit.text import percent

if TYPE_CHECKING:
    from edgekit.benchmark.trace.chrome import Trace, TraceEvent
    from edgekit.network.model import Network
    from edgekit.reports.facts import RunFacts


_MOST = 15


def _slices(trace: Trace | None, category: str) -> list[TraceEvent]:
    """Returns the measured slices of a category, from the first process.

    Its frames ran alone; the frames of further processes overlap.
    """
    found = [
        event
        for event in (trace.events if trace else ())
        if event.ph == "X" and event.cat == category and event.args.clock not in (None, PREDICTED)
    ]
    first = min((event.pid for event in found), default=None)
    return [event for event in found if event.pid == first]


def measured_frame(trace: Trace | None) -> ReportedFrame | None:
    """Returns a measured frame for the timeline; None if there is none.

    It is the frame of median length, so that it is neither cold nor an outlier.
    """
    frames: dict[int, list[TraceEvent]] = {}
    for event in _slices(trace, "segment"):
        if event.args.segment is not None:
            frames.setdefault(event.args.frame or 0, []).append(event)
    if not frames:
        return None
    lengths = {
        frame: max(event.ts + event.dur for event in events) - min(event.ts for event in events)
        for frame, events in frames.items()
    }
    ordered = sorted(frames, key=lambda frame: (lengths[frame], frame))
    frame = ordered[len(ordered) // 2]
    events = frames[frame]
    begin = min(event.ts for event in events)
    return ReportedFrame(
        clock=BOARD_MEASURED if events[0].args.clock == BOARD_MEASURED else CPU_MEASURED,
        frame=frame,
        end_us=max(event.ts + event.dur for event in events) - begin,
        slots=[
            Slot(
                plan=event.args.plan or 0,
                segment=event.args.segment or 0,
                device=event.args.device or "GPU",
                start_us=event.ts - begin,
                duration_us=event.dur,
            )
            for event in events
        ],
    )


def _times(trace: Trace | None) -> Iterator[tuple[float, float, TraceEvent]]:
    """Yields frame, measured microseconds and the slice of every measured layer."""
    for event in _slices(trace, "layer"):
        frame, us = event.args.frame, event.args.measured_us
        if us is not None:
            # older traces do not have the frame: each slice counts as a frame
            yield event.ts if frame is None else frame, us, event


def layer_times(trace: Trace | None) -> dict[str, float]:
    """Returns the measured microseconds of layers by name, the mean over the trace's frames.

    A layer's nodes need not follow each other: its times in a frame are added up.
    """
    found: dict[str, dict[float, float]] = {}
    for frame, us, event in _times(trace):
        # a fusion's time is no layer's: `measured_parts` has it
        if event.args.layer is not None and event.args.layers is None:
            times = found.setdefault(event.args.layer, {})
            times[frame] = times.get(frame, 0.0) + us
    return {name: sum(times.values()) / len(times) for name, times in found.items()}


def measured_parts(trace: Trace | None, clock: str = "") -> list[MeasuredPart]:
    """Returns loadables and fusions, timed as a whole; times are means over the trace's frames.

    Their layers have no times of their own.
    """
    first: dict[tuple[str, ...], TraceEvent] = {}
    totals: dict[tuple[str, ...], float] = {}
    frames: dict[tuple[str, ...], set[float]] = {}
    for frame, us, event in _times(trace):
        if isinstance(event.args.layers, list) and event.args.layers:
            key = tuple(event.args.layers)
            first.setdefault(key, event)
            totals[key] = totals.get(key, 0.0) + us
            frames.setdefault(key, set()).add(frame)
    return [
        MeasuredPart(
            name=event.name,
            device=event.args.device or "GPU",
            segment=event.args.segment or 0,
            layers=list(key),
            us=totals[key] / len(frames[key]),
            clock=clock,
        )
        for key, event in first.items()
    ]


def unbooked_times(trace: Trace | None) -> list[UnbookedTime]:
    """Returns the measured times of a frame that belong to no layer.

    Conversions at segments' borders have a separate row; each node counts once per segment.
    """
    frames: set[float] = set()
    totals: dict[str, float] = {}
    nodes: dict[str, set[tuple[int | None, str]]] = {}
    for frame, us, event in _times(trace):
        args = event.args
        frames.add(frame)
        if args.layer is None:
            what = "of no layer" if args.border_of is None else "between segments"
            totals[what] = totals.get(what, 0.0) + us
            own = {(args.segment, node) for node in args.measured_nodes or ()}
            nodes.setdefault(what, set()).update(own)
    return [
        UnbookedTime(what=what, us=total / len(frames), nodes=len(nodes[what]))
        for what, total in totals.items()
        if total > 0
    ]


def trace_summary(trace: Trace | None, file: str | None) -> TraceSummary | None:
    """Returns the trace's file and contents; None without a trace."""
    if not trace:
        return None
    return TraceSummary(
        file=file,
        events=sum(event.ph != "M" for event in trace.events),
        clocks=trace.about.clocks,
        frames=len({event.args.frame for event in _slices(trace, "segment")}),
        measured_layers=len(layer_times(trace)),
        unbooked=unbooked_times(trace),
    )


def layer_rows(
    facts: RunFacts, on_gpu: Sequence[Why], parts: Sequence[MeasuredPart]
) -> list[ReportedLayer]:
    """Returns a row per layer in graph order: place, verdict, prediction and size.

    Args:
        facts: The run.
        on_gpu: Why DLA-capable layers are on the GPU (``gpu_reasons``).
        parts: Loadables and fusions that were timed as a whole.
    """
    times = layer_times(facts.trace)
    clock = facts.clock
    within = {
        name: Whole(name=part.name, clock=part.clock, us=part.us, layers=len(part.layers))
        # reversed: of several parts with a layer the first one counts
        for part in reversed(parts)
        for name in part.layers
    }
    known = {layer.name: layer for layer in facts.network.layers}
    tensors = facts.network.tensors
    why = {
        layer.name: OnGpu(rule=group.rule, message=layer.message)
        for group in on_gpu
        for layer in group.layers
    }
    rows = []
    booked = booked_layers(facts.plan.plans[0], facts.network)
    for number, placed in enumerate(booked, start=1):
        layer = known.get(placed.name)
        verdict = facts.judgement.verdicts.get(placed.name)
        timed = placed.name in times
        rows.append(
            ReportedLayer(
                number=number,
                name=placed.name,
                kind=layer.kind if layer else "",
                op=layer.op if layer else "",
                shape=[
                    list(tensors[name].shape)
                    for name in (layer.outputs if layer else ())
                    if name in tensors
                ],
                on_gpu=why.get(placed.name),
                nodes=list(placed.nodes),
                device=placed.device,
                precision=placed.precision,
                segment=placed.segment,
                dla_ok=verdict.ok if verdict else None,
                certainty=verdict.certainty if verdict else "",
                reasons=list(verdict.reasons) if verdict else [],
                macs=layer.macs if layer else 0,
                predicted_us=placed.predicted_us,
                predicted_uj=placed.predicted_uj,
                measured=MeasuredTime(clock=clock, us=times[placed.name]) if timed else None,
                within=None if timed else within.get(placed.name),
            )
        )
    return rows


def reported_modules(
    network: Network, rows: Sequence[ReportedLayer], parts: Sequence[MeasuredPart]
) -> list[ModuleTotals]:
    """Returns the modules of a run: with measured time if the whole module was measured on the
    board, else predicted; empty if the network names none.

    Args:
        network: The layers.
        rows: The report's layers.
        parts: Loadables and fusions that were timed as a whole.
    """
    places = {
        row.name: LayerPlace(row.device, row.predicted_us, _rules_against_dla(row)) for row in rows
    }
    times = {row.name: us for row in rows if (us := _board_time(row)) is not None}
    # fused into a neighbour's kernel: the kernel's time includes theirs
    free = {row.name for row in rows if not row.predicted_us}
    on_board = [part for part in parts if part.clock == BOARD_MEASURED]
    measured = measured_modules(network, times, on_board, free)
    return list(module_totals(network, places, measured))


def _rules_against_dla(row: ReportedLayer) -> list[str]:
    """Returns the rules that keep a layer off the DLA."""
    if row.dla_ok is False:
        return [reason.rule for reason in row.reasons]
    return [row.on_gpu.rule] if row.on_gpu else []


def measured_modules(
    network: Network,
    times: Mapping[str, float],
    parts: Sequence[MeasuredPart],
    free: Collection[str],
) -> dict[str, float]:
    """Returns the microseconds of the modules whose layers were all timed, alone or together with
    layers of the same module only.

    Args:
        network: The layers.
        times: Microseconds of layers that were timed alone, by name.
        parts: Loadables and fusions that were timed as a whole.
        free: Layers that take no time.
    """
    names: dict[str, set[str]] = {}
    for layer in network.layers if network.modules else ():
        for path in modules_around(layer):
            names.setdefault(path, set()).add(layer.name)
    within = {name for part in parts for name in part.layers}
    found = {}
    for path, own in names.items():
        wholes = [part for part in parts if not own.isdisjoint(part.layers)]
        alone = [times[name] for name in own if name in times]
        # each layer has a time of its own or of its part, or takes none
        complete = own - within - set(free) <= set(times)
        # a loadable that crosses the module's border has a time that cannot be divided
        apart = all(own.issuperset(part.layers) for part in wholes)
        if complete and apart and (alone or wholes):
            found[path] = sum(alone) + sum(part.us for part in wholes)
    return found


def shape_words(row: ReportedLayer) -> str:
    """Returns the shapes of a layer's outputs: "1x64x28x28"; "" if unknown."""
    shapes = [text.shape(sizes) for sizes in row.shape]
    return ", ".join(shapes[:2]) + (", …" if shapes[2:] else "")


def _board_time(row: ReportedLayer) -> float | None:
    measured = row.measured
    return measured.us if measured and measured.clock == "board-measured" else None


def board_us(row: ReportedLayer) -> float:
    """Returns a layer's time on the board: measured there, else predicted; never a CPU's time."""
    measured = _board_time(row)
    return row.predicted_us if measured is None else measured


def sort_by_time(rows: Iterable[ReportedLayer]) -> list[ReportedLayer]:
    """Returns the layers, the slowest on the board first."""
    return sorted(rows, key=lambda row: (-board_us(row), -row.predicted_us, row.number))


def order_words(rows: Iterable[ReportedLayer]) -> str:
    """Returns the kind of times that ``sort_by_time`` sorts by, in words."""
    on_board = any(_board_time(row) is not None for row in rows)
    return "measured on the board or else predicted" if on_board else "predicted"


def busy_with(layers: int) -> list[str]:
    """Returns the work of a device without layers, in words; empty if it has layers."""
    return [] if layers else ["reformats and launches"]


def busy_time(us: float | None, layers: int) -> str:
    """Returns a device's working time for a frame, and its kind of work if it runs no layer."""
    why = "".join(f" ({work})" for work in busy_with(layers) if us)
    return f"{text.microseconds(us)}{why}"


def sharing_words(frame: FrameTimes | None, *, short: bool = False) -> str:
    """Returns why a frame takes longer than the busiest device works; "" if it does not.

    Args:
        frame: The plan's frame times; older documents have none.
        short: Only the cost of shared memory and of waiting for the GPU.
    """
    if frame is None or not frame.sharing_us:
        return ""
    lost, period = text.microseconds(frame.sharing_us), text.microseconds(frame.period_us)
    waits = "gpu" in frame.shared
    why = "memory contention and waiting for the GPU take" if waits else "memory contention takes"
    if short:
        return f"{why} {lost} of each {period}"
    return (
        f"one frame every {period}: {frame.device} is "
        f"busy for {text.microseconds(frame.busy_us.get(frame.device))} of it, and "
        f"{why} {lost} (predicted)"
    )


def device_rows(rows: Sequence[ReportedLayer], times: Mapping[str, float]) -> list[DeviceShare]:
    """Returns layers, MACs and predicted time by device; a DLA core without work has no row.

    ``times`` are the devices' working times in a frame, from ``device_times``.
    """
    busy = {device for device, us in times.items() if us}
    devices = ["GPU", *sorted({*(row.device for row in rows), *busy} - {"GPU"})]
    total = sum(row.macs for row in rows)
    found = []
    for device in devices:
        own = [row for row in rows if row.device == device]
        macs = sum(row.macs for row in own)
        found.append(
            DeviceShare(
                device=device,
                layers=len(own),
                macs=macs,
                macs_fraction=macs / total if total else 0.0,
                predicted_us=times.get(device, 0.0),
            )
        )
    return found


def within_words(
    row: ReportedLayer, letters: int = 80, labels: Mapping[str, str] | None = None
) -> str:
    """Returns the loadable or fusion that a layer was timed with; "" if timed alone or not at all.

    Args:
        row: A layer.
        letters: A longer name is cut in its middle, for its ends name the first and last layer.
        labels: Short names of loadables and fusions in a table, by their names.
    """
    within = row.within
    if within is None:
        return ""
    name = (labels or {}).get(within.name) or text.clean(within.name)
    if len(name) > letters:
        name = f"{name[: letters // 2]}…{name[-letters // 2 :]}"
    return f"in {name}, {text.microseconds(within.us)} together"


@dataclass(frozen=True)
class PartCells:
    """A row of a loadable or fusion that was timed as a whole, as texts.

    ``label`` is its name in the layers' rows ("loadable 1"), ``whole`` its full name; both are ""
    for the row that sums up those not listed.
    """

    label: str
    whole: str
    name: str
    device: str
    layers: str
    time: str
    share: str


def part_cells(parts: Sequence[MeasuredPart], total: float, most: int = _MOST) -> list[PartCells]:
    """Returns a row per part, the longest first.

    Args:
        parts: ``measured_parts`` of the report.
        total: Microseconds of everything timed.
        most: Rows at most.
    """
    known = sorted(parts, key=lambda part: -part.us)

    def times(us: float) -> tuple[str, str]:
        return text.microseconds(us), percent(us / total if total > 0 else None)

    found = [
        PartCells(
            f"{'loadable' if part.name.startswith('{ForeignNode') else 'fusion'} {number}",
            part.name,
            text.clean(part.name),
            text.clean(part.device),
            text.count(len(part.layers)),
            *times(part.us),
        )
        for number, part in enumerate(known[:most], start=1)
    ]
    if rest := known[most:]:
        found.append(
            PartCells(
                "",
                "",
                f"{len(rest):,} more, in report.json",
                "",
                text.count(sum(len(part.layers) for part in rest)),
                *times(sum(part.us for part in rest)),
            )
        )
    return found
