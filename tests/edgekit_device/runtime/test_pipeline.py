"""The pipeline with hand-made segments: overlap, order, failures, and that nothing hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count, islice

import numpy as np
import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import Lane, SegmentEntry
from edgekit_device.runtime.pipeline import LaneRun, run_stream, share_lanes

Arrays = dict[str, np.ndarray]
LIMIT_S = 120


def lane(
    *segments: tuple[str, str, str, Callable[[Arrays], Arrays]],
    outputs: tuple[str, ...] = ("y",),
    share: float = 1.0,
    number: int = 0,
) -> LaneRun:
    """Segments as (device, inputs, outputs, function)."""
    entries = tuple(
        SegmentEntry(i, device, "", tuple(reads.split()), tuple(writes.split()), ())
        for i, (device, reads, writes, _) in enumerate(segments)
    )
    return LaneRun(number, Lane(share, entries), [s[3] for s in segments], outputs)


def add(name: str, amount: int) -> Callable[[Arrays], Arrays]:
    return lambda feeds: {name: sum(feeds.values(), np.zeros(1, np.int64)) + amount}


def numbers(most: int | None = None) -> Iterator[Arrays]:
    return ({"x": np.array([i])} for i in (count() if most is None else range(most)))


CHAIN = [
    ("GPU", "x", "a", add("a", 10)),
    ("DLA0", "a", "b", add("b", 100)),
    ("GPU", "a b", "y", add("y", 1000)),
]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [t.name for t in threading.enumerate() if t.name.startswith("edgekit-")]


def test_a_quick_lane_does_not_overtake_a_slow_one() -> None:
    """Frame 1 is done long before frame 0, which waits for frame 3."""
    done = {number: threading.Event() for number in range(8)}

    def slow(feeds: Arrays) -> Arrays:
        assert done[min(int(feeds["x"][0]) + 3, 7)].wait(LIMIT_S)
        return {"y": feeds["x"]}

    def quick(feeds: Arrays) -> Arrays:
        done[int(feeds["x"][0])].set()
        return {"y": feeds["x"]}

    def frames() -> Iterator[Arrays]:
        for frame in numbers(8):
            if int(frame["x"][0]) == 2:
                assert done[1].wait(LIMIT_S)
            yield frame

    lanes = [
        lane(("GPU", "x", "y", slow), share=0.5),
        lane(("DLA0", "x", "y", quick), share=0.5, number=1),
    ]
    found = [int(out["y"][0]) for out in run_stream(lanes, frames(), depth=6)]
    assert found == list(range(8))


def test_devices_work_at_the_same_time_on_different_frames() -> None:
    # each waits for the other to be inside: one after the other would break the barrier
    meeting = threading.Barrier(2, timeout=LIMIT_S)
    first = threading.Event()

    def gpu(feeds: Arrays) -> Arrays:
        if first.is_set():
            meeting.wait()
        first.set()
        return {"a": feeds["x"]}

    def dla(feeds: Arrays) -> Arrays:
        meeting.wait()
        return {"y": feeds["a"]}

    run = lane(("GPU", "x", "a", gpu), ("DLA0", "a", "y", dla))
    # the last frame has nobody to meet, so the stream is left before it
    results = run_stream([run], numbers(), depth=2)
    assert [int(out["y"][0]) for out in islice(results, 5)] == list(range(5))
    meeting.abort()
    results.close()


def test_branches_of_one_frame_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=LIMIT_S)

    def meet(name: str) -> Callable[[Arrays], Arrays]:
        def run(feeds: Arrays) -> Arrays:
            meeting.wait()
            return {name: feeds["x"]}

        return run

    run = lane(
        ("DLA0", "x", "a", meet("a")),
        ("DLA1", "x", "b", meet("b")),
        ("GPU", "a b", "y", add("y", 0)),
    )
    assert [int(o["y"][0]) for o in run_stream([run], numbers(3), depth=1)] == [0, 2, 4]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_no_more_frames_are_read_than_fit_in_flight(depth: int) -> None:
    read = 0

    def source() -> Iterator[Arrays]:
        nonlocal read
        for frame in numbers():
            read += 1
            yield frame

    results = run_stream([lane(*CHAIN)], source(), depth=depth)
    for done in range(1, 6):
        next(results)
        assert read <= done + depth - 1
    results.close()


def test_a_failing_segment_is_raised_at_its_frame_and_ends_the_stream() -> None:
    def fail(feeds: Arrays) -> Arrays:
        if feeds["a"][0] == 13:
            raise RuntimeError("three")
        return {"b": feeds["a"]}

    run = lane(CHAIN[0], ("DLA0", "a", "b", fail), CHAIN[2])
    results = run_stream([run], numbers())
    assert len(list(islice(results, 3))) == 3
    with pytest.raises(RuntimeError, match="three"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_even_an_exit_in_a_worker_does_not_hang() -> None:
    def leave(feeds: Arrays) -> Arrays:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        list(run_stream([lane(("GPU", "x", "y", leave))], numbers(2)))


def test_a_segment_that_hangs_is_named_and_the_stream_ends() -> None:
    free = threading.Event()

    def hang(feeds: Arrays) -> Arrays:
        if feeds["a"][0] == 11:
            free.wait()
        return {"b": feeds["a"]}

    run = lane(CHAIN[0], ("DLA0", "a", "b", hang), CHAIN[2])
    results = run_stream([run], numbers(), timeout_s=2.0)
    try:
        next(results)
        with pytest.raises(DeviceError, match="frame 1 in segment 1 on DLA0") as caught:
            next(results)
        assert caught.value.code == "engine.stuck"
        left = [t for t in threading.enumerate() if t.name.startswith("edgekit-")]
        assert [thread.name for thread in left] == ["edgekit-DLA0"]
    finally:
        free.set()
    for thread in left:
        thread.join(LIMIT_S)


def test_a_failing_source_is_raised_after_the_results_before_it() -> None:
    def source() -> Iterator[Arrays]:
        yield from numbers(2)
        raise OSError("camera gone")

    results = run_stream([lane(*CHAIN)], source(), depth=4)
    assert len(list(islice(results, 2))) == 2
    with pytest.raises(OSError, match="camera gone"):
        next(results)


def test_a_stream_that_is_never_read_starts_nothing() -> None:
    run_stream([lane(*CHAIN)], numbers())
    assert not [t for t in threading.enumerate() if t.name.startswith("edgekit-")]


def test_an_empty_source_gives_nothing() -> None:
    assert list(run_stream([lane(*CHAIN)], iter(()))) == []


def test_inputs_that_are_outputs_and_unused_inputs_pass_through() -> None:
    run = lane(("GPU", "x", "y", add("y", 1)), outputs=("y", "x"))
    frame = {"x": np.array([1]), "unused": np.array([5])}
    found = next(run_stream([run], [frame]))
    assert {name: int(value[0]) for name, value in found.items()} == {"y": 2, "x": 1}
    assert set(frame) == {"x", "unused"}


def test_lanes_take_frames_by_their_shares_evenly() -> None:
    lanes = [lane(CHAIN[0], number=i, share=s) for i, s in enumerate((0.5, 0.3, 0.2))]
    dealt = [each.number for each in islice(share_lanes(lanes), 100)]
    assert [dealt.count(i) for i in range(3)] == [50, 30, 20]
    assert all(set(dealt[i : i + 10]) == {0, 1, 2} for i in range(0, 100, 10))
