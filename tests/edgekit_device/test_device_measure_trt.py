"""A bench of TensorRT's engines: phases, streams, CUDA graphs, fixed addresses, how it waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit_device.benchmark.command import describe_runtime, measure_memory
from edgekit_device.benchmark.events import Span, retained_events
from edgekit_device.benchmark.fixed_addresses import FixedLane
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.cuda.driver import choose_wait, open_cuda
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from edgekit_device.runtime.model import Model, open_model
from edgekit_device.runtime.pipeline import SegmentEvent
from tests.edgekit_device.device_trt_here import Here, here_fixture
from tests.edgekit_device.device_trt_toys import SHAPE, checked, entry, plan, random_input
from tests.trt_double._memory import MEMORY

pytestmark = pytest.mark.usefixtures("quick_collections")

here = pytest.fixture(here_fixture)

STEP = 0.0078125
PHASES = {"enqueue", "h2d", "compute", "d2h", "host"}
FRAMES = [{"x": random_input(seed)} for seed in range(3)]


def toy(version: str = "10.3.0", **changes: Any) -> Model:
    return open_model(checked(plan(version), entry(version, **changes)))


def test_phases_add_up_to_a_frame(here: Here) -> None:
    here.has("10.3.0")
    found = bench(toy(), FRAMES, BenchSettings(1.0, 0.0, 12))
    phases = found.phases_ms
    assert set(phases) == PHASES
    assert all(0 <= one["min"] <= one["p999"] <= one["max"] for one in phases.values())
    parts = sum(phases[name]["mean"] for name in PHASES - {"enqueue"})
    assert parts == pytest.approx(found.latency_ms["mean"])
    assert phases["compute"]["mean"] == pytest.approx(found.segments[0].latency_ms["mean"])
    assert {copy.phase for copy in found.copies} == {"h2d", "d2h"}
    for frame in range(8):
        (event,) = [one for one in found.events if one.frame == frame]
        to, back = [one for one in found.copies if one.frame == frame]
        assert (to.phase, back.phase) == ("h2d", "d2h")
        assert to.start_us < back.start_us
        assert to.start_us < event.start_us + event.duration_us
        # the device begins when its input is there, and the outputs are copied when it has ended
        done = event.compute_start_us + event.compute_us
        assert to.start_us + to.duration_us <= event.compute_start_us + 1e-3
        assert done <= back.start_us + 1e-3
        assert event.compute_us < event.duration_us
    assert found.streams is None


def test_the_device_is_at_work_when_its_events_say_else_until_the_call_ends() -> None:
    # frame 7 has an event of its own device; frame 8 was in flight, where there is none; a loadable
    events = [
        SegmentEvent(7, 0, 0, "GPU", 10.0, 10.005, 1.5),
        SegmentEvent(8, 0, 0, "GPU", 10.006, 10.010, 1.0),
        SegmentEvent(8, 0, 1, "DLA0", 10.010, 10.020, None),
    ]
    spans = [
        Span(7, "h2d", 10.0005, 1.5),
        Span(7, "compute", 10.001, 0.2),
        Span(7, "compute", 10.002, 1.5),
    ]
    reported = retained_events(events, [7, 8], spans)
    found = [(one.compute_start_us, one.compute_us) for one in reported]
    assert found[0] == pytest.approx((2000.0, 1500.0))
    assert found[1] == pytest.approx((9000.0, 1000.0))
    assert found[2] == (None, None)


def test_streams_have_contexts_of_their_own(here: Here) -> None:
    here.has("10.3.0")
    model = toy()
    found = bench(model, FRAMES, BenchSettings(1.0, 0.05, 5, streams=3))
    (engine,) = model.engines.values()
    assert 2 <= len(engine._slots) <= 3
    assert [one.stream for one in found.streams] == [0, 1, 2]
    assert sum(one.iterations for one in found.streams) == found.iterations
    assert min(one.iterations for one in found.streams) >= 5
    with pytest.raises(DeviceError, match="65 streams"):
        bench(model, FRAMES, BenchSettings(streams=65))


@pytest.mark.parametrize(
    ("version", "cuda"), [("8.6.1", "old"), ("10.3.0", "new"), ("11.4.0", "new")]
)
def test_a_graph_replays_what_the_engine_does(here: Here, version: str, cuda: str) -> None:
    here.has(version, cuda=cuda)
    model = toy(version)
    wanted = [model(frame)["y"] for frame in FRAMES]
    lane = FixedLane(model, model.lanes[0], FRAMES, open_cuda(), graph=True, transfers=True)
    for index in (2, 0, 1, 0):
        lane.frame(index)
        np.testing.assert_array_equal(lane.results()["y"], wanted[index])
    lane.close()
    np.testing.assert_array_equal(model(FRAMES[0])["y"], wanted[0])  # its context serves again
    found = bench(model, FRAMES, BenchSettings(0.0, 0.0, 4, graph=True, streams=2))
    assert all(found.phases_ms[name] is not None for name in PHASES)
    assert found.segments[0].latency_ms["mean"] > 0
    del lane
    assert MEMORY.graphs == {}


def test_without_transfers_nothing_is_copied(here: Here) -> None:
    here.has("10.3.0")
    found = bench(toy(), FRAMES, BenchSettings(0.0, 0.0, 4, transfers=False))
    reported = {name for name, one in found.phases_ms.items() if one is not None}
    assert reported == {"enqueue", "compute", "host"}
    assert found.copies == ()


def test_fixed_addresses_take_the_engines_own_format(here: Here) -> None:
    here.has("10.3.0")
    data = plan("10.3.0", formats={"x": ("INT8", "CHW32", STEP)})
    x_io = IoEntry("x", "int8", SHAPE, "CHW32", (2048, 2048, 256, 32), STEP)
    model = open_model(checked(data, entry("10.3.0", inputs=(x_io,))))
    lane = FixedLane(model, model.lanes[0], FRAMES, open_cuda(), graph=False, transfers=True)
    lane.frame(1)
    np.testing.assert_array_equal(lane.results()["y"], model(FRAMES[1])["y"])
    lane.close()


def test_a_graph_is_refused_where_a_dla_works(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(checked(plan("10.3.0", dla=True), entry("10.3.0", dla_core=0)))
    with pytest.raises(DeviceError, match="DLA0") as caught:
        bench(model, FRAMES, BenchSettings(0.0, 0.0, 1, graph=True))
    assert caught.value.code == "bench.graph"
    # its transfers can be left out all the same
    assert bench(model, FRAMES, BenchSettings(0.0, 0.0, 1, transfers=False)).iterations == 1


def test_an_engine_that_cannot_be_captured_is_named_and_serves_on(here: Here) -> None:
    here.has("10.3.0")
    model = toy()
    (engine,) = model.engines.values()
    wanted = model(FRAMES[0])["y"]
    held = engine.hold_context

    from contextlib import contextmanager

    @contextmanager
    def capturing(*arguments: Any) -> Any:
        with held(*arguments) as found:
            calls: list[int] = []

            class Context:
                def execute_async_v3(self, stream: int) -> bool:
                    calls.append(stream)
                    return len(calls) == 1 and found.context.execute_async_v3(stream)

            yield found._replace(context=Context())

    here.monkeypatch.setattr(engine, "hold_context", capturing)
    with pytest.raises(DeviceError, match="cannot be captured") as caught:
        bench(model, FRAMES, BenchSettings(0.0, 0.0, 1, graph=True))
    assert caught.value.code == "bench.graph"
    assert MEMORY.captures == {}
    assert MEMORY.graphs == {}
    np.testing.assert_array_equal(model(FRAMES[0])["y"], wanted)


@pytest.mark.parametrize("spin", [True, False, None])
def test_the_runtimes_flags_are_those_that_hold(here: Here, spin: bool | None) -> None:
    here.has("10.3.0", ["lean"])
    if spin is not None:
        choose_wait(spin)
    flags = ["VERSION_COMPATIBLE"]
    about = entry("10.3.0", version_compatible=True, lean_embedded=True)
    before = open_cuda().memory()
    model = open_model(checked(plan("10.3.0", flags), about), 2)
    found = describe_runtime(model, BenchSettings(spin=spin), 2)
    assert (found.library, found.version) == ("tensorrt", "10.3.0")
    assert found.flags["runtime"] == "lean"
    assert found.flags["host_code"] is True
    assert found.flags["spin"] is spin
    assert found.notes == ()
    if spin is not None:
        other = describe_runtime(model, BenchSettings(spin=not spin), 2)
        assert "the requested one was ignored" in other.notes[0]
    memory = measure_memory(model, before)
    assert memory.gpu_total_bytes == before[1]
    assert memory.gpu_bytes == 0  # the double's board has one size for all
    assert (memory.peak_rss_bytes or 0) >= (memory.rss_bytes or 0) > 0
