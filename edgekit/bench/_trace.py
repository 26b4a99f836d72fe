"""A Chrome trace of the measured and the predicted run, for Perfetto or chrome://tracing.

Format: "Trace Event Format" (Chromium, catapult project), JSON object form: complete events
(``ph`` "X") with microsecond ``ts`` and ``dur``, flows that link the segments of a frame, counters
of the board's monitor, and metadata events (``ph`` "M") that name processes and threads. Separate
processes keep the clocks apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.bench._measured import (
    NodeTime,
    Run,
    copies,
    in_flight_after_us,
    node_times,
    runs,
)
from edgekit.bench._schedule import predicted_schedule
from edgekit.bench._trace_linked import layer_args
from edgekit.bench._trace_monitor import frames_wall, monitor_process
from edgekit.bench._trace_process import HOST, Event, Process, nanoseconds
from edgekit.bench._types import CPU_MEASURED, CPU_PLACE, PREDICTED

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.placement import PlacedLayer, Plan

__all__ = ["measured_processes", "trace_document"]

MEASURED_PID, PIPELINED_PID, PREDICTED_PID, MONITOR_PID = 1, 2, 3, 4
Owner = Callable[[str], "PlacedLayer | None"]


def _predicted(plan: Plan, network: Network | None, dla_cores: int) -> Process:
    name = f"predicted for {plan.target} {plan.power_mode}".rstrip()
    process = Process(PREDICTED_PID, name, PREDICTED, dla_cores)
    last = 0
    frames: dict[int, list[tuple[str, int]]] = {}
    for slot in predicted_schedule(plan, network):
        frames.setdefault(slot.variant, []).append((slot.device, nanoseconds(slot.start_us)))
        placed = {layer.name: layer for layer in plan.plans[slot.variant].layers}
        end = nanoseconds(slot.start_us + slot.duration_us)
        process.add(
            slot.device, f"segment {slot.segment}", nanoseconds(slot.start_us), end, "segment",
            segment=slot.segment, device=slot.device, plan=slot.variant, layers=len(slot.layers),
        )  # fmt: skip
        elapsed = slot.start_us
        for layer, duration in slot.layers:
            begin, elapsed = min(nanoseconds(elapsed), end), elapsed + duration
            stop = min(nanoseconds(elapsed), end)
            process.add(slot.device, layer, begin, stop, "layer", **layer_args(placed[layer]))
        last = max(last, end)
    for steps in frames.values():
        process.flow("frame", steps)
    # one frame of each plan is in flight; the host waits for them all in one slice
    process.add(
        HOST, "frame" if len(plan.plans) == 1 else "a frame of each plan", 0, last, "frame",
        device=HOST, predicted_latency_us=plan.predicted.latency_us,
        shares=[share.share for share in plan.plans],
    )  # fmt: skip
    return process


def _owner(plan: Plan | None, network: Network | None, lane: int) -> Owner:
    """Returns who finds the layer of an engine's node.

    Nodes that edgekit added for rounding and scaling are called TENSOR#... after the tensor that
    they serve, so they belong to the layer that writes it.
    """
    if plan is None:
        return lambda _node: None
    layers = plan.plans[lane].layers if lane < len(plan.plans) else plan.layers
    by_name = {layer.name: layer for layer in layers}
    by_node = by_name | {node: layer for layer in layers for node in layer.nodes}
    by_tensor = {
        tensor: by_name[layer.name]
        for layer in (network.layers if network else ())
        for tensor in layer.outputs
        if layer.name in by_name
    }

    def find(node: str) -> PlacedLayer | None:
        if node in by_node:
            return by_node[node]
        tensor, mark, _ = node.partition("#")
        return by_tensor.get(tensor) if mark else None

    return find


def _measured_layers(
    process: Process, track: str, run: Run, nodes: tuple[NodeTime, ...], owner: Owner
) -> None:
    """Adds a slice per layer, neighbouring nodes of one layer together.

    Nodes were timed in runs of their own under the profiler, which slows them: they are laid from
    the segment's start, shortened together where they would overrun it. ``measured_us`` is as
    profiled.
    """
    total = sum(node.mean_us for node in nodes)
    scale = min(1.0, run.duration_us / total) if total > 0 else 1.0
    groups: list[tuple[PlacedLayer | None, list[NodeTime]]] = []
    for node in nodes:
        layer = owner(node.node)
        if groups and layer is not None and groups[-1][0] is layer:
            groups[-1][1].append(node)
        else:
            groups.append((layer, [node]))
    end, elapsed = nanoseconds(run.start_us + run.duration_us), run.start_us
    for layer, members in groups:
        measured = sum(node.mean_us for node in members)
        begin, elapsed = min(nanoseconds(elapsed), end), elapsed + scale * measured
        args = {"segment": run.segment} if layer is None else layer_args(layer)
        process.add(
            track, layer.name if layer else members[0].node or "node", begin,
            min(nanoseconds(elapsed), end), "layer", **(args | {"device": run.device}),
            measured_us=measured, measured_nodes=[node.node for node in members],
        )  # fmt: skip


def _measured(
    process: Process, shown: tuple[Run, ...], measurement: Mapping[str, Any],
    owners: Callable[[int], Owner],
) -> Process:  # fmt: skip
    """Fills a process with segments' runs, and layers where there is a profile."""
    profile = node_times(measurement)
    frames: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for run in shown:
        start = nanoseconds(run.start_us)
        track = process.free_track(run.device, start)
        frames.setdefault((run.lane, run.frame), []).append((track, start))
        process.add(
            track, f"segment {run.segment}", start, nanoseconds(run.start_us + run.duration_us),
            "segment", segment=run.segment, device=run.device, plan=run.lane, frame=run.frame,
        )  # fmt: skip
        nodes = profile.get((run.lane, run.segment), ())
        if nodes:
            _measured_layers(process, track, run, nodes, owners(run.lane))
    for steps in frames.values():
        process.flow("frame", steps)
    return process


