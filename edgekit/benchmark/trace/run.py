"""A Chrome trace of the measured and the predicted run, for Perfetto or chrome://tracing.

Format: "Trace Event Format" (Chromium, catapult project), JSON object form: complete events (``ph``
"X") with microsecond ``ts`` and ``dur``, flows that link the segments of a frame, counters of the
board's monitor, and metadata events (``ph`` "M") that name processes and threads. Each clock has
separate processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from edgekit.benchmark.measurement import (
    BOARD_MEASURED,
    CPU_MEASURED,
    CPU_PLACE,
    PREDICTED,
    MeasuredRun,
    copies,
    in_flight_after_us,
    members,
    node_times,
    runs,
    runs_in_flight,
)
from edgekit.benchmark.schedule import PredictedSlot, predicted_schedule
from edgekit.benchmark.trace.chrome import (
    HOST,
    SCHEMA,
    EventArgs,
    SortedEvent,
    Trace,
    TraceEvent,
    TraceFacts,
    TraceProcess,
    nanoseconds,
)
from edgekit.benchmark.trace.layers import (
    Owners,
    device_parts,
    layer_slices,
    layers_args,
)
from edgekit.benchmark.trace.monitor import monitor_process, monitor_wall
from edgekit.network.module_tree import layer_modules
from edgekit.placement.plan import Plan
from edgekit.text import counted
from edgekit_device.benchmark.measurement import Measurement

if TYPE_CHECKING:
    from edgekit.network.model import Network


_NAMED = 4  # layers of a kernel in the name of its slice
MEASURED_PID, PIPELINED_PID, PREDICTED_PID, MONITOR_PID = 1, 2, 3, 4
_STEPS = {"reformat": "reformat {}", "launch": "loadable launch", "unfused": "unfused: {}"}


def _kernels(
    slot: PredictedSlot, network: Network | None
) -> Iterator[tuple[str, list[str], str, float]]:
    """Yields category, layers, name and microseconds of a turn's slices.

    A layer without its own time belongs to a neighbour's kernel: of the layer that writes its
    input, or reads its output, or the previous layer; it is named in that kernel's slice.
    """
    heads = [step.name for step in slot.steps if step.kind == "layer" and step.us > 0]
    head_of = {name: name for name in heads}
    near = _neighbours(slot, network)
    free = [step.name for step in slot.steps if step.kind == "layer" and step.name not in head_of]
    # forwards for layers behind a timed layer, backwards for those before it
    for names in (free, free[::-1]):
        for name in names:
            found = next((head_of[other] for other in near.get(name, ()) if other in head_of), "")
            if name not in head_of and found:
                head_of[name] = found
    before = heads[0] if heads else ""
    members: dict[str, list[str]] = {}
    for step in slot.steps:
        if step.kind == "layer":
            before = head_of.get(step.name, before)
            members.setdefault(before, []).append(step.name)
    for step in slot.steps:
        if step.kind != "layer":
            if step.us > 0:
                yield step.kind, [], _STEPS[step.kind].format(step.name), step.us
        elif step.us > 0:
            own = members[step.name]
            yield "layer", own, " + ".join(own[:_NAMED]) + (" + ..." * (len(own) > _NAMED)), step.us


def _neighbours(slot: PredictedSlot, network: Network | None) -> dict[str, list[str]]:
    """Returns, by layer, the turn's layers that write its inputs, then those that read its
    outputs.
    """
    if network is None:
        return {}
    inside = {name for name, _ in slot.layers}
    makers, readers = network.producers(), network.consumers()
    found: dict[str, list[str]] = {}
    for layer in network.layers:
        if layer.name in inside:
            before = [makers[tensor].name for tensor in layer.inputs if tensor in makers]
            after = [reader.name for tensor in layer.outputs for reader in readers.get(tensor, ())]
            found[layer.name] = [name for name in (*before, *after) if name in inside]
    return found


def _predicted_process(plan: Plan, network: Network | None, dla_cores: int) -> TraceProcess:
    name = f"predicted for {plan.target} {plan.power_mode}".rstrip()
    process = TraceProcess(PREDICTED_PID, name, PREDICTED, dla_cores)
    last = 0
    frames: dict[int, list[tuple[str, int]]] = {}
    for slot in predicted_schedule(plan, network):
        frames.setdefault(slot.variant, []).append((slot.device, nanoseconds(slot.start_us)))
        placed = {layer.name: layer for layer in plan.plans[slot.variant].layers}
        end = nanoseconds(slot.start_us + slot.duration_us)
        process.add(
            slot.device,
            f"segment {slot.segment}" if slot.layers else f"reformats for segment {slot.segment}",
            nanoseconds(slot.start_us),
            end,
            "segment",
            EventArgs(
                segment=slot.segment,
                device=slot.device,
                plan=slot.variant,
                layers=len(slot.layers),
            ),
        )
        elapsed = slot.start_us
        for kind, layers, name, us in _kernels(slot, network):
            # the sum of rounded times may pass the segment's end, and slices must nest
            begin, elapsed = min(nanoseconds(elapsed), end), elapsed + us
            stop = min(nanoseconds(elapsed), end)
            args = EventArgs(segment=slot.segment, device=slot.device)
            if layers:
                args = layers_args([placed[layer] for layer in layers])
            process.add(slot.device, name, begin, stop, kind, args)
        last = max(last, end)
    for steps in frames.values():
        process.flow("frame", steps)
    # a frame of each plan is in flight; the host waits for all frames in a single slice
    process.add(
        HOST,
        "frame" if len(plan.plans) == 1 else "one frame of each plan",
        0,
        last,
        "frame",
        EventArgs(
            device=HOST,
            predicted_latency_us=plan.predicted.latency_us,
            shares=[share.share for share in plan.plans],
        ),
    )
    return process


def _add_measured_runs(
    process: TraceProcess,
    shown: tuple[MeasuredRun, ...],
    measurement: Measurement,
    owners: Callable[[int], Owners],
) -> TraceProcess:
    """Fills a process with segments' runs, and with layers if there is a profile.

    The segments of a hybrid engine are split by their layers' devices.
    """
    profile, within = node_times(measurement), members(measurement)
    board = measurement.clock == BOARD_MEASURED
    frames: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for run in shown:
        nodes = profile.get((run.lane, run.segment), ())
        inside = within.get((run.lane, run.segment), ())
        layers = (
            layer_slices(run, nodes, owners(run.lane), board=board, within=inside) if nodes else []
        )
        for device, start, end, own in device_parts(run, layers):
            track = process.free_track(device, start)
            frames.setdefault((run.lane, run.frame), []).append((track, start))
            process.add(
                track,
                f"segment {run.segment}",
                start,
                end,
                "segment",
                EventArgs(segment=run.segment, device=device, plan=run.lane, frame=run.frame),
            )
            for layer in own:
                process.add(
                    track,
                    layer.name,
                    layer.start,
                    layer.end,
                    "layer",
                    layer.args.model_copy(update={"frame": run.frame}),
                )
    for steps in frames.values():
        process.flow("frame", steps)
    return process


def _host_frames(process: TraceProcess, shown: tuple[MeasuredRun, ...], mean_ms: float) -> None:
    """Adds the host's slice for each frame that ran alone; without segments, the mean latency.

    It covers the host's calls and waits: a device that waits for its input begins later.
    """
    frames: dict[int, tuple[int, int]] = {}
    for run in shown:
        start, end = map(nanoseconds, run.call_us)
        first, last = frames.get(run.frame, (start, end))
        frames[run.frame] = (min(first, start), max(last, end))
    if not frames:
        frames = {0: (0, nanoseconds(1000 * mean_ms))}
    for frame, (start, end) in frames.items():
        process.add(
            HOST, f"inference {frame}", start, end, "frame", EventArgs(device=HOST, frame=frame)
        )


def measured_processes(
    plan: Plan | None, measurement: Measurement, dla_cores: int, network: Network | None
) -> list[TraceProcess]:
    """Returns the measured processes: frames alone, frames in flight, and the board's monitors.

    Without a plan a node's time is shown under the node's name.
    """
    clock = measurement.clock or CPU_MEASURED
    place = CPU_PLACE if clock == CPU_MEASURED else "the board"
    known: dict[int, Owners] = {}

    def owners(lane: int) -> Owners:
        # once for each plan: it maps all nodes and tensors
        if lane not in known:
            known[lane] = Owners(plan, network, lane)
        return known[lane]

    moved, own = copies(measurement), runs(measurement)
    # the trace begins with the first copy to the device if it precedes the first call
    early = -min([0.0, *(copy.start_us for copy in moved[:1]), *(run.start_us for run in own[:1])])
    alone = tuple(run.later(early) for run in own)
    process = TraceProcess(MEASURED_PID, f"measured on {place}", clock, dla_cores)
    process.label = "edgekit_device's clock"
    _add_measured_runs(process, alone, measurement, owners)
    for copy in moved:
        begin = nanoseconds(copy.start_us + early)
        track = process.free_track("copies", begin)
        process.add(
            track,
            copy.phase,
            begin,
            begin + nanoseconds(copy.duration_us),
            "copy",
            EventArgs(device="copies", frame=copy.frame),
        )
    _host_frames(process, alone, (measurement.latency_ms or {}).get("mean", 0.0))
    started = measurement.events_start_s
    monitors = monitor_process(
        measurement.monitor,
        pid=MONITOR_PID,
        clock=clock,
        # the trace's 0 is `early` microseconds before the first shown frame
        shown_s=None if started is None else started - early / 1e6,
    )
    in_flight = runs_in_flight(measurement)
    if not in_flight:
        return [process, *monitors]
    name = f"measured on {place}, frames in flight"
    pipelined = TraceProcess(PIPELINED_PID, name, clock, dla_cores)
    after = in_flight_after_us(measurement)
    pipelined.label = "edgekit_device's clock, as for single frames"
    if after is None:
        pipelined.label = "edgekit_device's clock, restarted: measured after the single frames"
    later = 0.0 if after is None else early + after
    in_flight = tuple(run.later(later) for run in in_flight)
    _add_measured_runs(pipelined, in_flight, measurement, owners)
    first = min(nanoseconds(run.call_us[0]) for run in in_flight)
    last = max(nanoseconds(run.call_us[1]) for run in in_flight)
    frames = len({run.frame for run in in_flight})
    pipelined.add(
        HOST, counted(frames, "frame"), first, last, "frame", EventArgs(device=HOST, frames=frames)
    )
    return [process, pipelined, *monitors]


def frames_wall(measurement: Measurement) -> float | None:
    """Returns the Unix time of the first shown segment; None if unknown."""
    wall, started = monitor_wall(measurement.monitor), measurement.events_start_s
    return None if wall is None or started is None else wall + started


def trace_document(
    plan: Plan | None,
    measurement: Measurement | None = None,
    *,
    dla_cores: int,
    network: Network | None = None,
    name: str = "",
) -> Trace:
    """Makes the trace: a few measured frames, and a predicted frame of each plan.

    Args:
        plan: Source of the predicted process, and of layer names for measured nodes; None if
            unknown: only the measurement is shown.
        measurement: The loader's measurement; None: only the prediction is shown.
        dla_cores: DLA cores of the target; each gets a track in every process.
        network: The plan's layers: needed to overlap independent segments in the prediction, and to
            find the layer of nodes that edgekit added.
        name: Name of the release or config, for ``otherData``.

    Returns:
        The trace. Every event's ``args`` has ``clock``, except counters'.

    Raises:
        DataError: "trace.time": a time is invalid.
    """
    processes: list[TraceProcess] = []
    if measurement is not None:
        processes += measured_processes(plan, measurement, dla_cores, network)
    if plan is not None:
        processes.append(_predicted_process(plan, network, dla_cores))
    metadata: list[TraceEvent] = []
    slices: list[SortedEvent] = []
    for process in processes:
        named, own = process.finish()
        metadata += named
        slices += own
    # without the event itself, which has no order
    slices.sort(key=lambda item: item[:4])
    module = layer_modules(network)
    return Trace(
        traceEvents=[*metadata, *(event.of_module(module) for *_, event in slices)],
        displayTimeUnit="ms",
        otherData=TraceFacts(
            schema=SCHEMA,
            name=name,
            target=plan.target if plan else "",
            power_mode=plan.power_mode if plan else "",
            precision=plan.precision if plan else "",
            clocks={process.name: process.clock for process in processes},
            wall=frames_wall(measurement) if measurement else None,
        ),
    )
