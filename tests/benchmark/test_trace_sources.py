import json

import pytest

from edgekit.benchmark.trace.chrome import Trace, validate_trace
from edgekit.benchmark.trace.monitor import monitor_process
from edgekit.benchmark.trace.nsys import NsysSource
from edgekit.benchmark.trace.nsys_export import open_export
from edgekit.benchmark.trace.sources import (
    PreparedSource,
    RunTrace,
    align,
    read_trace_or_bench,
    times_process,
    write_trace,
)
from edgekit.benchmark.trtexec import Iteration
from edgekit_device.board.samples import Monitor
from tests.benchmark import handmade_plan, monitor_samples
from tests.benchmark.nsys_export import engine_run


def sound(document):
    assert validate_trace(document) == []
    return document


def combined(sources, out):
    written = write_trace(out, sources, name="t")
    return sound(json.loads(out.read_text())), written


def bench(**measured):
    measurement = handmade_plan.measurement() | measured
    return handmade_plan.trace(handmade_plan.plan(), measurement, dla_cores=2)


def test_clocks_that_know_the_time_of_day_meet(tmp_path):
    own = RunTrace("bench", Trace.model_validate(bench(**monitor_samples.measured())))
    export = open_export(engine_run(tmp_path / "a.sqlite"))
    document, written = combined([own, NsysSource(export, "a")], tmp_path / "t.json")
    export.close()
    shifts = {p.source: p.shift_us for p in written.processes}
    # the export's 0 is 0.25 s before the frames
    assert shifts == {"bench": pytest.approx(250_000.0, abs=1), "a": 0.0}
    assert {p["alignment"] for p in document["otherData"]["processes"]} == {
        "aligned by the wall clock"
    }


def test_clocks_without_it_or_of_another_day_begin_at_0_and_say_so():
    class Clock:
        def __init__(self, wall, seconds=1.0):
            self.wall, self.seconds = wall, seconds

    aligned = align([Clock(1000.0), Clock(None), Clock(1000.5), Clock(90_000.0)])
    assert [shift for shift, _ in aligned] == [0.0, 0.0, 500_000.0, 0.0]
    assert ["not aligned" in how for _, how in aligned] == [False, True, False, True]
    assert align([Clock(None)]) == [(0.0, "the only source")]


def test_processes_of_one_source_are_not_reported_as_unrelated(tmp_path):
    """The bench's frames, its frames in flight and its monitor have the loader's clock."""
    events = handmade_plan.measurement()["events"]
    own = RunTrace(
        "bench", Trace.model_validate(bench(**monitor_samples.measured(), pipelined_events=events))
    )
    iterations = [Iteration(10.0, 0.5, 1.0, 3.0, 0.5, 8.0)]
    document, _ = combined(
        [own, PreparedSource("times", [times_process(iterations, pid=1)])], tmp_path / "t.json"
    )
    names = {
        e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"
    }
    labels = {
        names[e["pid"]]: e["args"]["labels"]
        for e in document["traceEvents"]
        if e["name"] == "process_labels"
    }
    labelled = [
        label for name, label in labels.items() if name.startswith(("measured", "monitors"))
    ]
    assert len(labelled) == 3
    assert all(label.startswith("edgekit_device's clock") for label in labelled)
    assert all(label.endswith("not aligned with the others") for label in labels.values())
    assert not any("its own clock" in label for label in labels.values())


def test_iterations_of_trtexec_become_linked_slices(tmp_path):
    iterations = [Iteration(10.0 + 5 * n, 0.5, 1.0, 3.0, 0.5, 8.0 + 5 * n) for n in range(3)]
    document, written = combined(
        [PreparedSource("times", [times_process(iterations, pid=1)])], tmp_path / "t.json"
    )
    assert written.events == {"iteration": 12, "flow": 12}
    compute = [e["ts"] for e in document["traceEvents"] if e["name"].startswith("compute")]
    assert compute[0] == 2000.0


def test_a_bench_without_its_trace_shows_what_itself_has(tmp_path):
    path = tmp_path / "other.json"
    measurement = handmade_plan.measurement() | {"latency_ms": {"mean": 1.0}}
    path.write_text(json.dumps({"schema": "edgekit.bench/1", **measurement}))
    source, _ = read_trace_or_bench(path)
    document, _ = combined([source], tmp_path / "t.json")
    assert any(e.get("cat") == "segment" for e in document["traceEvents"])


def test_a_trace_holds_no_more_than_it_may(tmp_path):
    source = RunTrace("bench", Trace.model_validate(bench()))
    written = write_trace(tmp_path / "t.json", [source], name="t", most=5)
    assert sum(written.events.values()) == 5
    assert written.left_out > 0


def test_a_monitor_without_samples_is_no_process():
    assert monitor_process(Monitor(), pid=1) == []
    assert monitor_process(None, pid=1) == []