def _host_frames(process: Process, shown: tuple[Run, ...], latency: Mapping[str, Any]) -> None:
    """Adds the host's slice for each frame that ran alone; without segments the mean latency."""
    frames: dict[int, tuple[int, int]] = {}
    for run in shown:
        start, end = nanoseconds(run.start_us), nanoseconds(run.start_us + run.duration_us)
        first, last = frames.get(run.frame, (start, end))
        frames[run.frame] = (min(first, start), max(last, end))
    if not frames:
        frames = {0: (0, nanoseconds(1000 * float(latency.get("mean") or 0.0)))}
    for frame, (start, end) in frames.items():
        process.add(HOST, f"inference {frame}", start, end, "frame", device=HOST, frame=frame)


def measured_processes(
    plan: Plan | None, measurement: Mapping[str, Any], dla_cores: int, network: Network | None
) -> list[Process]:
    """Returns what was measured: frames alone, frames in flight, and the board's monitors.

    Without a plan a node's time stands alone, under its own name.
    """
    clock = str(measurement.get("clock") or CPU_MEASURED)
    place = CPU_PLACE if clock == CPU_MEASURED else "the board"
    known: dict[int, Owner] = {}

    def owners(lane: int) -> Owner:
        return known.setdefault(lane, _owner(plan, network, lane))

    moved = copies(measurement)
    # the first copy to the device may come before the first segment: then the trace begins with it
    early = -min(0.0, moved[0].start_us) if moved else 0.0
    alone = tuple(replace(run, start_us=run.start_us + early) for run in runs(measurement))
    process = Process(MEASURED_PID, f"measured on {place}", clock, dla_cores)
    process.label = "the loader's clock"
    _measured(process, alone, measurement, owners)
    for copy in moved:
        begin = nanoseconds(copy.start_us + early)
        track = process.free_track("copies", begin)
        process.add(
            track, copy.phase, begin, begin + nanoseconds(copy.duration_us), "copy",
            device="copies", frame=copy.frame,
        )  # fmt: skip
    _host_frames(process, alone, measurement.get("latency_ms") or {})
    monitors = monitor_process(measurement, pid=MONITOR_PID, early_us=early)
    in_flight = runs(measurement, "pipelined_events")
    if not in_flight:
        return [process, *monitors]
    name = f"measured on {place}, frames in flight"
    pipelined = Process(PIPELINED_PID, name, clock, dla_cores)
    after = in_flight_after_us(measurement)
    pipelined.label = "the loader's clock, as the frames alone"
    if after is None:
        pipelined.label = "the loader's clock, begun anew: measured after the frames alone"
    later = 0.0 if after is None else early + after
    in_flight = tuple(replace(run, start_us=run.start_us + later) for run in in_flight)
    _measured(pipelined, in_flight, measurement, owners)
    last = max(nanoseconds(run.start_us + run.duration_us) for run in in_flight)
    frames = len({run.frame for run in in_flight})
    pipelined.add(
        HOST, f"{frames} frames", nanoseconds(in_flight[0].start_us), last, "frame",
        device=HOST, frames=frames,
    )  # fmt: skip
    return [process, pipelined, *monitors]


def trace_document(
    plan: Plan,
    measurement: Mapping[str, Any] | None = None,
    *,
    dla_cores: int,
    network: Network | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Makes the trace: a few frames as measured, and one frame of each plan as predicted.

    Args:
        plan: Gives the predicted process, and layer names for measured nodes.
        measurement: The loader's ``edgekit.device.bench/1``; None shows the prediction alone.
        dla_cores: DLA cores of the target; each gets a track in every process.
        network: The plan's layers: lets independent segments overlap in the prediction, and finds
            the layer of measured nodes that edgekit added.
        name: Name of the release or config, for ``otherData``.

    Returns:
        The trace-event object. Every event's ``args`` has ``clock``.
    """
    processes = []
    if measurement is not None:
        processes += measured_processes(plan, measurement, dla_cores, network)
    processes.append(_predicted(plan, network, dla_cores))
    metadata: list[Event] = []
    slices: list[tuple[int, int, int, int, Event]] = []
    for process in processes:
        named, own = process.finish()
        metadata += named
        slices += own
    slices.sort(key=lambda item: item[:4])
    return {
        "traceEvents": metadata + [event for *_, event in slices],
        "displayTimeUnit": "ms",
        "otherData": {
            "schema": "edgekit.trace/1", "name": name, "target": plan.target,
            "power_mode": plan.power_mode, "precision": plan.precision,
            "clocks": {process.name: process.clock for process in processes},
            "wall": frames_wall(measurement or {}),
        },
    }  # fmt: skip
