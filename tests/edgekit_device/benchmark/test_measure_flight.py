"""Frames alone and in flight: a trace has them where they were on the run's one clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit_device
from edgekit.benchmark.trace.chrome import validate_trace
from edgekit.benchmark.trace.run import measured_processes
from edgekit.benchmark.trace.sources import PreparedSource, write_trace
from edgekit_device.benchmark import measure
from edgekit_device.benchmark.events import retained_events
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.measurement import MeasuredEvent
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.runtime.pipeline import SegmentEvent
from tests.edgekit_device.device_board import BoardFolder
from tests.edgekit_device.runtime.segment_waits import make_segments_wait

# long enough that devices which may work at once do
WAITS_US = {"GPU": 3000, "DLA0": 4000, "DLA1": 4000}


def test_frames_in_flight_overlap_in_the_trace_as_they_did_in_time(
    board: BoardFolder, installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_segments_wait(monkeypatch, lambda device, _ops: WAITS_US[device])
    seen: list[SegmentEvent] = []

    def reported(
        events: Sequence[SegmentEvent], retained: Sequence[int], spans: Any = ()
    ) -> tuple[MeasuredEvent, ...]:
        seen.extend(event for event in events if event.frame in retained)
        return retained_events(events, retained, spans)

    for module in (measure, measure):
        monkeypatch.setattr(module, "retained_events", reported)
    model = edgekit_device.load(board.root / "apps/toy/releases" / installed)
    frame = {"x": np.ones((1, 3, 8, 8), np.float32)}
    document = bench(model, frame, BenchSettings(0, 0, 10))
    out = tmp_path / "t.json"
    source = PreparedSource("bench", measured_processes(None, document, 2, None))
    write_trace(out, [source], name="t")
    trace = json.loads(out.read_text())
    assert validate_trace(trace) == []
    slices = [event for event in trace["traceEvents"] if event.get("cat") == "segment"]
    # slices of both processes in the order of their times are the events in the order of theirs
    seen.sort(key=lambda event: event.start)
    assert len(slices) == len(seen) == 2 * 8 * 3
    for shown, event in zip(slices, seen, strict=True):
        assert (shown["args"]["segment"], shown["args"]["device"]) == (event.index, event.device)
        assert shown["ts"] == pytest.approx((event.start - seen[0].start) * 1e6, abs=0.01)
        assert shown["dur"] == pytest.approx((event.end - event.start) * 1e6, abs=0.01)
    alone, flight = ([s for s in slices if s["pid"] == pid] for pid in (1, 2))
    assert not any(_overlap(a, b) for a, b in product(alone, alone) if a is not b)
    assert any(
        _overlap(a, b) and a["args"]["device"] != b["args"]["device"]
        for a, b in product(flight, flight)
        if a["args"]["frame"] < b["args"]["frame"]
    )


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    begin = max(one["ts"], other["ts"])
    # slices that only touch may share a nanosecond's rounding
    return bool(begin + 0.01 < min(one["ts"] + one["dur"], other["ts"] + other["dur"]))
