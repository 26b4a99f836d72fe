"""A Chrome trace of the measured and the predicted run, for Perfetto or chrome://tracing.

Format: "Trace Event Format" (Chromium, catapult project), JSON object form: complete events
(``ph`` "X") with microsecond ``ts`` and ``dur``, and metadata events (``ph`` "M") that name
processes and threads. Two processes keep the clocks apart; each has a track for the host, the GPU
and every DLA core of the target, also for a core that has nothing to do. Times are whole
nanoseconds inside, so that slices nest exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.bench._measured import NodeTime, SegmentTime, node_times, segment_times
from edgekit.bench._schedule import predicted_schedule
from edgekit.bench._types import CPU_MEASURED, PREDICTED

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.placement import PlacedLayer, Plan

__all__ = ["trace_document"]

Event = dict[str, Any]
HOST = "host"
MEASURED_PID, PREDICTED_PID = 1, 2


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


class _Process:
    """One process of the trace: its clock, its tracks and its slices."""

    def __init__(self, pid: int, name: str, clock: str, dla_cores: int) -> None:
        self.pid, self.name, self.clock = pid, name, clock
        self.tracks = (HOST, "GPU", *(f"DLA{core}" for core in range(dla_cores)))
        self.slices: list[tuple[int, int, int, Event]] = []
        self._busy: set[str] = set()

    def tid(self, track: str) -> int:
        # a device that the target lacks would be a fault elsewhere; it still gets a track
        if track not in self.tracks:
            self.tracks = (*self.tracks, track)
        return self.tracks.index(track) + 1

    def add(self, track: str, name: str, start: int, end: int, category: str, **args: Any) -> None:
        """Adds a slice from ``start`` to ``end`` nanoseconds."""
        self._busy.add(track)
        tid = self.tid(track)
        event = {
            "name": name, "cat": category, "ph": "X", "ts": start / 1000,
            "dur": (end - start) / 1000, "pid": self.pid, "tid": tid,
            "args": {"clock": self.clock, **args},
        }  # fmt: skip
        # equal starts: the longer one is the parent; equal times: as they were added
        self.slices.append((start, -(end - start), len(self.slices), event))

    def events(self, end: int) -> tuple[list[Event], list[tuple[int, int, int, Event]]]:
        """Returns metadata events and slices; tracks without any get an "idle" slice."""
        for track in self.tracks:
            if track not in self._busy:
                self.add(track, "idle", 0, end, "idle", device=track, idle=True)
        meta = [self._meta("process_name", 0, name=self.name)]
        meta.append(self._meta("process_sort_index", 0, sort_index=self.pid))
        for track in self.tracks:
            tid = self.tid(track)
            meta.append(self._meta("thread_name", tid, name=track))
            meta.append(self._meta("thread_sort_index", tid, sort_index=tid))
        return meta, self.slices

    def _meta(self, kind: str, tid: int, **args: Any) -> Event:
        return {
            "name": kind, "cat": "__metadata", "ph": "M", "ts": 0, "pid": self.pid, "tid": tid,
            "args": {**args, "clock": self.clock},
        }  # fmt: skip


def _layer_args(layer: PlacedLayer | None, segment: int) -> dict[str, Any]:
    if layer is None:
        return {"segment": segment}
    return {
        "layer": layer.name, "nodes": list(layer.nodes), "device": layer.device,
        "precision": layer.precision, "segment": segment,
    }  # fmt: skip


def _predicted(plan: Plan, network: Network | None, dla_cores: int) -> tuple[_Process, int]:
    name = f"predicted for {plan.target} {plan.power_mode}".rstrip()
    process = _Process(PREDICTED_PID, name, PREDICTED, dla_cores)
    ends = dict.fromkeys(range(len(plan.plans)), 0)
    starts: dict[int, int] = {}
    for slot in predicted_schedule(plan, network):
        placed = {layer.name: layer for layer in plan.plans[slot.variant].layers}
        elapsed, start = slot.start_us, _ns(slot.start_us)
        end = _ns(slot.start_us + slot.duration_us)
        process.add(
            slot.device, f"segment {slot.segment}", start, end, "segment",
            segment=slot.segment, device=slot.device, plan=slot.variant, layers=len(slot.layers),
        )  # fmt: skip
        for name, duration in slot.layers:
            begin, elapsed = min(_ns(elapsed), end), elapsed + duration
            args = _layer_args(placed[name], slot.segment)
            process.add(slot.device, name, begin, min(_ns(elapsed), end), "layer", **args)
        starts[slot.variant] = min(start, starts.get(slot.variant, start))
        ends[slot.variant] = max(end, ends[slot.variant])
    # one frame of each variant is in flight; the host waits for them all in one slice
    last = max(ends.values(), default=0)
    process.add(
        HOST, "frame" if len(plan.plans) == 1 else "frames, one of each plan", 0, last, "frame",
        device=HOST, predicted_latency_us=plan.predicted.latency_us,
        shares=[share.share for share in plan.plans],
    )  # fmt: skip
    return process, last


def _runs(nodes: Iterable[NodeTime], owner: Mapping[str, PlacedLayer]) -> list[list[NodeTime]]:
    """Groups neighbouring nodes of one layer; a node of no known layer stays alone."""
    groups: list[list[NodeTime]] = []
    for node in nodes:
        layer = owner.get(node.node)
        if groups and layer is not None and owner.get(groups[-1][-1].node) is layer:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _measured_layers(
    process: _Process, segment: SegmentTime, start: int, nodes: tuple[NodeTime, ...],
    owner: Mapping[str, PlacedLayer],
) -> None:  # fmt: skip
    """Adds a slice per layer at the profile's own times."""
    first, previous = nodes[0].start_us, start
    for group in _runs(nodes, owner):
        begin = max(start + _ns(group[0].start_us - first), previous)
        end = max(start + _ns(group[-1].start_us + group[-1].duration_us - first), begin)
        previous = end
        layer = owner.get(group[0].node)
        args = _layer_args(layer, segment.index) | {"device": segment.device}
        process.add(
            segment.device, layer.name if layer else group[0].node or "node", begin, end, "layer",
            **args, measured_nodes=[node.node for node in group],
        )  # fmt: skip


