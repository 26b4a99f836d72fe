"""What a bench makes of times: clocks, percentiles, frames that are cycled, streams in threads."""

from __future__ import annotations

import math
import threading
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings as limits
from hypothesis import strategies as st

from edgekit_device.benchmark.command import load_frames, split_frames
from edgekit_device.benchmark.events import segment_times
from edgekit_device.benchmark.measure import BenchStream, Pace, run_streams
from edgekit_device.benchmark.statistics import summary
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import TensorEntry
from edgekit_device.runtime.pipeline import SegmentEvent
from tests.tries import tries

X = TensorEntry("x", "float32", (1, 2), "LINEAR", (8, 4))


def test_segments_are_on_one_clock() -> None:
    # a loadable's event has no time of the GPU: then a plan's is left alone, too
    events = [
        SegmentEvent(0, 0, 0, "DLA0", 0.0, 0.010, None),
        SegmentEvent(0, 0, 1, "GPU", 0.010, 0.015, 1.0),
    ]
    lane = SimpleNamespace(
        number=0,
        segments=[SimpleNamespace(index=i, device=d, layers=()) for i, d in enumerate("DG")],
    )
    model: Any = SimpleNamespace(lanes=[lane])
    times = [one.latency_ms["median"] for one in segment_times(model, events)]
    assert times == pytest.approx([10.0, 5.0])
    assert segment_times(model, events[1:])[0].latency_ms["median"] == 1.0


@over(st.lists(st.floats(0, 1e6), min_size=1, max_size=1200))
@limits(max_examples=tries(25))
def test_a_percentile_leaves_as_many_larger_ones_out_as_trtexec_does(values: list[float]) -> None:
    found = summary(values)
    for name, share in [("p90", 10), ("p95", 5), ("p99", 1), ("p999", 0.1)]:
        out = math.floor(round(share * 10) * len(values) / 1000)
        left = sorted(values)[: max(len(values) - out, 1)]
        assert found[name] == left[-1]
    assert found["min"] <= found["p50"] <= found["p999"] <= found["max"]
    assert found["p50"] == found["median"] == median(values)


def test_frames_are_given_alone_or_stacked() -> None:
    one = np.ones((1, 2), np.float32)
    assert len(split_frames({"x": one}, [X])) == 1
    frames = split_frames({"x": np.stack([one, 2 * one, 3 * one])}, [X])
    assert [float(frame["x"][0, 0]) for frame in frames] == [1, 2, 3]
    z = TensorEntry("z", "float32", (4,), "LINEAR", (4,))
    with pytest.raises(DeviceError) as caught:
        split_frames({"x": np.stack([one, one]), "z": np.zeros(4, np.float32)}, [X, z])
    assert caught.value.code == "input.shape"


def manifest(**changes: Any) -> Any:
    facts = {"inputs": (X,), "samples": None, "golden": ()}
    return SimpleNamespace(manifest=SimpleNamespace(**{**facts, **changes}))


def test_given_frames_win_over_golden_ones_and_most_are_bounded() -> None:
    cases = [SimpleNamespace(seed=n, ranges={"x": (0.0, 1.0)}, shapes={}) for n in range(3)]
    golden = load_frames(manifest(golden=cases))
    assert (golden.source, len(golden.frames), golden.notes) == ("golden", 3, [])
    assert len({frame["x"].tobytes() for frame in golden.frames}) == 3
    assert len(load_frames(manifest()).frames) == 1
    many = load_frames(
        manifest(golden=cases), split_frames({"x": np.zeros((40, 1, 2), np.float32)}, [X])
    )
    assert (many.source, len(many.frames)) == ("given", 32)
    assert many.notes == ["the first 32 of 40 frames are repeated"]


def streams_of(count: int, run: Any, frames: int = 3) -> list[BenchStream]:
    model: Any = SimpleNamespace(lanes=[SimpleNamespace(number=0, share=1.0)])
    return [BenchStream(model, frames, number, count, run) for number in range(count)]


def test_streams_run_at_once_and_cycle_different_frames() -> None:
    seen: list[tuple[int, int]] = []
    together = threading.Barrier(2)

    def run(lane: Any, frame: int, number: int, record: Any) -> None:
        together.wait(120)  # breaks unless both streams are in a frame at once
        seen.append((number, frame))

    began: list[int] = []
    streams = streams_of(2, run)
    run_streams(streams, Pace(0, 0, 6, 0), lambda: began.append(len(seen)))
    assert began == [0]
    assert sorted(seen) == [(number, number % 3) for number in range(12)]
    assert [len(stream.latencies) for stream in streams] == [6, 6]


def test_a_stream_that_fails_ends_the_others() -> None:
    def run(lane: Any, frame: int, number: int, record: Any) -> None:
        if number == 5:
            raise DeviceError("no", code="engine.failed")

    streams = streams_of(3, run)
    with pytest.raises(DeviceError) as caught:
        run_streams(streams, Pace(0, 600, 1, 0))
    assert caught.value.code == "engine.failed"
    assert not [t for t in threading.enumerate() if t.name == "edgekit-bench"]


def test_a_stream_that_fails_while_it_warms_up_leaves_none_waiting() -> None:
    run_first = iter([True])

    def first_fails(lane: Any, frame: int, number: int, record: Any) -> None:
        if next(run_first, False):
            raise DeviceError("no", code="engine.failed")

    with pytest.raises(DeviceError):
        run_streams(streams_of(2, first_fails), Pace(5, 600, 1, 0))


def test_what_ends_the_command_ends_its_streams() -> None:
    """A signal's SystemExit comes up in the main thread, which waits."""
    running = threading.Event()

    def run(lane: Any, frame: int, number: int, record: Any) -> None:
        running.set()

    streams = streams_of(2, run)
    original = threading.Thread.join

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        if self.name == "edgekit-bench" and timeout == 0.2 and running.is_set():
            raise SystemExit(143)
        original(self, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "join", join)
        with pytest.raises(SystemExit):
            run_streams(streams, Pace(0, 600, 1, 0))
    assert not [t for t in threading.enumerate() if t.name == "edgekit-bench"]