def _owners(plan: Plan, lane: int) -> dict[str, PlacedLayer]:
    layers = plan.plans[lane].layers if lane < len(plan.plans) else plan.layers
    owner = {node: layer for layer in layers for node in layer.nodes}
    return owner | {layer.name: layer for layer in layers}


def _measured(plan: Plan, measurement: Mapping[str, Any], dla_cores: int) -> tuple[_Process, int]:
    clock = str(measurement.get("clock") or CPU_MEASURED)
    place = "this CPU (not a board time)" if clock == CPU_MEASURED else "the board"
    process = _Process(MEASURED_PID, f"measured on {place}", clock, dla_cores)
    profile = node_times(measurement)
    last = shift = lane = 0
    free: dict[str, int] = {}
    for segment in segment_times(measurement):
        if segment.lane != lane:
            # plans are measured one after the other, each from its own zero
            lane, shift = segment.lane, last
        nodes = profile.get((segment.lane, segment.index), ())
        start = max(_ns(segment.start_us) + shift, free.get(segment.device, 0))
        # the profiled run is a slower one: its layers keep their times and push what follows
        span = max((_ns(n.start_us + n.duration_us - nodes[0].start_us) for n in nodes), default=0)
        plain = _ns(segment.end_us - segment.start_us)
        end = start + max(plain, span)
        shift += max(span - plain, 0)
        process.add(
            segment.device, f"segment {segment.index}", start, end, "segment",
            segment=segment.index, device=segment.device, plan=segment.lane,
            measured_us=segment.end_us - segment.start_us, profiled=bool(nodes),
        )  # fmt: skip
        if nodes:
            _measured_layers(process, segment, start, nodes, _owners(plan, segment.lane))
        free[segment.device] = end
        last = max(last, end)
    latency = measurement.get("latency_ms") or {}
    last = max(last, _ns(float(latency.get("mean") or 0.0) * 1000))
    process.add(HOST, "inference", 0, last, "frame", device=HOST, latency_ms=dict(latency))
    return process, last


def trace_document(
    plan: Plan,
    measurement: Mapping[str, Any] | None = None,
    *,
    dla_cores: int,
    network: Network | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Makes the trace: one typical inference as measured, and one frame of each plan as predicted.

    Args:
        plan: Gives the predicted process, and layer names for measured nodes.
        measurement: What the board's loader returned; without it only the prediction is shown.
        dla_cores: DLA cores of the target; each gets a track in both processes.
        network: Lets independent segments overlap in the predicted process.
        name: Name of the release or config, for ``otherData``.

    Returns:
        The trace-event object. Every event's ``args`` has ``clock``.
    """
    processes = []
    if measurement is not None:
        processes.append(_measured(plan, measurement, dla_cores))
    processes.append(_predicted(plan, network, dla_cores))
    metadata: list[Event] = []
    slices: list[tuple[int, int, int, Event]] = []
    for process, last in processes:
        named, own = process.events(last)
        metadata += named
        slices += own
    slices.sort(key=lambda item: (item[0], item[1], item[3]["pid"], item[2]))
    return {
        "traceEvents": metadata + [event for *_, event in slices],
        "displayTimeUnit": "ms",
        "otherData": {
            "schema": "edgekit.trace/1", "name": name, "target": plan.target,
            "power_mode": plan.power_mode, "precision": plan.precision,
            "clocks": {process.name: process.clock for process, _ in processes},
        },
    }  # fmt: skip
